"""Files of an archive that no reader needs any more, and their removal."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from posixpath import dirname

from history_pipeline.archives.archive_log import ArchiveLog
from history_pipeline.archives.manifest import Kind, Manifest, live_files, run_began
from history_pipeline.archives.rollup_names import rollup_names
from history_pipeline.archives.storage import Storage

_KEPT = timedelta(days=1)
"""Age at which files are removed that were replaced, or that no manifest names.

By then nobody reads or writes them.
"""


def remove_leftovers(
    archive: ArchiveLog[Storage],
    manifests: Sequence[Manifest],
    *,
    now: datetime,
    logged_runs: Collection[str],
) -> None:
    """Remove files that were replaced, and files of runs that published no manifest.

    Files that were replaced or begun less than `_KEPT` ago stay: others may still read or write
    them. But what is older than an erasure goes at once: it may hold what was erased, and a run
    that had begun before can't publish any more. Files of `logged_runs`, which the database knows,
    stay in any case. Roll-ups of other files than those that are left go at once: they may hold the
    text of an error that was erased.
    """
    storage, rollups = archive.storage, rollup_names(live_files(manifests))
    for rollup in storage.names("rollups"):
        if rollup not in rollups:
            storage.remove(f"rollups/{rollup}")
    erasures = [manifest.created for manifest in manifests if manifest.kind is Kind.ERASURE]
    limit = max([now - _KEPT, *erasures])
    old = {
        path for manifest in manifests if manifest.created <= limit for path in manifest.replaces
    }
    named, partly = defaultdict[str, set[str]](set), set[str]()
    for manifest in manifests:
        for file in manifest.files:
            named[dirname(dirname(file.path))].add(file.path)
    for run in storage.names("data"):
        folder, began = f"data/{run}", run_began(run)
        if folder not in named:
            if run not in logged_runs and began is not None and began <= limit:
                storage.remove(folder)
        elif named[folder] <= old:
            storage.remove(folder)
        elif named[folder] & old:
            partly |= named[folder]
    if partly:
        _remove_old(storage, partly, old)


def _remove_old(storage: Storage, paths: set[str], old: set[str]) -> None:
    """Remove the old ones of some files by their folders, where these hold no others."""
    days = defaultdict[str, set[str]](set)
    for path in paths:
        days[dirname(path)].add(path)
    # All of the archive at once: object storage is asked once for a thousand files, not per run.
    there = storage.sizes("data").keys()
    for day, of_day in days.items():
        left = of_day & old & there
        if left and of_day <= old:
            storage.remove(day)
        else:
            for path in left:
                storage.remove(path)
