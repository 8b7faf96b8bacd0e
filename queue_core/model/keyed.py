"""Idempotency keys: the options of a post, its answer, and where a key stands."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Literal, Self, TypeAlias

import msgspec

KeepWord: TypeAlias = Literal["waiting", "living", "forever"]
"""The keeping of a key that no time limits."""

Keep: TypeAlias = KeepWord | timedelta
"""The keeping of a key: while its entry waits, while it lives, a time after its end, or ever."""

OnConflict: TypeAlias = Literal["return", "raise", "replace", "requeue", "debounce"]
"""The effect of a post whose key is taken."""


class Answer(StrEnum):
    """The result of a post with a key."""

    ADDED = "added"
    """A new entry has the key."""
    UPDATED = "updated"
    """The entry that waits with this key has the new payload."""
    ALREADY_QUEUED = "already_queued"
    """An entry with this key waits. It stays as it is."""
    IN_BACK_OFF = "in_back_off"
    """An entry with this key has failed, and waits for its retry."""
    LOCKED = "locked"
    """An entry with this key runs now."""
    DONE = "done"
    """The entry with this key has ended, and the key is kept."""


class Posted(int):
    """The record id of the entry that has the key, which is another's if the key was taken.

    Attributes:
        answer: The result of the post.
    """

    answer: Answer

    def __new__(cls, record_id: int, answer: Answer) -> Self:
        """Make an id with its answer."""
        made = super().__new__(cls, record_id)
        made.answer = answer
        return made

    @property
    def created(self) -> bool:
        """Whether the entry is a new one."""
        return self.answer is Answer.ADDED

    def __reduce__(self) -> tuple[type[Self], tuple[int, Answer]]:
        return type(self), (int(self), self.answer)

    def __str__(self) -> str:
        return int.__repr__(self)

    def __repr__(self) -> str:
        return f"Posted({int(self)}, {self.answer.value!r})"


class KeyState(StrEnum):
    """The state of the entry of a key."""

    UNKNOWN = "unknown"
    """Nobody has the key."""
    QUEUED = "queued"
    IN_BACK_OFF = "in_back_off"
    """It has failed, and waits for its retry."""
    LOCKED = "locked"
    """It runs now."""
    LOCKED_WITH_REQUEUE = "locked_with_requeue"
    """It runs now, and once more after its end."""
    DONE = "done"
    """It has ended, and the key is kept."""
    DONE_WITH_REQUEUE = "done_with_requeue"
    """It has ended, and is about to run once more."""


class KeyStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a key.

    Attributes:
        table: The main table.
        queue_name: The queue.
        key: The key.
        state: The state of its entry; UNKNOWN if nobody has the key.
        record_id: The entry. None if nobody has the key.
        keep: The time for which the key is kept: "waiting", "living", "period" or "forever".
        keep_seconds: The time after the end, of a period.
        ended_state: PROCESSED or FAILED, once the entry has ended.
        ended_date: The date of its end, in UTC.
        kept_until: The date from which the key is free, in UTC; None if that is not known yet.
    """

    table: str
    queue_name: str
    key: str
    state: KeyState
    record_id: int | None = None
    keep: str | None = None
    keep_seconds: float | None = None
    ended_state: str | None = None
    ended_date: datetime | None = None
    kept_until: datetime | None = None
