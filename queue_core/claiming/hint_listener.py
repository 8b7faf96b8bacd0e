"""Hints from other processes that there is something to claim: LISTEN/NOTIFY on PostgreSQL, the file's version on SQLite.

Only hints: the poll finds whatever a lost hint was about. MySQL and MariaDB have nothing of the kind; there the poll
interval is the delay.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from queue_core.claiming.hint_sender import channel
from queue_core.model.entry import ANY_NODE
from queue_core.runtime.log import get_logger
from queue_core.storage.store import Store
from sql.postgresql import dialect as postgresql
from sql.sqlite import dialect as sqlite

log = get_logger(__name__)

LISTEN_SECONDS = 10.0
"""Longest wait for a notification; a stop ends it."""
BUSY_WATCH_SECONDS, IDLE_WATCH_SECONDS = 0.002, 0.007
"""Pauses between looks at an SQLite file: while others write to it, and when none has for a second."""
TICK_SECONDS = 0.1
"""More than a file system's clock takes from one time of a file to the next."""
BUSY_OWN_WAKE_SECONDS, OWN_WAKE_SECONDS = 0.004, 0.05
"""When this process wrote too, its own commit may be the reason of a change: looks are spared by this much."""


class Wakeup:
    """Tells of what other processes have committed that the node `owner` can claim.

    Calls `hint` with the lane if it is known, else `wake` with the time (monotonic) when they were committed already.
    """

    def __init__(
        self,
        store: Store,
        *,
        wake: Callable[[float], None],
        hint: Callable[[str], None],
        owner: Callable[[], str],
    ) -> None:
        self._store = store
        self._owner = owner
        self._wake = wake
        self._hint = hint
        self._channel = channel(store.config.table)
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._pipe: tuple[socket.socket, ...] = ()
        """Who waits for its first end is woken when the other is closed."""

    def start(self) -> None:
        """Start to listen."""
        watch = {"postgresql": self._listen, "sqlite": self._watch_file}.get(
            self._store.database.dialect.name
        )
        if watch is not None:
            self._stopping.clear()
            self._pipe = socket.socketpair()
            name = f"{self._store.config.table}-listen"
            thread = threading.Thread(target=self._surviving, args=(watch,), name=name, daemon=True)
            thread.start()
            self._thread = thread

    def stop(self) -> None:
        """End the thread."""
        if self._thread is not None:
            self._stopping.set()
            self._pipe[-1].close()
            self._thread.join()
            self._thread = None
        for end in self._pipe:
            end.close()

    def _surviving(self, watch: Callable[[], None]) -> None:
        """Run `watch` until it is stopped; the poll goes on while it can't."""
        while not self._stopping.is_set():
            try:
                watch()
            except Exception as error:  # noqa: BLE001 -- hints come back with the database
                log.warning(
                    "hints_interrupted", table=self._store.config.table, error_type=type(error).__name__
                )
            self._stopping.wait(1.0)

    def _listen(self) -> None:
        with postgresql.listening(
            self._store.database.engine, self._channel, self._pipe[0].fileno()
        ) as hints:
            self._wake(self._store.clock.monotonic())  # for what came while nobody listened
            while not self._stopping.is_set():
                for lane in set(hints(LISTEN_SECONDS)):
                    if lane in {ANY_NODE, self._owner()}:
                        self._hint(lane)

    def _watch_file(self) -> None:
        database, clock = self._store.database, self._store.clock
        dialect: Any = database.dialect
        with sqlite.data_version(database.engine) as version:
            seen, own = version(), dialect.commits
            changed_at = written_at = woken_at = seen_at = clock.monotonic()
            log_state = sqlite.log_state(database.engine)
            logged: tuple[int, int] | None = None
            wanted_since: float | None = None
            while not self._stopping.is_set():
                now = clock.monotonic()
                before, logged = logged, log_state()
                if logged != before:
                    written_at = now
                # The log's state is cheaper to ask for, but two commits within a tick may leave it the same.
                if now - written_at < TICK_SECONDS and (current := version()) != seen:
                    by_others = dialect.commits == own
                    seen, own, seen_at = current, dialect.commits, clock.monotonic()
                    if by_others:
                        changed_at, woken_at = now, float("-inf")
                    if wanted_since is None:
                        wanted_since = seen_at
                busy = now - changed_at < 1.0
                # An idle node's own beat is followed by a look of its own accord, more often than not.
                if wanted_since is not None:
                    spared = now - (woken_at if busy else wanted_since)
                    if spared > (BUSY_OWN_WAKE_SECONDS if busy else OWN_WAKE_SECONDS):
                        self._wake(seen_at)
                        woken_at, wanted_since = now, None
                # An event's wait with a time limit takes twice as much CPU.
                time.sleep(BUSY_WATCH_SECONDS if busy else IDLE_WATCH_SECONDS)
