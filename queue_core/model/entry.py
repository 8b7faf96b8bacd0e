"""An entry: one row of a main or history table, and its states.

`TRANSITIONS` is the only table of state changes: the statements follow it, a test holds them to it,
and the diagram in the documentation is drawn from it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Literal, TypeAlias, TypedDict, TypeVar
from uuid import UUID

import msgspec
from sqlalchemy import Row

from queue_core.errors import PayloadNotDecodableError
from queue_core.model.keyed import Keep, OnConflict
from queue_core.model.lanes import Lane
from queue_core.model.priority import NORMAL, Priority
from queue_core.runtime.deprecation import OldName
from sql.search_keys import RESERVED, SEARCH_KEYS, texts
from sql.statements.base import IN_PROCESSING, raised

T = TypeVar("T")


class State(StrEnum):
    """Where an entry stands."""

    AVAILABLE = "AVAILABLE"
    WAITING = "WAITING"
    IN_PROCESSING = "IN_PROCESSING"
    PROCESSED = "PROCESSED"
    FAILED = "FAILED"
    REAPED = "REAPED"
    REMOVED = "REMOVED"

    @property
    def terminal(self) -> bool:
        """Whether entries of this state are in history."""
        return self in TERMINAL_STATES


StateName: TypeAlias = Literal[
    "AVAILABLE", "WAITING", "IN_PROCESSING", "PROCESSED", "FAILED", "REAPED", "REMOVED"
]
"""A state by its name."""

States: TypeAlias = State | StateName | Collection[State | StateName]
"""One state, or several."""


def several(states: States) -> Collection[State | StateName]:
    """States as a collection, though a single one was given."""
    return (states,) if isinstance(states, str) else states


TERMINAL_STATES = frozenset({State.PROCESSED, State.FAILED, State.REAPED, State.REMOVED})

TRANSITIONS: Mapping[State, Mapping[State, str]] = {
    State.AVAILABLE: {
        State.IN_PROCESSING: "claim",
        State.REMOVED: "remove",
        State.REAPED: "reap (due, its node dead)",
        State.FAILED: "unknown for too long",
    },
    State.IN_PROCESSING: {
        State.PROCESSED: "handlers succeed",
        State.FAILED: "retries or redispatches used up, or undecodable",
        State.AVAILABLE: "retry, release, park",
        State.REAPED: "reap (its node dead)",
    },
    State.WAITING: {
        State.AVAILABLE: "its turn has come",
        State.REMOVED: "remove, or what it waits for has failed",
    },
    State.PROCESSED: {},
    State.FAILED: {},
    State.REAPED: {},
    State.REMOVED: {},
}
"""From each state, the states that may follow and what leads there.

Entries are born AVAILABLE, IN_PROCESSING or, behind others, WAITING.

REAPED ends a row, not its chain: a copy of the entry is born AVAILABLE in the same transaction.
"""


def state_diagram() -> str:
    """`TRANSITIONS` as a Mermaid state diagram, as the documentation shows it."""
    arrows = [
        f"    [*] --> {State.AVAILABLE}: post",
        f"    [*] --> {State.IN_PROCESSING}: post, born claimed",
        f"    [*] --> {State.WAITING}: post, behind another of its order key or after others",
    ]
    for state, following in TRANSITIONS.items():
        arrows += [f"    {state} --> {after}: {cause}" for after, cause in following.items()]
    arrows += [
        f"    {state} --> [*]" for state in State if state.terminal and state is not State.REAPED
    ]
    arrows.append(f"    {State.REAPED} --> {State.AVAILABLE}: its copy, with a new id")
    return "\n".join(["stateDiagram-v2", *arrows, ""])


SearchKey: TypeAlias = int | str | UUID
"""A key to find entries by.

