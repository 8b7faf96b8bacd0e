"""The bounded pool of threads that run handlers, of one bus or service and one start."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from itertools import groupby
from typing import Protocol, TypeAlias

from queue_core.errors import StickybusError
from queue_core.model.config import QueueConfig
from queue_core.model.entry import has_head_start
from queue_core.model.transit import Transit
from queue_core.running.run import Run, in_order
from queue_core.running.runner import Runner
from queue_core.running.serial import SerialGate
from queue_core.running.subscriber import Router
from queue_core.runtime.clock import Clock
from queue_core.runtime.log import get_logger

log = get_logger(__name__)

Task: TypeAlias = Run | Callable[[], None]
"""A run, or a hook to be called."""


class Waits(Protocol):
    """The pool tells it which entries wait for a serial handler.

    Such an entry holds no thread, so that others may be claimed in its place.
    """

    def begins_to_wait(self, record_id: int) -> None:
        """An entry begins to wait.

        The gate calls this and `waits_no_longer` under its lock, so that the begin comes before the
        end.
        """
        ...

    def waits_no_longer(self, record_id: int) -> None:
        """The turn of an entry that waited has come."""
        ...


def _has_head_start(run: Run) -> bool:
    return has_head_start(run.entry)


class HandlerPool:
    """Its threads give submitted entries to the `runner`, in order.

    An entry with a head start goes first: a thread takes it after its present run, in turns with
    others.
    """

    def __init__(
        self,
        config: QueueConfig,
        clock: Clock,
        router: Router,
        runner: Runner,
        waits: Waits | None = None,
    ) -> None:
        self._table = config.table
        self._thread_count = config.handler_threads
        self._clock = clock
        self._router = router
        self.runner = runner
        self._waits = waits
        self.tasks: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
        """Submitted entries, in order. None ends the thread that gets it."""
        self._with_head_start: queue.SimpleQueue[Run] = queue.SimpleQueue()
        """Entries that go first. Others run in turns with them, on each thread."""
        self._resumed = deque[Run]()
        self._threads: list[threading.Thread] = []

    # -- life -------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the handler threads."""
        self.runner.accepting = True
        for number in range(self._thread_count):
            thread = threading.Thread(
                target=self._work, name=f"{self._table}-handler-{number}", daemon=True
            )
            thread.start()
            self._threads.append(thread)

    def stop(self, timeout_seconds: float) -> bool:
        """Start nothing more, wait for running handlers, and release entries that were not started.

        False if handlers still ran after `timeout_seconds`. Coroutines are cancelled then, which is
        no failure; functions can't be stopped, their outcomes complete when they end.
        """
        self.runner.accepting = False
        for _ in self._threads:
            self.tasks.put(None)
        deadline = self._clock.monotonic() + timeout_seconds
        others = [one for one in self._threads if one is not threading.current_thread()]
        for thread in others:
            thread.join(max(0.0, deadline - self._clock.monotonic()))
        ended = not any(thread.is_alive() for thread in others)
        self._threads.clear()
        self.runner.cancel_coroutines()
        return ended

    def run_submitted(self) -> None:
        """Run the entries submitted so far in the caller's thread; the test kit has no other."""
        self.runner.reopen()
        self._take_submitted()

    def take_left(self, timeout_seconds: float) -> None:
        """Call the hooks that came too late for a stopped pool, and give back runs.

        No handler is called. It happens in another thread: a hook that hangs, or waits for the
        caller, keeps the caller no longer than `timeout_seconds`.
        """
        if self.tasks.empty():
            return
        thread = threading.Thread(
            target=self._take_submitted, name=f"{self._table}-last-hooks", daemon=True
        )
        thread.start()
        thread.join(timeout_seconds)

    # -- submission -------------------------------------------------------------------------------

    def submit(self, transit: Transit, epoch: int = 0) -> None:
        """Run the entries that are `ready` in `transit` and not submitted yet, in order.

        `epoch` is the node's when the entries were claimed.
        """
        before = len(transit.submitted)
        runs = [Run(entry, self, epoch) for entry in transit.ready[before:]]
        # Mostly none has a head start, so that a call for each is saved. Not in the `try`: Python
        # 3.14 guards a loop that ends with a condition not everywhere.
        first = [run for run in runs if run.entry.effective_date < run.entry.created_date]
        try:
            self._keep_places(runs)
            if first:
                for goes_first, some in groupby(runs, key=_has_head_start):
                    self._put(list(some), transit, goes_first=goes_first)
            else:
                self._put(runs, transit, goes_first=False)
        except BaseException:
            for run in runs[len(transit.submitted) - before :]:
                if run.place is not None:
                    run.place.pass_on(run)
            raise

    def _put(self, runs: list[Run], transit: Transit, *, goes_first: bool) -> None:
        # In one call, which no signal cuts in two.
        if not goes_first:
            transit.submitted.extend(map(self.tasks.put, runs))
            return
        try:
            transit.submitted.extend(map(self._with_head_start.put, runs))
        finally:
            for _ in runs:  # for threads that have nothing to do
                self.tasks.put(self._take_with_head_start)

    def call(self, hook: Callable[[], None]) -> None:
        """Call a hook on the pool."""
        self.tasks.put(hook)

    def _keep_places(self, runs: list[Run]) -> None:
        """Let serial handlers expect runs in this order."""
        types = {(run.entry.queue_name, run.entry.class_name) for run in runs}
        places = {key: place for key in types if (place := self._place(*key)) is not None}
        for run in runs if places else ():
            run.place = places.get((run.entry.queue_name, run.entry.class_name))
            if run.place is not None:
                run.place.expect(run)

    def _place(self, queue_name: str, class_name: str) -> SerialGate | None:
        """The gate to which the runs of a type come first, if their first handler is serial."""
        try:
            subscribers = self._router.subscribers(queue_name, class_name)
        except StickybusError:
            return None  # it ends the run as well
        return in_order(subscribers)[0].gate if subscribers else None

    # -- threads ----------------------------------------------------------------------------------

    def _work(self) -> None:
        while (task := self.tasks.get()) is not None:
            self.take(task)
            if not self._with_head_start.empty():
                self._take_with_head_start()
            # Else each call of a serial handler would wait for all that is in the queue.
            while self._resumed:
                self._go_on()

    def take(self, task: Task | None) -> None:
        """Run a task in the caller's thread."""
        if isinstance(task, Run):
            self.runner.advance(task)
        elif task is not None:
            try:
                task()
            except BaseException as error:
                log.exception("hook_failed", error_type=type(error).__name__)

    def _take_submitted(self) -> None:
        for _ in range(self.tasks.qsize()):
            try:
                task = self.tasks.get_nowait()
            except queue.Empty:
                return
            if task is None:
                self.tasks.put(None)  # for a thread whose handler still runs
            self.take(task)

    def _take_with_head_start(self) -> None:
        with suppress(queue.Empty):  # another thread was faster
            self.take(self._with_head_start.get_nowait())

    def _go_on(self) -> None:
        with suppress(IndexError):
            self.take(self._resumed.popleft())

    # -- questions of runs and gates --------------------------------------------------------------

    @property
    def accepting(self) -> bool:
        """Whether it starts submitted entries."""
        return self.runner.accepting

    def may_call(self, run: Run) -> bool:
        """See `Runner.may_call`."""
        return self.runner.may_call(run)

    def begins_to_wait(self, run: Run) -> None:
        """A run begins to wait at a serial handler's gate."""
        if self._waits is not None:
            self._waits.begins_to_wait(run.entry.record_id)

    def waits_no_longer(self, run: Run) -> None:
        """A run that waited at a serial handler's gate has come through."""
        if self._waits is not None:
            self._waits.waits_no_longer(run.entry.record_id)

    def resume(self, run: Run) -> bool:
        """Go on with a run whose turn at a serial handler has come.

        False if this pool has stopped.
        """
        accepting = self.accepting
        if accepting:
            self._resumed.append(run)
            self.tasks.put(self._go_on)
        else:
            self.runner.interrupt(run)
        return accepting
