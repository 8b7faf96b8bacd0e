"""The events of an in-memory bus: those that wait or run, and those that have ended."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence

from sqlalchemy import Connection

from bus.memory_entries import as_ended, run_again
from queue_core.errors import LifecycleError
from queue_core.model.entry import Entry
from queue_core.model.outcome import Outcome, Released, Retried
from queue_core.model.states import States
from queue_core.model.transit import Transit
from queue_core.running.handler_pool import HandlerPool
from queue_core.runtime.clock import Clock
from queue_core.storage.filter import state_values


class MemoryEvents:
    """Keeps them, and hands them to the pool of the present start.

    Args:
        clock: The time of retries.
        new_pool: Makes the pool of a start.
    """

    def __init__(self, clock: Clock, new_pool: Callable[[], HandlerPool]) -> None:
        self._clock = clock
        self._new_pool = new_pool
        self._live: dict[int, Entry] = {}
        self._submitted = set[int]()
        """Ids of those in a pool: the present one, or a former one whose handlers still run."""
        self._ended: list[Entry] = []
        self._changed = threading.Condition()
        self._running = False
        self._pool: HandlerPool | None = None
        """That of the last start."""

    # -- life -------------------------------------------------------------------------------------

    def start(self) -> None:
        """Deliver the present events, and later ones from now on.

        Raises LifecycleError if they are delivered already.
        """
        pool = self._new_pool()
        with self._changed:
            if self._running:
                raise LifecycleError("the in-memory bus runs already")
            try:
                pool.start()
            except BaseException:  # no thread more, mostly
                pool.stop(0)
                raise
            self._pool, self._running = pool, True
            self._submit(self._unsubmitted())

    def stop(self, timeout_seconds: float) -> bool:
        """Deliver nothing more; False if handlers still ran after that time."""
        with self._changed:
            if not self._running or self._pool is None:
                return True
            self._running, pool = False, self._pool
        ended = pool.stop(timeout_seconds)
        # Runs that wait for threads whose handlers still run: the next start must not wait for
        # these.
        pool.take_left(timeout_seconds)
        return ended

    def wait_until_idle(self, timeout_seconds: float) -> None:
        """Block until each has ended. Raises TimeoutError."""
        with self._changed:
            if not self._changed.wait_for(lambda: not self._live, timeout_seconds):
                raise TimeoutError(
                    f"{len(self._live)} events have not ended after {timeout_seconds} s"
                )

    # -- delivery ---------------------------------------------------------------------------------

    def deliver(self, entries: Sequence[Entry]) -> None:
        """Add entries, and hand them to the pool if it runs."""
        with self._changed:
            self._live.update((entry.record_id, entry) for entry in entries)
            self._submit(entries)

    def _unsubmitted(self) -> list[Entry]:
        return [entry for entry in self._live.values() if entry.record_id not in self._submitted]

    def _submit(self, entries: Sequence[Entry]) -> None:
        """Hand entries to the pool that runs; else they wait for the next start.

        For holders of the lock.
        """
        if self._running and self._pool is not None:
            self._submitted.update(entry.record_id for entry in entries)
            self._pool.submit(Transit([*entries]))

    def complete(self, outcome: Outcome) -> None:
        """Take an entry as its run has left it."""
        entry = outcome.entry
        with self._changed:
            self._submitted.discard(entry.record_id)
            match outcome:
                case Retried():
                    again = run_again(outcome, self._clock.now())
                    self._live[entry.record_id] = again
                    self._submit([again])
                # By a pool that has stopped: for the next one, which may run already.
                case Released():
                    self._submit([entry])
                case _:
                    self._live.pop(entry.record_id, None)
                    self._ended.append(as_ended(outcome))
                    self._changed.notify_all()

    # -- reads ------------------------------------------------------------------------------------

    def size(self, queue_name: str, connection: Connection | None = None) -> int:
        """Events of the bus whose handlers do not run, for handlers that ask.

        There is no other queue.
        """
        running = () if self._pool is None else self._pool.runner.running()
        return max(0, len(self._live) - len(running))

    def live(self, states: States | None) -> list[Entry]:
        """Those that have not ended, by id; those in these states, if any are given."""
        with self._changed:
            return _of_states(self._live.values(), states)

    def ended(self, states: States | None) -> list[Entry]:
        """Those that have ended, likewise."""
        with self._changed:
            return _of_states(self._ended, states)

    def forget_ended(self) -> int:
        """Forget those that have ended; returns their number."""
        with self._changed:
            count = len(self._ended)
            self._ended.clear()
            return count


def _of_states(entries: Iterable[Entry], states: States | None) -> list[Entry]:
    wanted = None if states is None else state_values(states)
    found = [entry for entry in entries if wanted is None or entry.processing_state in wanted]
    return sorted(found, key=lambda entry: entry.record_id)