It is a 64-bit integer, or a text of 1 to 255 characters. A UUID is its text.
"""


class RetryDue(msgspec.Struct, frozen=True):
    """A subscriber that failed (`failures` times) and runs again at `due` (UTC)."""

    failures: int
    due: datetime


SubscriberProgress = dict[str, bool | RetryDue]
"""By subscriber: true if it succeeded, false if it has used up its retries, else its next run."""


class Entry(msgspec.Struct, frozen=True):
    """One row.

    Dates are aware and in UTC; ids are never reused; `event_json` or `event_bytes` holds the
    payload.

    The fields stand in the order of the columns.
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
            f"Entry(record_id={self.record_id}, queue_name={self.queue_name!r}, class_name={self.class_name!r}, "
            f"processing_state={self.processing_state.value})"
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
        """How far its subscribers are.

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
                f"Entry {self.record_id} ({self.class_name}) of {self.queue_name} can't be read: {column}: {error}. "
                "Its bytes are kept.",
                record_id=self.record_id,
                queue_name=self.queue_name,
                class_name=self.class_name,
            ) from error


_PLACES = {name: place for place, name in enumerate(Entry.__struct_fields__)}
_STATE, _LANE = _PLACES["processing_state"], _PLACES["lane"]
_OWNER, _UNTIL = _PLACES["processing_owner"], _PLACES["processing_available_date"]
_CLAIM_COUNT, _HEADERS = _PLACES["claim_count"], _PLACES["headers"]
_KEY_MARKS = RESERVED + "search_key"


def from_row(row: Row[Any]) -> Entry:
    """The entry of a row of `Statements`, whose columns stand in the order of its fields."""
    values = list(row)
    values[_STATE] = State(values[_STATE])
    if values[_HEADERS] is not None:
        _restore_keys(values)
    return Entry(*values)


def claimed(row: Sequence[Any], owner: str, until: datetime) -> Entry:
    """The entry of a row that `owner` has just claimed."""
    values = list(row)
    if (
        values[_STATE] != IN_PROCESSING
    ):  # PostgreSQL answers with the row as it is now, the others as it was
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


OrderFailure: TypeAlias = Literal["hold", "skip"]
"""What a failed entry means for those behind it that have its order key.

They wait until somebody retries or discards it ("hold"), or they go on ("skip").
"""


OnFailed: TypeAlias = Literal["cancel", "run", "hold"]
"""What becomes of an entry if one that it waits for fails, or is removed.

It is removed, too ("cancel"), runs all the same ("run"), or waits for a person ("hold").
"""


Awaited: TypeAlias = int | tuple[str, str]
"""An entry that another one waits for: its id, or (queue name, idempotency key)."""


class Posting(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be posted or scheduled.

    `event`: a dataclass, attrs, msgspec or pydantic instance, or a dict together with `event_name`.
    Search keys are 64-bit integers, texts of 1 to 255 characters or UUIDs. `headers` is a flat dict
    of strings. `at` is an aware date; None means now. `key` is an idempotency key, with `keep`,
    `on_conflict` and `key_wait` as for a post. Entries of one `order_key` run one after the other
    in the order of posting. `after` holds ids, or (queue name, key) pairs, of entries that it
    waits for. `group` is the id of the group of which it is a member. `max_run_seconds` limits
    each run. `priority` is for what is due now. Of the entries of one `limit_key`, no more run at
    once than the queue's limit says.
    """

    event: object
    event_name: str | None = None
    search_key1: SearchKey | None = None
    search_key2: SearchKey | None = None
    user_token: str | None = None
    future_user_token: str | None = None
    headers: Mapping[str, str] | None = None
    at: datetime | None = None
    order_key: str | None = None
    order_failure: OrderFailure = "hold"
    key: str | None = None
    keep: Keep = "living"
    on_conflict: OnConflict = "return"
    key_wait: float | None = None
    after: Collection[Awaited] | None = None
    on_failed: OnFailed = "cancel"
    group: int | None = None
    max_run_seconds: float | None = None
    priority: Priority = NORMAL
    limit_key: str | None = None


class PostOptions(TypedDict, total=False):
    """The options of a post or a schedule, besides its connection and its key."""

    event_name: str | None
    search_key1: SearchKey | None
    search_key2: SearchKey | None
    user_token: str | None
    future_user_token: str | None
    headers: Mapping[str, str] | None
    at: datetime | None
    delay: timedelta | float | None
    order_key: str | None
    order_failure: OrderFailure
    keep: Keep
    on_conflict: OnConflict
    key_wait: float | None
    after: Collection[Awaited] | None
    on_failed: OnFailed
    group: int | None
    max_run_seconds: float | None
    priority: Priority
    limit_key: str | None


class KeyedOptions(PostOptions, total=False):
    """The options of a post or a schedule, besides its connection."""

    key: str | None
