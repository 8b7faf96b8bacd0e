"""An entry: one row of a main or history table."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from queue_core.errors import PayloadNotDecodableError
from queue_core.model.lanes import Lane
from queue_core.model.states import State
from queue_core.runtime.deprecation import OldName
from sql.search_keys import RESERVED, SEARCH_KEYS, texts
from sql.statements.base import IN_PROCESSING, raised

T = TypeVar("T")


class RetryDue(msgspec.Struct, frozen=True):
    """A subscriber that failed (`failures` times) and runs again at `due` (UTC)."""

    failures: int
    due: datetime


SubscriberProgress = dict[str, bool | RetryDue]
"""By subscriber: true if it succeeded, false if it has used up its retries, else its next run."""


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One row.

    Dates are aware and in UTC; ids are never reused; `event_json` or `event_bytes` holds the
    payload.

    The fields stand in the order of the columns. None of them leads back to an entry, so the
    garbage collector need not look at entries: thousands are in memory at a time.
    """

    record_id: int
    queue_name: str
    class_name: str
    event_json: str | None
    event_bytes: bytes | None
    codec: str
    user_token: str | None
    future_user_token: str | None
    search_key1: int | str | None
    search_key2: int | str | None
    created_date: datetime
    effective_date: datetime
    creating_owner: str
    processing_owner: str | None
    processing_available_date: datetime | None
    lane: Lane
    processing_state: State
    error_count: int = 0
    claim_count: int = 0
    redispatch_count: int = 0
    crash_count: int = 0
    subscribers_done: str | None = None
    headers: str | None = None
    origin_id: int | None = None
    replay_of: int | None = None
    finished_date: datetime | None = None
    started_date: datetime | None = None
    last_error: str | None = None

    def __repr__(self) -> str:
        return (
            f"Entry(record_id={self.record_id}, queue_name={self.queue_name!r}, "
            f"class_name={self.class_name!r}, processing_state={self.processing_state.value})"
        )

    settled = OldName[SubscriberProgress]("progress")

    @property
    def due_since(self) -> datetime:
        """The date on which it became due.

        The head start of a priority puts `effective_date` before the post.
        """
        return max(self.effective_date, self.created_date)

    @property
    def claim(self) -> tuple[int, int]:
        """Names this claim of the entry: (record id, claim count)."""
        return self.record_id, self.claim_count

    @property
    def progress(self) -> SubscriberProgress:
        """The progress of its subscribers.

        Raises PayloadNotDecodableError if the column holds anything else.
        """
        return self._read("subscribers_done", self.subscribers_done, SubscriberProgress)

    @property
    def captured(self) -> dict[str, str]:
        """The headers.

        Raises PayloadNotDecodableError if the column holds anything but a flat object of texts.
        """
        found = self._read("headers", self.headers, dict[str, str])
        return {name: text for name, text in found.items() if not name.startswith(RESERVED)}

    def _read(self, column: str, text: str | None, kind: type[dict[str, T]]) -> dict[str, T]:
        if not text:
            return {}
        try:
            return msgspec.json.decode(text, type=kind)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise PayloadNotDecodableError(
                f"Entry {self.record_id} ({self.class_name}) of {self.queue_name} can't be read: "
                f"{column}: {error}. Its bytes are kept.",
                record_id=self.record_id,
                queue_name=self.queue_name,
                class_name=self.class_name,
            ) from error


class Located(msgspec.Struct, frozen=True):
    """An entry and its main table, since ids are those of one table.

    Attributes:
        table: The name of the main table.
        entry: The entry.
        not_archived: Of an archived entry, the parts that its archive was told to leave out:
            `payload`, `errors` or both.
    """

    table: str
    entry: Entry
    not_archived: tuple[str, ...] = ()


_PLACES = {name: place for place, name in enumerate(Entry.__struct_fields__)}
_STATE, _LANE = _PLACES["processing_state"], _PLACES["lane"]
_OWNER, _UNTIL = _PLACES["processing_owner"], _PLACES["processing_available_date"]
_CLAIM_COUNT, _HEADERS = _PLACES["claim_count"], _PLACES["headers"]
_KEY_MARKS = RESERVED + "search_key"


def from_row(row: Sequence[Any]) -> Entry:
    """The entry of a row of `Statements`, whose columns stand in the order of its fields."""
    values = list(row)
    values[_STATE] = State(values[_STATE])
    if values[_HEADERS] is not None:
        _restore_keys(values)
    return Entry(*values)


def has_head_start(entry: Entry) -> bool:
    """Whether a priority has put an entry ahead of its post."""
    return entry.effective_date < entry.created_date


def claimed(row: Sequence[Any], owner: str, until: datetime) -> Entry:
    """The entry of a row that `owner` has just claimed."""
    values = list(row)
    # PostgreSQL answers with the row as it is now, the others as it was.
    if values[_STATE] != IN_PROCESSING:
        values[_CLAIM_COUNT] = raised(values[_CLAIM_COUNT])
    values[_STATE] = State.IN_PROCESSING
    values[_LANE] = values[_OWNER] = owner
    values[_UNTIL] = until
    if values[_HEADERS] is not None:
        _restore_keys(values)
    return Entry(*values)


def _restore_keys(values: list[Any]) -> None:
    """Make search keys texts again where they were posted as texts, by the row's headers."""
    headers = values[_HEADERS]
    if not isinstance(headers, str) or _KEY_MARKS not in headers:
        return  # most marks are not those of search keys, and reading them takes time
    for column, text in texts(headers).items():
        if column in SEARCH_KEYS:
            values[_PLACES[column]] = text
