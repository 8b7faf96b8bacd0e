"""Hears from other processes that there is something to claim.

These are only hints: the poll finds the entry of a lost hint. Where the database tells
nothing, the poll interval is the delay.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from typing import Protocol

from queue_core.claiming.hint_sender import channel
from queue_core.runtime.log import get_logger
from queue_core.storage.transactions import Transactions
from sql.watching import Watch

log = get_logger(__name__)

PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 1.0, 10.0
"""Seconds from an interruption of the watch to the next try. No benchmark compares them.

The pause doubles up to the longest while watches begin and do not last: what refuses them may stay.
"""
LASTING_SECONDS = 60.0
"""A watch that lasts longer works. If it ends after that, the log has a new warning."""


class Hearer(Protocol):
    """Claims the entries that other processes have committed."""

    def hear(self, payload: str) -> None:
        """Something was committed; the payload says where."""
        ...

    def wake(self, since: float) -> None:
        """Hear that something was committed before `since` (monotonic); it is not known where."""
        ...


class HintListener:
    """Tells the `hearer` of commits of other processes, on the channel of a `table`.

    `looks_often`: whether it looks often by itself just now.
    """

    def __init__(
        self,
        store: Transactions,
        table: str,
        hearer: Hearer,
        looks_often: Callable[[], bool] = lambda: False,
    ) -> None:
        self._store = store
        self._table = table
        self._hearer = hearer
        self._looks_often = looks_often
        self._watch: Watch | None = None
        self._heard = False
        """Whether the watch has begun."""
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start to listen, where the database tells anything."""
        capabilities = self._store.database.dialect.capabilities
        if not (capabilities.hears_commits or capabilities.wakes_idle):
            return
        watch = self._watch = Watch(
            channel(self._table), self._store.clock.monotonic, self._looks_often
        )
        thread = threading.Thread(
            target=self._surviving, args=(watch,), name=f"{self._table}-listen", daemon=True
        )
        thread.start()
        self._thread = thread  # one that could not start can't be joined

    def stop(self) -> None:
        """End the thread."""
        watch, thread = self._watch, self._thread
        self._watch = self._thread = None
        if watch is not None:
            watch.bell.ring()
            if thread is not None:
                thread.join()
            watch.bell.close()

    def _surviving(self, watch: Watch) -> None:
        """Listen until the bell rings; the poll goes on while that can't be done."""
        pause, warned = PAUSE_SECONDS, False
        while not watch.bell.rung:
            began, self._heard = watch.monotonic(), False
            try:
                self._listen(watch)
            except Exception as error:  # noqa: BLE001 -- hints come back with the database
                lasted = watch.monotonic() - began >= LASTING_SECONDS
                if lasted or not warned:
                    log.warning(
                        "hints_interrupted",
                        table=self._table,
                        error_type=type(error).__name__,
                    )
                warned = True
                refused = self._heard and not lasted
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS) if refused else PAUSE_SECONDS
            watch.bell.wait(pause)

    def _listen(self, watch: Watch) -> None:
        database = self._store.database
        with closing(database.dialect.commits_of_others(database.engine, watch)) as hints:
            for heard in hints:
                self._heard = True
                if heard.payload is None:
                    self._hearer.wake(heard.at)
                else:
                    self._hearer.hear(heard.payload)
