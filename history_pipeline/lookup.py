"""Lookups in an archive: single entries and searches, without Spark and within a second.

Manifests name each file with its day and its range of ids. Only files that can hold what is sought
are opened. Of these, the columns that decide are read first, and the others only where a row
matches. Statistics inside the files are not trusted: a manifest does not vouch for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import reduce
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple, Unpack

import pyarrow as pa
from pyarrow import compute
from pyarrow.parquet import ParquetFile

from history_pipeline.archive_log import ArchiveLog, archived_tables
from history_pipeline.arrow_schema import HISTORY_ARROW_SCHEMA
from history_pipeline.arrow_storage import ArrowStorage
from history_pipeline.errors import ArchiveDamagedError
from history_pipeline.manifest import DataFile, live_files
from queue_core.model.entry import Entry, from_row
from queue_core.model.posting import SearchKey
from queue_core.model.states import State
from queue_core.queue_reads import HistoryFilters
from queue_core.reading.search import Located
from queue_core.runtime.clock import in_utc
from queue_core.storage.arguments import integer, name
from queue_core.storage.filter import LONGEST_ERROR_TEXT, Filter, checked_ids, state_values
from queue_core.storage.search_keys import Keyless, Unset, sought_key
from sql.search_keys import SEARCH_KEYS

_ID = "record_id"
_BATCH_ROWS = 16_384
"""Rows whose columns are in memory at once."""
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
        InvalidPostError: A value that no entry can have.
        ArchiveNotFoundError: Nothing was archived there.
        ArchiveDamagedError: A file or manifest is missing or damaged.
        ArchiveTargetError: The directory can't be reached.
    """
    most = None if limit is None else integer(limit, "limit", least=0)
    sought = _Sought(Filter(**filters), queue_name, event_name)
    tables = [table] if table is not None else archived_tables(ArrowStorage(target))
    found = [
        Located(one, entry)
        for one in tables
        for entry in _newest(ArrowStorage(f"{target}/{one}"), one, sought, most)
    ]
    if table is None:  # ids of different tables say nothing of when
        found.sort(key=lambda located: located.entry.finished_date or _FIRST, reverse=True)
    return found[:most]


def _newest(storage: ArrowStorage, table: str, sought: _Sought, limit: int | None) -> list[Entry]:
    """The entries of one table with the highest ids, in descending order."""
    files = [
        file for file in live_files(ArchiveLog(storage, table).open()) if sought.may_be_in(file)
    ]
    found = list[Entry]()
    for file in sorted(files, key=lambda file: file.last_id, reverse=True):
        if len(found) == limit and all(file.last_id < one.record_id for one in found[-1:]):
            break
        found += sought.entries(storage, file, limit)
        found = sorted(found, key=lambda entry: entry.record_id, reverse=True)[:limit]
    return found


