"""Files of an archive that no reader needs any more, and their removal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from posixpath import dirname

from history_pipeline.archive import EVENT_DATE, Archive
from history_pipeline.manifest import Manifest, live_files, run_began

KEPT = timedelta(days=1)
"""Age at which files are removed that were replaced, or that no manifest names.

By then nobody reads or writes them.
"""


def remove_leftovers(
    archive: Archive,
    manifests: Sequence[Manifest],
    *,
    now: datetime,
    deleted_runs: Iterable[str] | None,
    kept: timedelta = KEPT,
) -> None:
    """Remove files that were replaced, and files of runs that published no manifest.

    Files that were replaced or begun less than `kept` ago stay: others may still read or write
    them. Runs without a manifest stay if the database has deleted their rows (`deleted_runs`),
    or if that is not known (None).
    """
    storage = archive.storage
    live = {dirname(file.path) for file in live_files(manifests)}
    replaced = {
        dirname(path): manifest.created for manifest in manifests for path in manifest.replaces
    }
    for run in storage.names("data"):
        folder, began = f"data/{run}", run_began(run)
        days = {f"{folder}/{day}" for day in storage.names(folder) if day.startswith(EVENT_DATE)}
        gone = {day for day in days & replaced.keys() if replaced[day] < now - kept}
        if not days & (live | replaced.keys()):
            unpublished = deleted_runs is not None and run not in deleted_runs
            if unpublished and began is not None and began < now - kept:
                storage.remove(folder)
        elif gone == days:
            storage.remove(folder)
        else:
            for day in sorted(gone):
                storage.remove(day)
