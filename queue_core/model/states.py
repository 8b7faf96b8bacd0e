"""The states of an entry.

`TRANSITIONS` is the only table of state changes: the statements follow it, a test holds them to it,
and the diagram in the documentation is drawn from it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import Literal, TypeAlias


class State(StrEnum):
    """The state of an entry."""

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
        State.REMOVED: "remove, or an entry that it waits for has failed",
    },
    State.PROCESSED: {},
    State.FAILED: {},
    State.REAPED: {},
    State.REMOVED: {},
}
"""From each state, the states that may follow and the causes.

Entries are born AVAILABLE, IN_PROCESSING or, behind others, WAITING.

REAPED ends a row, not its chain: a copy of the entry is born AVAILABLE in the same transaction.
"""
