"""Runs handlers: a bounded pool of threads, one event loop for coroutines, serial handlers one call at a time.

Everything that a handler does wrong ends in an outcome, never in a dead thread. Nothing starts once
the lease under which its entry was claimed may have ended (`may_start`), not the second subscriber
of an entry either.
"""

from __future__ import annotations

import asyncio
import queue
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Protocol

from queue_core.errors import StickybusError
from queue_core.model.codec import Codecs
from queue_core.model.config import QueueConfig
from queue_core.model.entry import Entry, State
from queue_core.model.outcome import Outcome, Parked, Released, describe
from queue_core.running.coroutines import Coroutines
from queue_core.running.exactly_once import ExactlyOnce
from queue_core.running.run import (
    Handling,
    Run,
    finished,
    in_order,
    interrupted,
    outcome_of,
    runs_now,
    waiting,
)
from queue_core.running.serial import SerialGate
from queue_core.running.subscriber import Router, Subscriber, context_of
from queue_core.runtime.clock import Clock
from queue_core.runtime.log import get_logger

log = get_logger(__name__)


class Leases(Protocol):
    """Knows whether a lease holds."""

    def may_start(self, lease: int) -> bool:
        """Whether what was claimed under `lease` may start now."""
        ...


class Waits(Protocol):
    """Counts entries that wait for a serial handler and hold no thread."""

    def waits(self, record_id: int, *, no_longer: bool = False) -> None:
        """Called under the gate's lock, so that it hears of begin and end in order."""
        ...


