"""Transactions that write to a history of SQLite: one at a time, with the write lock."""

from __future__ import annotations

import time

from sql.settling import Ended, OpenDatabase

SHORTEST_SECONDS = 0.1
"""The wait for the write lock at least, also if the deadline has passed."""


def settled(database: OpenDatabase, ended: Ended) -> bool:
    """See `Dialect.settled`."""
    seconds = max(SHORTEST_SECONDS, ended.deadline - time.monotonic())
    # Another one, which waits for the lock for half of its statements' time.
    waiting = database.reopened(statement_timeout_seconds=2 * seconds)
    try:
        return waiting.has_written()
    finally:
        waiting.close()
