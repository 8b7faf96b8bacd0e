"""Runs handlers: a bounded pool of threads, one event loop for coroutines, serial handlers one call at a time.

Everything that a handler does wrong ends in an outcome, never in a dead thread. Nothing starts once the lease under
which its entry was claimed may have ended (`may_start`), not the second subscriber of an entry either.
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
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

import msgspec

from queue_core.errors import StickybusError
from queue_core.model.codec import Codecs
from queue_core.model.config import QueueConfig
from queue_core.model.entry import Entry, Settled, State, Waiting
from queue_core.model.outcome import Finished, Outcome, Parked, Released, Retried, describe, given_up
from queue_core.model.retry import Failure, decide
from queue_core.running.exactly_once import ExactlyOnce
from queue_core.running.subscriber import Router, Subscriber, Turns, context_of
from queue_core.runtime.clock import Clock
from queue_core.runtime.lock import Lock
from queue_core.runtime.log import get_logger
from sql.statements.base import LARGEST_COUNT

log = get_logger(__name__)


_NOT_STARTED = datetime.max.replace(tzinfo=UTC)


class Run(msgspec.Struct, eq=False):
    """One entry on its way through its subscribers."""

    entry: Entry
    pool: Dispatcher
    lease: int
    started: bool = False
    started_date: datetime = _NOT_STARTED
    begun: bool = False
    cut: bool = False
    """Its entry was taken from it, for a handler that is past its time."""
    ended: bool = False
    event: Any = None
    pending: list[Subscriber] = msgspec.field(default_factory=list)
    place: Turns | None = None
    """Where it is expected, if a serial handler comes first."""
    settled: Settled = msgspec.field(default_factory=dict)
    alone: bool = True
    errors: dict[Subscriber, BaseException] = msgspec.field(default_factory=dict)

    def __repr__(self) -> str:
        return f"Run({self.entry!r})"  # without the event


@dataclass(frozen=True)
class Handling:
    """A handler at work: for how long, and where (its thread's stack)."""

    run: Run
    subscriber: Subscriber
    seconds: float
    stack: str

    @property
    def entry(self) -> Entry:
        """The entry that is handled."""
        return self.run.entry

    @property
    def key(self) -> tuple[int, int]:
        """Names this claim of the entry."""
        return self.entry.claim


def _no_one_counts(record_id: int, *, come: bool) -> None:
    """Nothing is claimed by how full the pool is."""


class Turning(Protocol):
    """Learns that an entry has begun to wait for a serial handler's turn, or that its turn has `come`."""

    def __call__(self, record_id: int, *, come: bool) -> None:
        """See the class. It is called under the turns' lock, so that it hears of both in order."""
        ...


class Dispatcher:
    """The pool of one bus or service.

    `complete` receives each run's outcome, in the thread that ran it; `turn` hears of waits for serial handlers.
    """

    def __init__(
        self,
        config: QueueConfig,
        clock: Clock,
        codecs: Codecs,
        router: Router,
        *,
        exactly_once: ExactlyOnce | None,
        may_start: Callable[[int], bool],
        complete: Callable[[Outcome], None],
        turn: Turning = _no_one_counts,
    ) -> None:
        self._config = config
        self._clock = clock
        self._codecs = codecs
        self._router = router
        self._exactly_once = exactly_once
        self._may_start = may_start
        self._complete = complete
        self._turn = turn
        self._runs: queue.SimpleQueue[Run | Callable[[], None] | None] = queue.SimpleQueue()
        self._resumed = deque[Run]()
        self._threads: list[threading.Thread] = []
        self._running: dict[int, tuple[Run, Subscriber, float]] = {}
        self._coroutines: asyncio.AbstractEventLoop | None = None
        self._coroutines_lock = Lock()
        self._accepting = False
        self._over = False
        """A stop waits no longer: what has begun calls no further subscriber either."""

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

        False if handlers still ran after `timeout_seconds`. Coroutines are cancelled then, which is no failure of theirs;
        functions can't be stopped, their outcomes complete when they end.
        """
        self._accepting = False
        for _ in self._threads:
            self._runs.put(None)
        deadline = self._clock.monotonic() + timeout_seconds
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline - self._clock.monotonic()))
        ended = not any(
            thread.is_alive() for thread in self._threads if thread is not threading.current_thread()
        )
        self._threads.clear()
        self._over = True
        with self._coroutines_lock:
            if self._coroutines is not None:
                self._coroutines.call_soon_threadsafe(self._coroutines.stop)
                self._coroutines = None
        return ended

    def submit(self, entries: Iterable[Entry], lease: int = 0, taken: list[None] | None = None) -> None:
        """Hand entries over to the pool, in order. `lease` is the one under which they were claimed.

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
                    _pass_on(run.place, run)
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

    def _place(self, queue_name: str, class_name: str) -> Turns | None:
        """Where entries of a type are to come in the order of their submission."""
        try:
            subscribers = self._router.subscribers(queue_name, class_name)
        except StickybusError:
            return None  # it ends the run as well
        return _in_order(subscribers)[0].turns if subscribers else None

    def call(self, task: Callable[[], None]) -> None:
        """Run a hook on the pool."""
        self._runs.put(task)

    def run_submitted(self) -> None:
        """Run in the caller's thread what was submitted so far, instead of the pool (for the test kit)."""
        self._accepting, self._over = True, False
        self._take_submitted()

    def take_left(self, timeout_seconds: float) -> None:
        """After a stop: call the hooks that came too late for the pool, and give back runs; no handler is called.

        In a thread of their own: one that hangs, or waits for the caller, keeps that no longer than `timeout_seconds`.
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
        run.settled = dict(handling.run.settled)
        limit = handling.subscriber.max_run_seconds
        run.errors = {**handling.run.errors, handling.subscriber: TimeoutError(f"ran longer than {limit} s")}
        return self._outcome(run)

    # -- one run ------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while (run := self._runs.get()) is not None:
            self._take(run)
            while self._resumed:  # else each call of a serial handler would wait for all that is in the queue
                self._go_on()

    def _take(self, run: Run | Callable[[], None] | None) -> None:
        if isinstance(run, Run):
            try:
                self._advance(run)
            except BaseException as error:  # noqa: BLE001 -- of the user's other code: a policy, a codec, a log's sink
                self._complete(self._finished(run, State.FAILED, run.entry.error_count, describe(error)))
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
        if not run.started and not (self._open(run) if run.place is None else self._open_in_place(run)):
            return
        while run.pending:
            subscriber = run.pending[0]
            if subscriber.turns is not None and not subscriber.turns.enter(run):
                return
            called = False
            try:
                called = self._call(run, subscriber)
            finally:
                if subscriber.turns is not None:
                    _pass_on(subscriber.turns, run)
            if not called:
                self._complete(self._interrupted(run))
                return
            run.pending.pop(0)
            if run.ended:
                return
        self._complete(self._outcome(run))

    def _open_in_place(self, run: Run) -> bool:
        """Open a run that keeps a place, which is given up if it has nothing to do there after all."""
        stays = False
        try:
            opened = self._open(run)
            stays = opened and bool(run.pending) and run.pending[0].turns is run.place
        finally:
            if run.place is not None and not stays:
                _pass_on(run.place, run)
        return opened

    @property
    def accepting(self) -> bool:
        """Whether it starts what is submitted."""
        return self._accepting

    def turn(self, run: Run, *, come: bool) -> None:
        """A run has begun to wait for its turn at a serial handler, or its turn has come."""
        self._turn(run.entry.record_id, come=come)

    def resume(self, run: Run) -> bool:
        """Go on with a run whose turn at a serial handler has come; False if this pool has stopped."""
        if self._accepting:
            self._resumed.append(run)
            self._runs.put(self._go_on)
        else:
            self._complete(self._interrupted(run))
        return self._accepting

    def _go_on(self) -> None:
        with suppress(IndexError):
            self._take(self._resumed.popleft())

    def _may_call(self, run: Run) -> bool:
        """Whether its next subscriber may start. A stop lets runs that have begun come to their end."""
        goes_on = self._accepting or (run.begun and not self._over)
        return goes_on and not run.cut and self._may_start(run.lease)

    def _interrupted(self, run: Run) -> Outcome:
        """What becomes of a run some of whose subscribers were not called: these are left to another one."""
        if not run.begun:
            return Released(entry=run.entry)
        outcome = self._outcome(run)
        if not isinstance(outcome, Finished):
            return outcome
        return Retried(
            entry=run.entry,
            at=outcome.finished_date,
            error_count=outcome.error_count,
            settled=run.settled,
            started_date=run.started_date,
        )

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
            self._complete(self._finished(run, State.FAILED, entry.error_count, describe(error)))
            return False
        run.started = True
        return True

    def _read(self, run: Run, subscribers: Sequence[Subscriber]) -> None:
        """Make of a row what handlers get. Raises PayloadError, and ConfigurationError for a name of two types."""
        entry = run.entry
        if entry.subscribers_done:
            run.settled = entry.settled
        run.event = self._codecs.decode(entry)
        if entry.headers:
            _ = entry.captured
        # Of a first run all do.
        run.pending = [one for one in subscribers if _runs_now(run, one)] if run.settled else [*subscribers]
        run.alone = len(subscribers) == 1
        if not run.alone:
            run.pending = _in_order(run.pending)

    def _call(self, run: Run, subscriber: Subscriber) -> bool:
        """Call a subscriber; False if it may not start, or a stop has cancelled it, which says nothing about it."""
        self._running[threading.get_ident()] = (run, subscriber, self._clock.monotonic())
        # Only now: a stop that waits no longer looks at what runs after it has said that nothing more may start.
        if not self._may_call(run):
            return False
        run.begun = True
        try:
            if subscriber.exactly_once:
                self._call_exactly_once(run, subscriber)
            else:
                arguments = (run.event, context_of(run.entry)) if subscriber.takes_context else (run.event,)
                if subscriber.is_async:
                    error = asyncio.run_coroutine_threadsafe(
                        _awaited(subscriber, arguments), self._loop()
                    ).result()
                    if error is not None:
                        raise error  # noqa: TRY301 -- the coroutine's, caught like a function's own
                else:
                    subscriber.handler(*arguments)
                run.settled[subscriber.name] = True
        except BaseException as error:  # noqa: BLE001 -- SystemExit too: a handler must not end its thread
            if self._over and subscriber.is_async and isinstance(error, asyncio.CancelledError):
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
            settled={**run.settled, subscriber.name: True},
            last=len(run.pending) == 1 and not run.errors and not _waiting(run),
            may_call=lambda: self._may_call(run),
        )
        run.settled[subscriber.name] = True
        if outcome is not None:
            run.ended = True
            self._complete(outcome)

    def _loop(self) -> asyncio.AbstractEventLoop:
        """The loop of coroutines. Raises CancelledError once a stop waits no longer."""
        with self._coroutines_lock:
            if self._over:
                raise asyncio.CancelledError
            if self._coroutines is None:
                runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
                loop = runner.get_loop()  # made here, not by whoever is first
                name = f"{self._config.table}-coroutines"
                threading.Thread(target=self._run_coroutines, args=(runner,), name=name, daemon=True).start()
                self._coroutines = loop
            return self._coroutines

    def _run_coroutines(self, runner: asyncio.Runner) -> None:
        # At its end handlers that a stop has not waited for are cancelled: they unwind, and free the threads that wait.
        with runner:
            loop, over = runner.get_loop(), False
            while not over:
                try:
                    loop.run_forever()  # until a stop; handlers may stop it, too
                except BaseException as error:  # SystemExit, by a task that a handler has left behind
                    log.exception("task_failed", error_type=type(error).__name__)
                with self._coroutines_lock:
                    over = self._coroutines is not loop

    # -- outcomes -----------------------------------------------------------------------------------------------

    def _outcome(self, run: Run) -> Outcome:
        entry = run.entry
        if not run.errors and _all_succeeded(run.settled):
            return self._finished(run, State.PROCESSED, entry.error_count, None)
        error_count = min(entry.error_count + bool(run.errors), LARGEST_COUNT)
        for subscriber, error in run.errors.items():
            run.settled[subscriber.name] = self._standing(run, subscriber, error)
        dates = [standing.due for standing in _waiting(run).values()]
        if dates:
            return Retried(
                entry=entry,
                at=min(dates),
                error_count=error_count,
                # A single subscriber's count and date are the entry's own.
                settled={} if run.alone else run.settled,
                started_date=run.started_date,
            )
        told = "\n".join(describe(error) for error in run.errors.values())
        reason = told or given_up(run.settled)
        return self._finished(run, State.FAILED if reason else State.PROCESSED, error_count, reason)

    def _standing(self, run: Run, subscriber: Subscriber, error: BaseException) -> bool | Waiting:
        """What a subscriber's failure means for it: when it runs again, or False for never."""
        entry, before = run.entry, run.settled.get(subscriber.name)
        counted = any(isinstance(standing, Waiting) for standing in entry.settled.values())
        if isinstance(before, Waiting):
            failures, due = before.failures, before.due
        else:
            failures, due = 0 if counted else entry.error_count, entry.effective_date
        failures = min(failures + 1, LARGEST_COUNT)
        policy = subscriber.retry or self._config.retry
        failure = Failure(error=error, error_count=failures, effective_date=due, now=self._clock.now())
        date = decide(policy, failure)
        log.warning(
            "handler_failed",
            record_id=entry.record_id,
            queue_name=entry.queue_name,
            class_name=entry.class_name,
            user_token=entry.user_token,
            subscriber=subscriber.name,
            error_type=type(error).__name__,
            error_count=failures,
            retry_date=date.isoformat() if date else None,
        )
        # Apart, and for who asks for it: a message, or a line of a traceback, may quote a payload.
        log.debug(
            "handler_error",
            record_id=entry.record_id,
            user_token=entry.user_token,
            subscriber=subscriber.name,
            exc_info=error,
        )
        return False if date is None else Waiting(failures, date)

    def _finished(self, run: Run, state: State, error_count: int, last_error: str | None) -> Finished:
        settled: Settled = {}
        if last_error or len(run.settled) > 1:
            # A subscriber may have gone while it waited for its retry.
            settled = {name: standing for name, standing in run.settled.items() if isinstance(standing, bool)}
        return Finished(
            entry=run.entry,
            state=state,
            started_date=run.started_date,
            finished_date=self._clock.now(),
            error_count=error_count,
            settled=settled if len(settled) > 1 or last_error else {},
            last_error=last_error,
            undelivered=state is State.PROCESSED and not run.settled,
        )


def _in_order(subscribers: Sequence[Subscriber]) -> list[Subscriber]:
    """Exactly-once handlers last: the last of them records the outcome in its own transaction."""
    if len(subscribers) < 2:  # noqa: PLR2004 -- as mostly, and the first one waits for it
        return [*subscribers]
    return sorted(subscribers, key=lambda subscriber: subscriber.exactly_once)


def _pass_on(turns: Turns, run: Run) -> None:
    """Leave a serial handler to who is next; those whose pool has stopped are given back meanwhile."""
    following = turns.leave(run)
    while following is not None and not following.pool.resume(following):
        following = turns.leave(following)


def _all_succeeded(settled: Settled) -> bool:
    for standing in settled.values():  # noqa: SIM110 -- for each entry: a generator costs twice as much
        if standing is not True:
            return False
    return True


def _runs_now(run: Run, subscriber: Subscriber) -> bool:
    standing = run.settled.get(subscriber.name)
    return standing is None or (isinstance(standing, Waiting) and standing.due <= run.started_date)


def _waiting(run: Run) -> dict[str, Waiting]:
    """The subscribers that failed and run again later: in this run, or in one before and not due yet."""
    failed = {subscriber.name for subscriber in run.errors}
    return {
        name: standing
        for name, standing in run.settled.items()
        if isinstance(standing, Waiting) and (name in failed or standing.due > run.started_date)
    }


async def _awaited(subscriber: Subscriber, arguments: tuple[Any, ...]) -> BaseException | None:
    try:
        await subscriber.handler(*arguments)
    except BaseException as error:  # noqa: BLE001 -- SystemExit would end the event loop
        return error
    return None
