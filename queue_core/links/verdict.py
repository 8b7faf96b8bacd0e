"""The verdict on an entry that waits for others, by the ends of those."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any

from sqlalchemy import Row

from queue_core.model.states import State

CANCEL, RUN, HOLD = "cancel", "run", "hold"
"""The answers to the failure of an awaited entry that a post may ask for."""

UNKNOWN = "UNKNOWN"
"""The end of an entry that is nowhere: it was deleted from history before anybody looked."""


class Verdict(Enum):
    """The fate of the entry."""

    WAIT = "wait"
    HOLD = "hold"
    CANCEL = "cancel"
    RELEASE = "release"


def verdict_on(rows: Sequence[Row[Any]]) -> tuple[Verdict, Row[Any] | None]:
    """The fate of an entry by its waits, and the failed one that is the reason."""
    failed = [
        row
        for row in rows
        if row.awaited_state not in {None, State.PROCESSED.value} and row.on_failed != RUN
    ]
    for row in failed:
        if row.on_failed == CANCEL and row.awaited_state != UNKNOWN:
            return Verdict.CANCEL, row
    if any(row.awaited_state is None for row in rows):
        return Verdict.WAIT, None
    return (Verdict.HOLD, failed[0]) if failed else (Verdict.RELEASE, None)


def reason_of(failed: Row[Any]) -> str:
    """The `last_error` of an entry that is cancelled for a failed one."""
    return (
        f"DependencyFailed: entry {failed.awaited_id}, which this one waited for, ended "
        f"{failed.awaited_state}. It was not run; its payload is kept here. A retry does not wait "
        "for that one: retry this one when that one has succeeded."
    )
