"""Stoppers: rows that nobody else sees, at which a read of a lane ends.

InnoDB leaves a range only at a row that exists. While a session holds an old snapshot, what was
deleted stays in the index. So a read that finds less than it may goes on over all of it, up to the
next entry of whatever lane. A stopper behind the range ends it there. It is rolled back at once,
and of a row that was rolled back nothing is left in the index (ADR 0001).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, TypeAlias

from sqlalchemy import Connection

from sql.drivers.hot_path import send

Insert: TypeAlias = Callable[[Connection, Sequence[Mapping[str, Any]]], object]

FAR = 4
"""A claim walked far if it read for this many times as long as it wrote.

Without dead rows it reads for about as long. No benchmark compares it with others.
"""
IN_A_ROW = 5
"""Claims in a row that must have walked far: one alone may have waited for the machine.

On one with ten times as many threads as cores, one claim of forty read for so long by chance. No
benchmark compares it with others.
"""
PAUSE = 1_000
"""How long claims set stoppers, in times of the shortest of those reads.

The next one that sets none finds out whether the rows are gone. It may take as long as those did.
No benchmark compares it with others.
"""


class Walks:
    """Whether reads walk far over deleted rows, as the times of claims tell.

    No counter that every user may read tells it. A claim's write is as far from the server as its
    read is, on a machine that is as busy.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._far = deque[float](maxlen=IN_A_ROW)
        """Seconds of the last reads that walked far, one behind the other."""
        self._until = 0.0

    @property
    def are_far(self) -> bool:
        """Whether reads had better set stoppers now."""
        return self._now() < self._until

    def took(self, read_seconds: float, write_seconds: float) -> None:
        """Note a claim that set no stopper, and found less than it might."""
        if read_seconds < FAR * write_seconds:
            self._far.clear()
            return
        self._far.append(read_seconds)
        if len(self._far) == IN_A_ROW:
            self._until = self._now() + PAUSE * min(self._far)


@contextmanager
def stopped(
    connection: Connection, insert: Insert, table: str, lane: str, date: datetime
) -> Iterator[None]:
    """Let reads of the block, in a transaction, go no further in their lane than to `date`.

    What they lock stays locked.
    """
    # A savepoint before the first statement on a table knows of no InnoDB: the servers would roll
    # back all that it has, and release the locks of the block.
    send(connection, f"SELECT 1 FROM {table} WHERE record_id = 0", None)  # noqa: S608 -- our name
    send(connection, "SAVEPOINT stickybus_stopper", None)
    insert(connection, [{"class_name": "", "lane": lane, "effective_date": date}])
    yield
    # After an error the transaction is rolled back as a whole.
    send(connection, "ROLLBACK TO SAVEPOINT stickybus_stopper", None)
