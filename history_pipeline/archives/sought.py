"""A search for entries in an archive: the files that may hold them, and the rows that match."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyarrow import compute

from history_pipeline.archives.manifest import DataFile
from history_pipeline.archives.search import Condition, Search, unless_none
from history_pipeline.errors import ArchiveIncompleteError
from history_pipeline.period import Period
from history_pipeline.rows.arrow_entries import without_messages
from history_pipeline.rows.arrow_schema import HISTORY_ARROW_SCHEMA
from history_pipeline.rows.parts import Part
from queue_core.model.posting import SearchKey
from queue_core.model.states import State
from queue_core.runtime.clock import in_utc
from queue_core.storage.arguments import storable_integer, storable_name
from queue_core.storage.filter import LONGEST_ERROR_TEXT, Filter, checked_ids, state_values
from queue_core.storage.search_keys import Keyless, Unset, sought_key
from sql.search_keys import SEARCH_KEYS
from sql.tables import CLASS_NAME_LENGTH, QUEUE_NAME_LENGTH

_ID = "record_id"


class Sought:
    """What is looked for. Raises InvalidPostError for a value that no entry can have."""

    def __init__(self, wanted: Filter, queue_name: str | None, event_name: str | None) -> None:
        self._ids = None if wanted.record_ids is None else checked_ids(wanted.record_ids)
        self._after = (
            None if wanted.after_id is None else storable_integer(wanted.after_id, "after_id")
        )
        self._period = Period(
            *(
                None if date is None else in_utc(date, key=key)
                for key, date in (
                    ("finished_since", wanted.finished_since),
                    ("finished_before", wanted.finished_before),
                )
            )
        )
        states = state_values(list(State) if wanted.states is None else wanted.states)
        conditions = [
            Condition("processing_state", compute.is_in, pa.array(states, pa.string())),
            *_of_name("queue_name", queue_name, "queue_name", QUEUE_NAME_LENGTH),
            *_of_name("class_name", event_name, "event_name", CLASS_NAME_LENGTH),
            *unless_none(
                _ID,
                compute.is_in,
                None if self._ids is None else pa.array(self._ids, pa.int64()),
            ),
            *unless_none(_ID, compute.greater, self._after),
            *unless_none("finished_date", compute.greater_equal, self._period.since),
            *unless_none("finished_date", compute.less, self._period.until),
            *_of_error(wanted),
            *(
                condition
                for column in SEARCH_KEYS
                for condition in _of_key(column, getattr(wanted, column))
            ),
        ]
        self.search = Search(conditions, (_ID,), HISTORY_ARROW_SCHEMA)
        self._needs_messages = wanted.error_text is not None or (
            wanted.error_type is not None and not _is_kept(wanted.error_type)
        )

    def may_be_in(self, file: DataFile) -> bool:
        """Whether the day and the ids of a file allow that it holds such entries."""
        return (
            (self._ids is None or any(file.first_id <= one <= file.last_id for one in self._ids))
            and (self._after is None or file.last_id > self._after)
            and self._period.meets(file.event_date)
        )

    def check_kept(self, files: Iterable[DataFile], where: str) -> None:
        """Raises ArchiveIncompleteError if some of the files lack what decides."""
        lacking = sorted({file.event_date for file in files if Part.ERRORS in file.without})
        if self._needs_messages and lacking:
            raise ArchiveIncompleteError(
                f"{where} does not hold the messages of all errors: runs with entries of "
                f"{lacking[0]} to {lacking[-1]} were archived without them. So nobody can say "
                "which of these match. Leave out error_text or error_type, or choose other "
                "days.",
                path=where,
            )


def _of_name(column: str, wanted: str | None, key: str, limit: int) -> Iterator[Condition]:
    if wanted is not None:
        yield Condition(column, compute.equal, storable_name(wanted, key, limit=limit))


def _of_key(column: str, wanted: SearchKey | Keyless | Unset) -> Iterator[Condition]:
    if isinstance(wanted, Unset):
        return
    key = sought_key(wanted, column, "search")
    if key is None:
        yield Condition(column, lambda values, _: compute.is_null(values), None)
        return
    yield Condition(column, compute.equal, key.number)
    if key.text is not None:
        yield Condition("headers", compute.match_substring, key.member(column))


def _is_kept(error_type: str) -> bool:
    """Whether a type of errors stays where messages are left out."""
    kept = without_messages(pa.chunked_array([[f"{error_type}:"]]))
    return bool(kept[0].is_valid)


def _of_error(wanted: Filter) -> Iterator[Condition]:
    if wanted.error_type is not None:
        head = f"{storable_name(wanted.error_type, 'error_type')}:"
        yield Condition("last_error", compute.starts_with, head)
    if wanted.error_text is not None:
        text = storable_name(wanted.error_text, "error_text", limit=LONGEST_ERROR_TEXT)
        yield Condition(
            "last_error",
            lambda values, sought: compute.match_substring(values, sought, ignore_case=True),
            text,
        )
