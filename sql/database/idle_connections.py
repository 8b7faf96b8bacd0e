"""The idle connections of a pool."""

from __future__ import annotations

from queue import Empty, SimpleQueue

from sqlalchemy.pool import ConnectionPoolEntry
from sqlalchemy.util.queue import Empty as NoneIdleError
from sqlalchemy.util.queue import Full, QueueCommon


class IdleConnections(QueueCommon[ConnectionPoolEntry]):
    """First in, first out, as SQLAlchemy's own queue, in whose place it stands.

    That one has a lock, which code in Python takes and releases. An exception from a signal in the
    midst of this leaves it locked, and every other thread waits for a connection for ever. Here
    each step is one call in C.
    """

    def __init__(self, maxsize: int = 0, use_lifo: bool = False) -> None:  # noqa: FBT001, FBT002 -- SQLAlchemy's signature
        del use_lifo
        self.maxsize = maxsize
        self.use_lifo = False
        self._connections = SimpleQueue[ConnectionPoolEntry]()

    def qsize(self) -> int:
        """How many there are."""
        return self._connections.qsize()

    def empty(self) -> bool:
        """Whether there is none."""
        return self._connections.empty()

    def full(self) -> bool:
        """Whether no more are kept. Threads that ask at the same moment may keep some more."""
        return 0 < self.maxsize <= self._connections.qsize()

    def put(
        self,
        item: ConnectionPoolEntry,
        block: bool = True,  # noqa: FBT001, FBT002 -- SQLAlchemy's signature
        timeout: float | None = None,
    ) -> None:
        """Keep one. Raises Full at once if there are enough: nobody waits to give one back."""
        del block, timeout
        if self.full():
            raise Full
        self._connections.put(item)

    def get(self, block: bool = True, timeout: float | None = None) -> ConnectionPoolEntry:  # noqa: FBT001, FBT002 -- SQLAlchemy's signature
        """Take one, and wait for it if asked to. Raises SQLAlchemy's Empty if there is none."""
        try:
            return self._connections.get(block, timeout)
        except Empty:
            raise NoneIdleError from None
