"""Lookups in an archive: single entries and searches, without Spark and within a second.

Manifests name each file with its day and its range of ids. Only files that can hold the sought rows
are opened. Of these, the columns that decide are read first, and the others only where a row
matches. Statistics inside the files are not trusted: a manifest does not vouch for them.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Unpack

from history_pipeline.archives.archive_log import ArchiveLog, archived_tables
from history_pipeline.archives.arrow_storage import ArrowStorage
from history_pipeline.archives.bundles import bundled_manifests
from history_pipeline.archives.manifest import live_files
from history_pipeline.archives.parquet_files import parquet_file
from history_pipeline.archives.place import directory
from history_pipeline.archives.sought import Sought
from history_pipeline.rows.kind import ENTRIES, check_entries
from history_pipeline.rows.parts import not_archived
from queue_core.model.entry import Entry, Located, from_row
from queue_core.reading.filters import HistoryFilters
from queue_core.storage.arguments import storable_integer
from queue_core.storage.filter import Filter

_FIRST = datetime.min.replace(tzinfo=UTC)


def find_archived(
    target: str,
    *,
    table: str | None = None,
    queue_name: str | None = None,
    event_name: str | None = None,
    limit: int | None = None,
    **filters: Unpack[HistoryFilters],
) -> list[Located]:
    """Find archived entries, as `Inspector.history` finds those of a database.

    It needs neither Spark nor Java, only the extra `archive`.

    Args:
        target: The directory of the archive.
        table: Only of this main table's archive. Default: of all in the directory.
        queue_name: Only of this bus, or `service:queue`. Default: of all.
        event_name: Only events of this name. Default: of all.
        limit: At most this number, of all tables together. Default: all.
        filters: As for `PersistentBus.history`. Name a table with `record_ids`: ids are those of
            one table.

    Returns:
        The entries that match all that is given. Those of one table by descending id, those of all
        tables newest first.

    Raises:
        ConfigurationError: `table` is no main table, or `target` no directory.
        InvalidPostError: A value that no entry can have.
        ArchiveIncompleteError: What is sought of errors was left out in some of the days.
        ArchiveNotFoundError: Nothing was archived there.
        ArchiveDamagedError: A file or manifest is missing or damaged.
        ArchiveTargetError: The directory can't be reached.
    """
    most = None if limit is None else storable_integer(limit, "limit", least=0)
    sought = Sought(Filter(**filters), queue_name, event_name)
    if table is not None:
        check_entries(table, "this search")
    where = directory(target)
    tables = [table] if table is not None else archived_tables(ArrowStorage(where), ENTRIES)
    found = [
        located
        for one in tables
        for located in _newest(ArrowStorage(f"{where}/{one}"), one, sought, most)
    ]
    if table is None:  # ids of different tables say nothing of when
        found.sort(key=lambda located: located.entry.finished_date or _FIRST, reverse=True)
    return found[:most]


def _newest(storage: ArrowStorage, table: str, sought: Sought, limit: int | None) -> list[Located]:
    """The entries of one table with the highest ids, in descending order."""
    manifests = bundled_manifests(ArchiveLog(storage, table))
    files = [file for file in live_files(manifests) if sought.may_be_in(file)]
    sought.check_kept(files, storage.root)
    found = list[Located]()
    for file in sorted(files, key=lambda file: file.last_id, reverse=True):
        if len(found) == limit and all(file.last_id < one.entry.record_id for one in found[-1:]):
            break
        with parquet_file(storage, file) as parquet:
            rows = sought.search.rows(parquet, Entry.__struct_fields__, limit)
            entries = [from_row(row) for row in rows]
        found += [Located(table, one, not_archived(one, file.without)) for one in entries]
        found = sorted(found, key=lambda located: located.entry.record_id, reverse=True)[:limit]
    return found