class _Sought:
    """What is looked for. Raises InvalidPostError for a value that no entry can have."""

    def __init__(self, wanted: Filter, queue_name: str | None, event_name: str | None) -> None:
        self._ids = None if wanted.record_ids is None else checked_ids(wanted.record_ids)
        self._after = None if wanted.after_id is None else integer(wanted.after_id, "after_id")
        self._since, self._before = (
            None if date is None else in_utc(date, key=key)
            for key, date in (
                ("finished_since", wanted.finished_since),
                ("finished_before", wanted.finished_before),
            )
        )
        states = state_values(list(State) if wanted.states is None else wanted.states)
        self._conditions = [
            _Condition("processing_state", compute.is_in, pa.array(states, pa.string())),
            *_unless_none("queue_name", compute.equal, queue_name),
            *_unless_none("class_name", compute.equal, event_name),
            *_unless_none(
                _ID,
                compute.is_in,
                None if self._ids is None else pa.array(self._ids, pa.int64()),
            ),
            *_unless_none(_ID, compute.greater, self._after),
            *_unless_none("finished_date", compute.greater_equal, self._since),
            *_unless_none("finished_date", compute.less, self._before),
            *_of_error(wanted),
            *(
                condition
                for column in SEARCH_KEYS
                for condition in _of_key(column, getattr(wanted, column))
            ),
        ]

    def may_be_in(self, file: DataFile) -> bool:
        """Whether the day and the ids of a file allow that it holds such entries."""
        return (
            (self._ids is None or any(file.first_id <= one <= file.last_id for one in self._ids))
            and (self._after is None or file.last_id > self._after)
            and (self._since is None or file.event_date >= self._since.date().isoformat())
            and (self._before is None or file.event_date <= self._before.date().isoformat())
        )

    def entries(self, storage: ArrowStorage, file: DataFile, limit: int | None) -> list[Entry]:
        """Those in a file with the highest ids. Raises ArchiveDamagedError if it can't be read."""
        try:
            with (
                storage.open(file.path) as opened,
                ParquetFile(opened, page_checksum_verification=True) as parquet,
            ):
                return [from_row(row) for row in self._rows(parquet, limit)]
        except (pa.ArrowException, OSError) as error:
            reason = str(error).partition("\n")[0]
            raise ArchiveDamagedError(
                f"{storage.root}/{file.path} can't be read: {reason}. Nothing was written. Find all damaged files: "
                "stickybus history verify. Bring them back from a copy.",
                path=f"{storage.root}/{file.path}",
            ) from error

    def _rows(self, parquet: ParquetFile, limit: int | None) -> Iterator[Sequence[Any]]:
        """The rows of a file that match. Their values stand in the order of the fields of Entry."""
        places = [
            (record_id, group, place)
            for group in range(parquet.num_row_groups)
            for record_id, place in self._places(parquet, group)
        ]
        for group, chosen in groupby(
            sorted(sorted(places, reverse=True)[:limit], key=itemgetter(1, 2)), key=itemgetter(1)
        ):
            yield from _read_rows(parquet, group, [place for _, _, place in chosen])

    def _places(self, parquet: ParquetFile, group: int) -> Iterator[tuple[int, int]]:
        """The ids of the rows of a row group that match, and their places in it."""
        names = list(dict.fromkeys([_ID, *(one.column for one in self._conditions)]))
        rows = _completed(parquet.read_row_group(group, columns=names), names)
        masks = [one.test(rows[one.column], one.value) for one in self._conditions]
        matching = compute.indices_nonzero(reduce(compute.and_kleene, masks))
        yield from zip(rows[_ID].take(matching).to_pylist(), matching.to_pylist(), strict=True)


class _Condition(NamedTuple):
    """A test of the values of one column against a value."""

    column: str
    test: Callable[[Any, Any], Any]
    value: Any


def _unless_none(column: str, test: Callable[[Any, Any], Any], value: Any) -> Iterator[_Condition]:
    if value is not None:
        yield _Condition(column, test, value)


def _of_key(column: str, wanted: SearchKey | Keyless | Unset) -> Iterator[_Condition]:
    if isinstance(wanted, Unset):
        return
    key = sought_key(wanted, column, "search")
    if key is None:
        yield _Condition(column, lambda values, _: compute.is_null(values), None)
        return
    yield _Condition(column, compute.equal, key.number)
    if key.text is not None:
        yield _Condition("headers", compute.match_substring, key.member(column))


def _of_error(wanted: Filter) -> Iterator[_Condition]:
    if wanted.error_type is not None:
        head = f"{name(wanted.error_type, 'error_type')}:"
        yield _Condition("last_error", compute.starts_with, head)
    if wanted.error_text is not None:
        text = name(wanted.error_text, "error_text", limit=LONGEST_ERROR_TEXT)
        yield _Condition(
            "last_error",
            lambda values, sought: compute.match_substring(values, sought, ignore_case=True),
            text,
        )


def _read_rows(parquet: ParquetFile, group: int, places: list[int]) -> Iterator[Sequence[Any]]:
    """The rows of a row group at ascending places. What is not needed is not kept in memory."""
    first = 0
    for batch in parquet.iter_batches(_BATCH_ROWS, row_groups=[group]):
        here = [place - first for place in places if first <= place < first + batch.num_rows]
        if here:
            names = Entry.__struct_fields__
            rows = _completed(pa.Table.from_batches([batch]).take(here), names)
            yield from zip(*(rows[name].to_pylist() for name in names), strict=True)
        first += batch.num_rows
        if first > places[-1]:
            return


def _completed(rows: pa.Table, names: Sequence[str]) -> pa.Table:
    """The columns of some names. Those that history did not have yet are NULL."""
    schema = pa.schema([HISTORY_ARROW_SCHEMA.field(name) for name in names])
    columns = [
        rows[field.name] if field.name in rows.column_names else pa.nulls(len(rows), field.type)
        for field in schema
    ]
    return pa.table(columns, names=list(names)).cast(schema)
