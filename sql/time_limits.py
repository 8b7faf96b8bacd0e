"""The time limits of a database call, each derived from the one that is configured.

A server's own limits come first, since they leave the connection whole: a lock's, then a
statement's. The client's limit is longer, by the time that an answer may need on its way. It alone
helps when the server is out of reach.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

ANSWER_SECONDS = 1.0
"""The time that an error needs to arrive, which the server raises at its own limit."""

LOCK_SHARE = 0.5
"""The share of a statement's time that it may wait for locks.

A transaction that got none may run once more within that time.
"""

LONGEST_CONNECT_SECONDS = 10.0
"""The limit of a connection attempt, if the configured one is not shorter."""
LONGEST_SECONDS = 2_000_000.0
"""Some three weeks: the servers refuse more, in milliseconds."""


@dataclass(frozen=True)
class TimeLimits:
    """The limits of one database's connections, in seconds."""

    configured_seconds: float

    @property
    def statement(self) -> float:
        """Of a statement, and of a transaction's silence between two."""
        return min(self.configured_seconds, LONGEST_SECONDS)

    @property
    def lock(self) -> float:
        """Of the wait for a lock."""
        return self.statement * LOCK_SHARE

    @property
    def answer(self) -> float:
        """Of the client's wait for an answer."""
        return self.statement + ANSWER_SECONDS

    @property
    def connect(self) -> int:
        """Of opening a connection."""
        return whole(min(self.statement, LONGEST_CONNECT_SECONDS))


def whole(seconds: float) -> int:
    """Seconds for a setting that knows no parts of them, where 0 would mean without limit."""
    return max(1, math.ceil(seconds))


def milliseconds(seconds: float) -> int:
    """Milliseconds, where 0 would mean without limit."""
    return max(1, int(seconds * 1000))
