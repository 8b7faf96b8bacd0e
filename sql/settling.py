"""A wait for the end of all transactions that have written to a history by now.

It holds up no writer.

Nobody sees an uncommitted row. Each database tells in its own way that there may be one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, Self, TypeVar

from sqlalchemy import Connection, Engine, Table

T = TypeVar("T")

_PAUSE_SECONDS = 0.02
"""The pause between two questions to the database."""


class OpenDatabase(Protocol):
    """Our own connections to a database, as far as one has to ask them here."""

    @property
    def engine(self) -> Engine:
        """Its connections for transactions."""
        ...

    def fetch(self, work: Callable[[Connection], T]) -> T:
        """Run `work`, which only reads."""
        ...

    def has_written(self) -> bool:
        """Begin and end a write transaction; False if the lock for that was not had in time."""
        ...

    def reopened(self, *, statement_timeout_seconds: float) -> Self:
        """The same database with another limit."""
        ...

    def close(self) -> None:
        """Close its connections."""
        ...


@dataclass(frozen=True)
class Ended:
    """Rows of a history that ended in (`after`, `until`], UTC.

    They are waited for until `deadline` (monotonic, in seconds).
    """

    history: Table
    after: datetime
    until: datetime
    deadline: float

    def comes_true(self, condition: Callable[[], bool]) -> bool:
        """Ask until it is true or the time is over. No database tells when a transaction ends."""
        while not condition():
            if time.monotonic() >= self.deadline:
                return False
            time.sleep(_PAUSE_SECONDS)
        return True
