"""The turns of the threads of this process that write to one SQLite file.

SQLite's own waiting is by sleeping.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from typing import Any

from sqlalchemy.exc import DBAPIError

from sql.writer_lock import WriterLock

_locks: dict[str, threading.RLock] = {}
"""The lock of each database file's writers in this process, by real path."""

# A lock that a thread of the parent holds is never released in a child of a fork.
os.register_at_fork(after_in_child=_locks.clear)


class Queue:
    """The queues in which the writers of one file in this process wait for their turns."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        """Shared by all that writes to one file. It knows whose it is."""
        self.longest_wait_seconds = 0.0
        self.changes = 0
        """Raised when a turn begins and when it ends, and by a post in a caller's transaction.

        It tells own commits from those of other processes.
        """

    def join(self, path: str) -> None:
        """Queue with all others of this process that write to the same file.

        `path` is the file's real path.
        """
        self.lock = _locks.setdefault(path, self.lock)


class SQLiteWriterLock(WriterLock):
    """One turn.

    An exception from outside may come between any two lines: whether it has begun is for the lock
    to tell.
    """

    __slots__ = ("_lock", "_queue", "_wanted")

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        # Any: for `_is_owned`, which has no public name, and is asked by conditions.
        self._lock: Any = queue.lock
        self._wanted = False

    def begin(self) -> None:
        """See `WriterLock.begin`."""
        queue, lock = self._queue, self._lock
        if lock._is_owned():  # noqa: SLF001 -- see `__init__`
            # In a signal's handler, say. It would wait for the block that it interrupts.
            raise not_begun(
                sqlite3.OperationalError("database is locked by a writer of this thread")
            )
        self._wanted = True
        # The writer before may be one that waits for another process.
        if not lock.acquire(timeout=queue.longest_wait_seconds):
            raise not_begun(
                sqlite3.OperationalError("database is locked by a writer of this process")
            )
        queue.changes += 1

    def end(self) -> None:
        """See `WriterLock.end`."""
        if self._wanted and self._lock._is_owned():  # noqa: SLF001 -- see `__init__`
            self._queue.changes += 1
            self._lock.release()


def not_begun(failure: sqlite3.OperationalError) -> BaseException:
    """The error of a write transaction that could not begin."""
    return DBAPIError.instance("BEGIN IMMEDIATE", {}, failure, sqlite3.Error)


def is_busy(error: sqlite3.OperationalError | DBAPIError) -> bool:
    """Whether a lock was not had."""
    refused = error.orig if isinstance(error, DBAPIError) else error
    told = str(refused)  # an error of another kind may name a table, or anything
    return (
        isinstance(refused, sqlite3.OperationalError)
        and told.startswith("database ")
        and "locked" in told
    )
