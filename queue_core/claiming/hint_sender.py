"""The sender of hints: it tells others of claimable entries.

Only hints: the poll finds the entries of a lost one. On PostgreSQL the poster's thread sends a
NOTIFY as soon as its commit has returned, and waits for nothing; hints too soon after the last one
are sent together later, by a thread. On MySQL and MariaDB the thread sends all of them, because it
waits for the server's answers.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from queue_core.model.lanes import ANY_NODE
from queue_core.runtime.lock import Lock
from queue_core.runtime.loop import Loop
from queue_core.storage.callers_connection import Borrowed
from queue_core.storage.transactions import Transactions
from sql.watching import Hint, Notifier

WINDOW_SECONDS, BUSY_WINDOW_SECONDS = 0.001, 0.01
"""Seconds from one NOTIFY to the next: at rest, and while many entries are posted (ADR 0007).

Each holds a lock of the whole server while it commits. With the longer pause, a process that posts
all the time reached 0.75 of the rate of the bare driver, without it 0.59 (ADR 0019).
"""
BUSY_ENTRIES, BUSY_SECONDS = 20, 0.02
"""The rate from which the longer pause holds, as entries in seconds: 1,000 a second.

Claimers find batches then anyway (ADR 0007).
"""
WAKE_SECONDS = 0.05
"""Seconds between two hints that look for idle processes and wake them, one by one (ADR 0007).

Those that woke look by themselves for longer.
"""
REOPEN_SECONDS = 1.0
"""Seconds until the next hint when its session was lost. No benchmark compares it with others."""
COMMIT_SECONDS = 0.01
"""The time that a COMMIT may take that was announced."""
IDLE_SECONDS = 60.0
"""Seconds that the thread pauses while nothing is to be told; a post wakes it before."""


def channel(table: str) -> str:
    """The channel of all who use a main table."""
    return f"stickybus_{table}"


class HintSender:
    """Tells other processes that there is something to claim, on the channel of a `table`."""

    def __init__(self, store: Transactions, table: str) -> None:
        self._store = store
        self._clock = store.clock
        capabilities = store.database.dialect.capabilities
        self._notifies = capabilities.notifies
        self._told_of = capabilities.notifies or capabilities.wakes_idle
        self._channel = channel(table)
        self._loop = Loop(f"{table}-notify", self.turn, store.clock)
        self.running = self._closed = False
        self._resting = False
        """The thread waits for the end of a window, and then tells of all: no need to wake it."""
        self._lock = Lock()
        self.notifier: Notifier | None = None
        self._sending = Lock()
        self.told = 0
        self._payloads = set[str]()
        self._busy = False
        self._counted = 0
        self._counted_since = self._next_at = float("-inf")

    def tell_inside(self, borrowed: Borrowed, payload: str = ANY_NODE) -> None:
        """Send a hint when the caller's transaction commits.

        Only PostgreSQL's transactions can; see `tell_after` for others.
        """
        if (hint := self.hint_inside(borrowed, payload)) is not None:
            self._store.database.dialect.notify(borrowed.connection, hint)
        self.tell_after(borrowed, payload)

    def tell_after(self, borrowed: Borrowed, payload: str = ANY_NODE) -> None:
        """Send a hint after the caller's transaction, where that can't do so at its commit.

        Nobody learns when a raw connection's transaction ends.
        """
        if not self._told_of or self._notifies:
            return
        if borrowed.announces:
            borrowed.when_ended(partial(self.tell, payload=payload, after_seconds=COMMIT_SECONDS))
        elif borrowed.autocommits:
            self.tell(payload=payload)

    def hint_inside(self, borrowed: Borrowed, payload: str) -> Hint | None:
        """The hint that the caller's transaction may tell when it commits.

        None in a two-phase transaction: the next poll finds its entries.
        """
        return None if borrowed.has_two_phases else Hint(self._channel, payload)

    def tell(
        self, entries: int = 1, payload: str = ANY_NODE, *, after_seconds: float = 0.0
    ) -> None:
        """Send a hint of that many committed entries; the payload says which. Default: any node's.

        `after_seconds`: they may be committed so much later. Does nothing on SQLite, whose
        processes see its file change.
        """
        if not self._told_of:
            return
        if after_seconds and not self.told:  # else those who go on telling would never be heard
            self._next_at = max(self._next_at, self._clock.monotonic() + after_seconds)
        self._payloads.add(payload)  # before the count, by which `_send` knows of it
        self.told += entries
        if not self.running:
            # Without a thread more: the entries are committed, and polls find them.
            with suppress(RuntimeError):
                self._start()
        if not self._resting and not (self._notifies and self._send()):
            self._loop.wake()

    def _start(self) -> None:
        with self._lock:
            if not (self.running or self._closed):
                self._loop.start()
                self.running = True

    def turn(self) -> float:
        """Send hints that could not be sent at once. One turn; returns seconds until the next."""
        # First: a thread that tells from here on sends by itself, or wakes this one.
        self._resting = False
        if not self.told:
            return IDLE_SECONDS
        pause = self._next_at - self._clock.monotonic()
        if pause <= 0:
            if self.notifier is None or not self.notifier.is_open:
                database = self._store.database
                self.notifier = database.dialect.notifier(database.engine, self._channel)
            if self._send():
                return IDLE_SECONDS
            pause = WINDOW_SECONDS
        self._resting = True
        return pause

    def _send(self) -> bool:
        """Send a hint of all that was told; False if it is too early, or can't be sent now."""
        if self._sending.is_mine():
            return False  # in a signal's handler, which interrupts it
        try:
            if not self._sending.acquire(blocking=False):
                return False
            now = self._clock.monotonic()
            if self.notifier is None or now < self._next_at:
                return False
            # Taken first: an entry that is committed while this is sent needs a hint of its own.
            told, self.told = self.told, 0
            payloads, self._payloads = self._payloads, set()
            if not self.notifier.notify(payloads):
                self._payloads |= payloads
                self.told += told
                return False
            self._counted += told
            seconds = now - self._counted_since
            if self._counted >= BUSY_ENTRIES or seconds >= BUSY_SECONDS:
                self._busy = self._counted * BUSY_SECONDS >= BUSY_ENTRIES * seconds
                self._counted, self._counted_since = 0, now
            self._next_at = now + self._window()
            return True
        finally:
            if self._sending.is_mine():
                self._sending.release()

    def _window(self) -> float:
        """Seconds from a hint to the next."""
        if self._notifies:
            return BUSY_WINDOW_SECONDS if self._busy else WINDOW_SECONDS
        open_ = self.notifier is not None and self.notifier.is_open
        return WAKE_SECONDS if open_ else REOPEN_SECONDS

    def stop(self) -> None:
        """End thread and session; unsent hints are sent first."""
        with self._lock:
            if not self.running:
                return
            self._loop.stop()
            self.running = False
            self._next_at = float("-inf")
            with suppress(Exception):  # it was only a hint
                self.turn()
            with self._sending:
                notifier, self.notifier = self.notifier, None
                if notifier is not None:
                    notifier.close()

    def close(self) -> None:
        """Stop, and tell nothing more: a caller's transaction may end when we are closed."""
        with self._lock:
            self._closed = True
        self.stop()
