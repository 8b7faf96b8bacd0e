"""Commits of others, seen by looks at an SQLite file every few milliseconds.

SQLite signals nothing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Engine

from sql.drivers.detached import detached
from sql.sqlite.file import real_path
from sql.watching import Heard, Watch

BUSY_WATCH_SECONDS, IDLE_WATCH_SECONDS = 0.002, 0.007
"""Pauses between looks at the file: while others write to it, and when none has for a second."""
TICK_SECONDS = 0.1
"""More than a file system's clock takes from one time of a file to the next."""
BUSY_OWN_WAKE_SECONDS, OWN_WAKE_SECONDS = 0.004, 0.05
"""The time for which a look is put off when this process wrote, too.

Its own commit may be the reason of the change.
"""


def commits_of_others(
    engine: Engine, watch: Watch, own_changes: Callable[[], int]
) -> Generator[Heard, None, None]:
    """See `Dialect.commits_of_others`.

    One hint comes first: others may have committed before the first look. `own_changes` is raised
    by each write transaction of this process.
    """
    monotonic, bell = watch.monotonic, watch.bell
    with data_version(engine) as version:
        seen, own = version(), own_changes()
        changed_at = written_at = woken_at = seen_at = monotonic()
        look = log_state(engine)
        logged: tuple[int, int] | None = None
        wanted_since: float | None = None
        yield Heard(seen_at)
        trusted = False
        while not bell.rung:
            now = monotonic()
            before, logged = logged, look()
            if logged != before:
                # Not `now`: the thread may have stood still since.
                written_at, trusted = monotonic(), False
            # The log's state is cheaper to ask for, but two commits within a tick may leave it the
            # same: it is trusted after one more look that came later than the tick.
            if not trusted:
                trusted = now - written_at >= TICK_SECONDS
                if (current := version()) != seen:
                    by_others = own_changes() == own
                    seen, own, seen_at = current, own_changes(), monotonic()
                    if by_others:
                        changed_at, woken_at = now, float("-inf")
                    if wanted_since is None:
                        wanted_since = seen_at
            busy = now - changed_at < 1.0
            # An idle node's own beat is mostly followed by a look without a hint.
            if wanted_since is not None:
                spared = now - (woken_at if busy else wanted_since)
                if spared > (BUSY_OWN_WAKE_SECONDS if busy else OWN_WAKE_SECONDS):
                    yield Heard(seen_at)
                    woken_at, wanted_since = now, None
            # An event's wait with a time limit takes twice as much CPU.
            time.sleep(BUSY_WATCH_SECONDS if busy else IDLE_WATCH_SECONDS)


@contextmanager
def data_version(engine: Engine) -> Iterator[Callable[[], int]]:
    """A function whose number changes when another connection has committed (4 us a call)."""
    driver: Any = detached(engine)
    try:
        yield lambda: driver.execute("PRAGMA data_version").fetchone()[0]
    finally:
        driver.close()


def log_state(engine: Engine) -> Callable[[], tuple[int, int]]:
    """A function that returns size and time of the write-ahead log (2 us a call).

    Nobody has committed since it returned the same, but for a commit within the same tick of the
    file system's clock.
    """
    path = f"{real_path(engine.url)}-wal"

    def state() -> tuple[int, int]:
        try:
            found = os.stat(path)  # noqa: PTH116 -- hundreds of times a second; a Path costs as much again
        except FileNotFoundError:
            return 0, 0
        return found.st_size, found.st_mtime_ns

    return state
