"""The wait for a lock that another process has."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from typing import TypeVar

from sqlalchemy.exc import DBAPIError

from sql.sqlite.writers import is_busy

T = TypeVar("T")

SHORTEST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.0001, 0.002
"""Between tries for the write lock while another process has it."""


def patiently(run: Callable[[], T], longest_seconds: float) -> T:
    """Run a statement that takes a lock, again every 2 ms or faster.

    SQLite's own waiting has pauses of up to 100 ms.

    There is no signal for a lock of another process to wait on. A statement that did not get it
    has done nothing.
    """
    pause, deadline = SHORTEST_PAUSE_SECONDS, None
    while True:
        try:
            return run()
        except (sqlite3.OperationalError, DBAPIError) as error:
            now = time.monotonic()
            deadline = deadline or now + longest_seconds
            if not is_busy(error) or now >= deadline:
                raise
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
