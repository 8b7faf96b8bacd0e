"""The rate at which callers' transactions with posts end in this process.

In real time: this is about the load of machines, which no manual clock moves.
"""

from __future__ import annotations

from collections import deque

MANY, MANY_SECONDS = 10, 0.015
"""Transactions, and the time in which they end if the rate is high: more than 600 a second."""
GATHER_SECONDS = 0.003
"""The longest pause between two looks for commits while transactions come quickly.

Each look takes the claim loop, and wakes handlers and a finish loop, which all share Python's one
lock with the callers. A transaction that comes longer after the one before waits for nothing.
"""
VAIN_PAUSES, VAIN_SECONDS = 3, 0.3
"""Pauses in vain, and the time without pauses that follows them.

A caller that waits for each entry hardly notices them so.
"""


class CommitRate:
    """Counted in the callers' threads, and asked for by the claim loop."""

    def __init__(self) -> None:
        self._latest = deque[float](maxlen=MANY)
        self._vain_pauses = 0
        self._none_until = 0.0

    def count(self, now: float) -> None:
        """A transaction has ended, or is about to."""
        self._latest.append(now)

    def is_high(self, now: float) -> bool:
        """Whether others are likely to end soon."""
        latest = [*self._latest]
        return (
            len(latest) == MANY
            and now - latest[0] < MANY_SECONDS
            and now - latest[-1] < GATHER_SECONDS
            and now >= self._none_until
        )

    def gathered(self, since: float) -> None:
        """A pause has ended: one alone that came in it is of a caller that waits for each entry."""
        several = sum(one >= since for one in [*self._latest]) > 1
        self._vain_pauses = 0 if several else self._vain_pauses + 1
        if self._vain_pauses == VAIN_PAUSES:
            self._vain_pauses, self._none_until = 0, since + VAIN_SECONDS
