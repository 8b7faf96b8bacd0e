"""Hints of others' commits, heard in another thread as a process that waits for them does."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

from sql.database import Database
from sql.watching import Heard, Watch
from tests.contract.harness import BOUND_SECONDS


@contextmanager
def hearing(database: Database, watch: Watch) -> Iterator[queue.Queue[Heard]]:
    """Yield all hints so far that were not taken yet; the watch ends with the block."""
    heard = queue.Queue[Heard]()

    def listen() -> None:
        with closing(database.dialect.commits_of_others(database.engine, watch)) as hints:
            for hint in hints:
                heard.put(hint)

    thread = threading.Thread(target=listen)
    thread.start()
    try:
        yield heard
    finally:
        watch.bell.ring()
        thread.join(BOUND_SECONDS)
        watch.bell.close()
    assert not thread.is_alive()
