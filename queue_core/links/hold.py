"""The hold of an entry on a key: the key's row and its entry together."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import msgspec
from sqlalchemy import Row

from queue_core.model.keyed import Keep, KeyState
from queue_core.model.states import State
from sql.statements.key_shapes import PERIOD

WAITING, LIVING, FOREVER = "waiting", "living", "forever"
"""The time for which a key is kept, beside a period: until its entry starts, or ends, or always."""

_WAITS = (State.AVAILABLE, State.WAITING)


class Hold(msgspec.Struct):
    """The state of a key by its row and its entry."""

    key: str
    record_id: int
    keep: str
    keep_seconds: float | None
    state: KeyState
    held: bool
    """Whether a post with this key finds it taken."""
    ended_state: str | None = None
    ended_date: datetime | None = None
    kept_until: datetime | None = None

    @property
    def waits(self) -> bool:
        """Whether its entry waits for its run, or for a retry."""
        return self.state in {KeyState.QUEUED, KeyState.IN_BACK_OFF}

    @property
    def runs(self) -> bool:
        """Whether its entry runs."""
        return self.state in {KeyState.LOCKED, KeyState.LOCKED_WITH_REQUEUE}

    def has_started(self) -> None:
        """Its entry waits no more: somebody has it."""
        self.state, self.held = KeyState.LOCKED, self.keep != WAITING

    def is_followed_by(self, record_id: int) -> None:
        """The entry that was to follow its own has just been posted."""
        self.record_id, self.state, self.held = record_id, KeyState.QUEUED, True


def hold_of(row: Row[Any], live: Row[Any] | None, past: Row[Any] | None, now: datetime) -> Hold:
    """The state of a key by its row, and by the row of its entry, live or past."""
    hold = Hold(
        row.entry_key, row.record_id or 0, row.keep, row.keep_seconds, KeyState.DONE, held=True
    )
    if row.record_id is None:  # nobody has taken it yet, or he was rolled back
        hold.state, hold.held = KeyState.UNKNOWN, False
        return hold
    if live is not None:
        if live.processing_state in _WAITS:
            hold.state = KeyState.IN_BACK_OFF if live.error_count else KeyState.QUEUED
        else:
            hold.has_started()
            if row.requeue is not None:
                hold.state = KeyState.LOCKED_WITH_REQUEUE
        return hold
    if row.requeue is not None:
        hold.state = KeyState.DONE_WITH_REQUEUE
    state = row.ended_state or (None if past is None else past.processing_state)
    hold.ended_state = state or None
    hold.ended_date = row.ended_date or (None if past is None else past.finished_date)
    # A process of an older version may have reaped it, and told no key.
    if row.keep in {WAITING, LIVING} or state in {State.REMOVED, State.REAPED}:
        hold.held = False
    elif row.keep == PERIOD and hold.ended_date is not None:
        hold.kept_until = later(hold.ended_date, row.keep_seconds)
        hold.held = hold.kept_until > now
    return hold


def kept(keep: Keep) -> tuple[str, float | None]:
    """A `keep` as the rows of keys hold it, with the seconds of a period."""
    return (PERIOD, keep.total_seconds()) if isinstance(keep, timedelta) else (keep, None)


def later(date: datetime, seconds: float) -> datetime:
    """A date later by that, or the last one of the calendar."""
    try:
        return date + timedelta(seconds=seconds)
    except OverflowError:
        return datetime.max.replace(tzinfo=date.tzinfo)
