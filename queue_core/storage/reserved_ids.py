"""Record ids taken from the database ahead of their rows, where it gives them out (PostgreSQL).

An entry whose id is known before its INSERT can enter the ledger first: the INSERT then needs no
transaction around it that keeps the row from being seen too early, and commits by itself. An entry
with an idempotency key takes the key by its id before it is inserted, too. Ids that are never used
leave gaps.

A server that took over from another, or was restored, may give the same ids out again. Sessions
don't outlive that, so that ids are forgotten as soon as any connection was opened since they were
taken, and after a minute.
"""

from __future__ import annotations

import time
from collections import deque
from functools import partial

from sqlalchemy import Connection

from queue_core.runtime.lock import Lock
from sql.database import Database
from sql.statements.entries import Statements

LARGEST_BLOCK = 1_000
"""Ids of one block at most. Each block has twice those of the one before."""
LONGEST_KEPT_SECONDS = 60.0
"""By the process's own clock: behind a proxy sessions may outlive a fail-over."""


class OutdatedIdsError(Exception):
    """A connection was opened since ids were taken ahead: they may be another's by now.

    Nothing was written.
    """


class ReservedIds:
    """The ids of one table that this process may use."""

    def __init__(self, database: Database, statements: Statements) -> None:
        self._database = database
        self._statements = statements
        self._lock = Lock()
        self._ids = deque[int]()
        self._block = 1
        self._opened, self._taken_at = 0, float("-inf")
        """The number of connections opened when the ids were taken, and the time of that."""

    def take(self, count: int, connection: Connection | None = None) -> tuple[list[int], int]:
        """`count` ids, ascending, and the number of connections that had been opened then.

        Once that number has grown, the ids are of no use, but in the transaction of the library
        `connection` on which they are taken, if one is given.

        No ids where a row's id comes from its INSERT, or where each use opens a connection.
        """
        if not (self._statements.capabilities.inserts_at_once and self._database.keeps_connections):
            return [], 0
        with self._lock:
            if self._may_be_anothers():
                self._ids.clear()
            if len(self._ids) < count:
                # A process that posts once should not leave a gap of a thousand.
                self._block = min(LARGEST_BLOCK, 2 * max(self._block, count))
                wanted = max(count, self._block)
                reserve = partial(self._reserve, wanted)
                self._ids.extend(
                    self._database.fetch(reserve) if connection is None else reserve(connection)
                )
            return [self._ids.popleft() for _ in range(count)], self._opened

    def _reserve(self, count: int, connection: Connection) -> list[int]:
        if self._opened != self._database.opened:  # for this very call, perhaps
            self._ids.clear()
        if not self._ids:
            self._taken_at = time.monotonic()
        self._opened = self._database.opened
        return self._statements.reserve(connection, count)

    def _may_be_anothers(self) -> bool:
        aged = time.monotonic() - self._taken_at > LONGEST_KEPT_SECONDS
        return aged or self._opened != self._database.opened

    def clear(self) -> None:
        """Use none of those that are left: a server that was restored may give them out again."""
        with self._lock:
            self._ids.clear()
