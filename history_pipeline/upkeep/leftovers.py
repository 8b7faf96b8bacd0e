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
from history_pipeline.rows.columns import EVENT_DATE

KEPT = timedelta(days=1)
"""Age at which files are removed that were replaced, or that no manifest names.

By then nobody reads or writes them.
"""


def remove_leftovers(
    archive: ArchiveLog[Storage],
    manifests: Sequence[Manifest],
    *,
    now: datetime,
    logged_runs: Collection[str],
    kept: timedelta = KEPT,
) -> None:
    """Remove files that were replaced, and files of runs that published no manifest.

    Files that were replaced or begun less than `kept` ago stay: others may still read or write
    them. But what is older than an erasure goes at once: it may hold what was erased, and a run
    that had begun before can't publish any more. Files of `logged_runs`, which the database knows,
    stay in any case. Roll-ups of other files than those that are left go at once: they may hold the
    text of an error that was erased.
    """
    storage, files = archive.storage, live_files(manifests)
    live, rollups = {dirname(file.path) for file in files}, rollup_names(files)
    for rollup in storage.names("rollups"):
        if rollup not in rollups:
            storage.remove(f"rollups/{rollup}")
    erasures = [manifest.created for manifest in manifests if manifest.kind is Kind.ERASURE]
    limit = max([now - kept, *erasures])
    replaced = defaultdict[str, dict[str, datetime]](dict)
    for manifest in manifests:
        for path in manifest.replaces:
            replaced[dirname(path)][path] = manifest.created
    for run in storage.names("data"):
        folder, began = f"data/{run}", run_began(run)
        days = {f"{folder}/{day}" for day in storage.names(folder) if day.startswith(EVENT_DATE)}
        if not days & (live | replaced.keys()):
            if run not in logged_runs and began is not None and began <= limit:
                storage.remove(folder)
            continue
        old = {
            day: {path for path, date in replaced[day].items() if date <= limit}
            for day in days & replaced.keys()
        }
        gone = {day for day in old if day not in live and len(old[day]) == len(replaced[day])}
        if gone == days:
            storage.remove(folder)
        else:
            _remove_old(storage, old, gone)


def _remove_old(storage: Storage, old: dict[str, set[str]], gone: set[str]) -> None:
    """Remove old files by their folders; and folders that hold no others."""
    for day, paths in old.items():
        if day in gone:
            storage.remove(day)
        elif paths:
            for path in paths & {f"{day}/{name}" for name in storage.names(day)}:
                storage.remove(path)