class Dispatcher:
    """The pool of one bus or service.

    `complete` receives each run's outcome, in the thread that ran it.
    """

    def __init__(
        self,
        config: QueueConfig,
        clock: Clock,
        codecs: Codecs,
        router: Router,
        *,
        complete: Callable[[Outcome], None],
        leases: Leases,
        waits: Waits | None = None,
        exactly_once: ExactlyOnce | None = None,
    ) -> None:
        self._config = config
        self._clock = clock
        self._codecs = codecs
        self._router = router
        self._exactly_once = exactly_once
        self._may_start = leases.may_start
        self._complete = complete
        self._waits = waits
        self._runs: queue.SimpleQueue[Run | Callable[[], None] | None] = queue.SimpleQueue()
        self._resumed = deque[Run]()
        self._threads: list[threading.Thread] = []
        self._running: dict[int, tuple[Run, Subscriber, float]] = {}
        self._coroutines = Coroutines(f"{config.table}-coroutines")
        self._accepting = False

    # -- life ---------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the handler threads."""
        self._accepting = True
        for number in range(self._config.handler_threads):
            thread = threading.Thread(
                target=self._work, name=f"{self._config.table}-handler-{number}", daemon=True
            )
            thread.start()
            self._threads.append(thread)

    def stop(self, timeout_seconds: float) -> bool:
        """Start nothing more, wait for running handlers; what was not started completes as Released.

        False if handlers still ran after `timeout_seconds`. Coroutines are cancelled then, which is
        no failure of theirs; functions can't be stopped, their outcomes complete when they end.
        """
        self._accepting = False
        for _ in self._threads:
            self._runs.put(None)
        deadline = self._clock.monotonic() + timeout_seconds
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline - self._clock.monotonic()))
        ended = not any(
            thread.is_alive()
            for thread in self._threads
            if thread is not threading.current_thread()
        )
        self._threads.clear()
        self._coroutines.stop()
        return ended

    def submit(
        self, entries: Iterable[Entry], lease: int = 0, taken: list[None] | None = None
    ) -> None:
        """Hand entries over to the pool, in order.

        `lease` is the one under which they were claimed.

        `taken` grows by one for each that the pool has, whatever exception comes.
        """
        runs = list[Run]()
        taken = [] if taken is None else taken
        try:
            self._expect(entries, lease, runs)
            # In one call, which no signal cuts in two.
            taken.extend(map(self._runs.put, runs))
        except BaseException:
            for run in runs[len(taken) :]:
                if run.place is not None:
                    run.place.pass_on(run)
            raise

    def _expect(self, entries: Iterable[Entry], lease: int, runs: list[Run]) -> None:
        """Make `runs` of entries, and keep their places."""
        runs += [Run(entry, self, lease) for entry in entries]
        types = {(run.entry.queue_name, run.entry.class_name) for run in runs}
        places = {key: place for key in types if (place := self._place(*key)) is not None}
        for run in runs if places else ():
            run.place = places.get((run.entry.queue_name, run.entry.class_name))
            if run.place is not None:
                run.place.expect(run)

    def _place(self, queue_name: str, class_name: str) -> SerialGate | None:
        """Where entries of a type are to come in the order of their submission."""
        try:
            subscribers = self._router.subscribers(queue_name, class_name)
        except StickybusError:
            return None  # it ends the run as well
        return in_order(subscribers)[0].gate if subscribers else None

    def call(self, task: Callable[[], None]) -> None:
        """Run a hook on the pool."""
        self._runs.put(task)

    def run_submitted(self) -> None:
        """Run in the caller's thread what was submitted so far, instead of the pool (for the test kit)."""
        self._accepting = True
        self._coroutines.reopen()
        self._take_submitted()

    def take_left(self, timeout_seconds: float) -> None:
        """After a stop: call the hooks that came too late for the pool, and give back runs; no handler is called.

        In a thread of their own: one that hangs, or waits for the caller, keeps that no longer than
        `timeout_seconds`.
        """
        if self._runs.empty():
            return
        thread = threading.Thread(
            target=self._take_submitted, name=f"{self._config.table}-last-hooks", daemon=True
        )
        thread.start()
        thread.join(timeout_seconds)

    def _take_submitted(self) -> None:
        for _ in range(self._runs.qsize()):
            try:
                task = self._runs.get_nowait()
            except queue.Empty:
                return
            if task is None:
                self._runs.put(None)  # for a thread whose handler still runs
            self._take(task)

    def running(self) -> list[Entry]:
        """The entries whose handlers run now, or have ended without an outcome yet; not those taken from their handlers."""
        return [run.entry for run, _, _ in list(self._running.values()) if not run.cut]

    def running_longer_than(self, seconds: float) -> list[Handling]:
        """Handlers that have run longer, or longer than their own limit."""
        now, found = self._clock.monotonic(), list[Handling]()
        for ident, (run, subscriber, since) in list(self._running.items()):
            if now - since > min(seconds, subscriber.max_run_seconds or seconds):
                frame = sys._current_frames().get(ident)  # noqa: SLF001 -- the documented way
                stack = "".join(traceback.format_stack(frame)) if frame else ""
                found.append(Handling(run, subscriber, now - since, stack))
        return found

    def cut(self, handling: Handling) -> Outcome:
        """The outcome of a run whose handler is past its `max_run_seconds`: failed, as by a TimeoutError."""
        handling.run.cut = True
        run = Run(handling.entry, self, handling.run.lease)
        run.started_date, run.alone = handling.run.started_date, handling.run.alone
        run.progress = dict(handling.run.progress)
        limit = handling.subscriber.max_run_seconds
        run.errors = {
            **handling.run.errors,
            handling.subscriber: TimeoutError(f"ran longer than {limit} s"),
        }
        return outcome_of(run, self._config.retry, self._clock)

    # -- one run ------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while (run := self._runs.get()) is not None:
            self._take(run)
            while (
                self._resumed
            ):  # else each call of a serial handler would wait for all that is in the queue
                self._go_on()

    def _take(self, run: Run | Callable[[], None] | None) -> None:
        if isinstance(run, Run):
            try:
                self._advance(run)
            except BaseException as error:  # noqa: BLE001 -- of the user's other code: a policy, a codec, a log's sink
                self._complete(finished(run, State.FAILED, self._clock, last_error=describe(error)))
            finally:
                # After its outcome, so that a stop finds it with one or the other.
                self._running.pop(threading.get_ident(), None)
        elif run is not None:
            try:
                run()
            except BaseException as error:
                log.exception("hook_failed", error_type=type(error).__name__)

    def _advance(self, run: Run) -> None:
        """Run an entry's subscribers one after the other, as far as serial ones have their turn."""
        if not run.opened and not (
            self._open(run) if run.place is None else self._open_in_place(run)
        ):
            return
        while run.pending:
            subscriber = run.pending[0]
            if subscriber.gate is not None and not subscriber.gate.enter(run):
                return
            called = False
            try:
                called = self._call(run, subscriber)
            finally:
                if subscriber.gate is not None:
                    subscriber.gate.pass_on(run)
            if not called:
                self._complete(interrupted(run, self._config.retry, self._clock))
                return
            run.pending.pop(0)
            if run.ended:
                return
        self._complete(outcome_of(run, self._config.retry, self._clock))

    def _open_in_place(self, run: Run) -> bool:
        """Open a run that keeps a place, which is given up if it has nothing to do there after all."""
        stays = False
        try:
            opened = self._open(run)
            stays = opened and bool(run.pending) and run.pending[0].gate is run.place
        finally:
            if run.place is not None and not stays:
                run.place.pass_on(run)
        return opened

    @property
    def accepting(self) -> bool:
        """Whether it starts what is submitted."""
        return self._accepting

    def waits(self, run: Run, *, no_longer: bool = False) -> None:
        """A run has begun to wait at a serial handler's gate, or has come through."""
        if self._waits is not None:
            self._waits.waits(run.entry.record_id, no_longer=no_longer)

    def resume(self, run: Run) -> bool:
        """Go on with a run whose turn at a serial handler has come; False if this pool has stopped."""
        if self._accepting:
            self._resumed.append(run)
            self._runs.put(self._go_on)
        else:
            self._complete(interrupted(run, self._config.retry, self._clock))
        return self._accepting

    def _go_on(self) -> None:
        with suppress(IndexError):
            self._take(self._resumed.popleft())

    def _may_call(self, run: Run) -> bool:
        """Whether its next subscriber may start.

        A stop lets runs that have begun come to their end.
        """
        # Once a stop waits no longer, what has begun calls no further subscriber either.
        goes_on = self._accepting or (run.handler_called and not self._coroutines.over)
        return goes_on and not run.cut and self._may_start(run.lease)

    def _open(self, run: Run) -> bool:
        """Decide whether a run starts, decode its event, and find who handles it."""
        entry = run.entry
        run.started_date = self._clock.now()
        if not self._accepting:
            self._complete(Released(entry=entry))
            return False
        try:
            subscribers = self._router.subscribers(entry.queue_name, entry.class_name)
            if subscribers is None:
                self._complete(Parked(entry=entry))
                return False
            self._read(run, subscribers)
        except StickybusError as error:
            self._complete(finished(run, State.FAILED, self._clock, last_error=describe(error)))
            return False
        run.opened = True
        return True

    def _read(self, run: Run, subscribers: Sequence[Subscriber]) -> None:
        """Make of a row what handlers get.

        Raises PayloadError, and ConfigurationError for a name of two types.
        """
        entry = run.entry
        if entry.subscribers_done:
            run.progress = entry.progress
        run.event = self._codecs.decode(entry)
        if entry.headers:
            _ = entry.captured
        # Of a first run all do.
        run.pending = (
            [one for one in subscribers if runs_now(run, one)] if run.progress else [*subscribers]
        )
        run.alone = len(subscribers) == 1
        if not run.alone:
            run.pending = in_order(run.pending)

    def _call(self, run: Run, subscriber: Subscriber) -> bool:
        """Call a subscriber; False if it may not start, or a stop has cancelled it, which says nothing about it."""
        self._running[threading.get_ident()] = (run, subscriber, self._clock.monotonic())
        # Only now: a stop that waits no longer looks at what runs after it has said that nothing
        # more may start.
        if not self._may_call(run):
            return False
        run.handler_called = True
        try:
            if subscriber.exactly_once:
                self._call_exactly_once(run, subscriber)
            else:
                arguments = (
                    (run.event, context_of(run.entry)) if subscriber.takes_context else (run.event,)
                )
                if subscriber.is_async:
                    self._coroutines.call(partial(subscriber.handler, *arguments))
                else:
                    subscriber.handler(*arguments)
                run.progress[subscriber.name] = True
        except BaseException as error:  # noqa: BLE001 -- SystemExit too: a handler must not end its thread
            if (
                self._coroutines.over
                and subscriber.is_async
                and isinstance(error, asyncio.CancelledError)
            ):
                return False
            run.errors[subscriber] = error
        return True

    def _call_exactly_once(self, run: Run, subscriber: Subscriber) -> None:
        if self._exactly_once is None:
            raise RuntimeError(f"{subscriber.name} is exactly_once, and there is no database here")
        outcome = self._exactly_once.call(
            run.entry,
            run.event,
            subscriber,
            started_date=run.started_date,
            progress={**run.progress, subscriber.name: True},
            last=len(run.pending) == 1 and not run.errors and not waiting(run),
            may_call=lambda: self._may_call(run),
        )
        run.progress[subscriber.name] = True
        if outcome is not None:
            run.ended = True
            self._complete(outcome)
