"""Record ids taken from the database ahead of their rows, where it gives them out (PostgreSQL).

An entry whose id is known before its INSERT can enter the ledger first: the INSERT then needs no transaction around
it that keeps the row from being seen too early, and commits by itself. Ids that are never used leave gaps.
"""

from __future__ import annotations

import threading
from collections import deque

from sql.database import Database
from sql.statements import Statements

LARGEST_BLOCK = 1_000


class ReservedIds:
    """The ids of one table that this process may use."""

    def __init__(self, database: Database, statements: Statements) -> None:
        self._database = database
        self._statements = statements
        self._lock = threading.Lock()
        self._ids = deque[int]()
        self._block = 1

    def take(self, count: int) -> list[int]:
        """`count` ids, ascending; none where a row's id comes from its INSERT."""
        if not self._statements.inserts_at_once:
            return []
        with self._lock:
            if len(self._ids) < count:
                # A process that posts once should not leave a gap of a thousand.
                self._block = min(LARGEST_BLOCK, 2 * max(self._block, count))
                wanted = max(count, self._block)
                self._ids.extend(
                    self._database.fetch(lambda connection: self._statements.reserve(connection, wanted))
                )
            return [self._ids.popleft() for _ in range(count)]

    def clear(self) -> None:
        """Use none of those that are left: a server that was restored may give them out again."""
        with self._lock:
            self._ids.clear()
