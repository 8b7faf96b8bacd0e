"""The worker of a work queue."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from prometheus_client import CollectorRegistry

from queue_core.errors import LifecycleError
from queue_core.model.retry import RetryPolicy
from queue_core.model.retry_policies import ExponentialRetries
from queue_core.runtime.arguments import not_allowed, of_kind, wait_seconds
from queue_core.runtime.lock import Lock
from work_queue import checks
from work_queue.document import DocClaim
from work_queue.metrics import Metrics
from work_queue.task import Task
from work_queue.work_queue import WorkQueue
from work_queue.workers.loop import NAME_BYTES, Loop
from work_queue.workers.options import AnyEngine, Handler, Options


class Worker:
    """Claims tasks, runs a handler for each, and writes what it returns.

    The handler gets a `Job`. It returns an action or several. They are one modification, at the
    newest versions of its task and docs, which is written if nobody else has got these meanwhile.
    The task is deleted, and doc sets are released, unless the actions say otherwise; so None means
    that the task is done. While the handler runs, task and docs are renewed after two thirds of
    their lease. If the lease is lost, the handler is told, and nothing of it is written.

    A handler that raises is run again by the retry policy, and its task ends in the error queue
    when no run is left. `RetryLater`, `GiveUp`, `MoveTask`, `StopWorker` and `FailWorker` decide
    otherwise.

    Handlers run in threads, or, if they are coroutine functions, on the event loop, on which also
    the renewals run: they must not block it. `docs`, `error_queue` and the retry policy run in
    threads. Any number of workers may share queues.

    Args:
        work: Where the tasks are. Each handler that runs claims under a name of its own: that of
            the work queue's claimant, at most 47 bytes here, "#" and a random part.
        handler: A function, or a coroutine function, that takes a `Job`.
        queues: From which it claims, at least one.
        docs: Which doc sets a task needs: they are claimed for it before the handler runs. If
            somebody holds one, the task comes back after a second. No coroutine function. Default:
            none.
        lease_seconds: The lease of a claim, and of a renewal. Default: the work queue's.
        retry: When a failed task runs again. `Task.attempt` counts the failures. No `Circuit`.
            Default: `ExponentialRetries()`.
        max_attempts: After how many failures a task is moved to the error queue, whatever the
            policy or `RetryLater` says. Default: the policy decides.
        max_claims: A task that was claimed more often, without an end to its runs, is moved to the
            error queue: it may kill its workers. None: any number. Default: 5.
        error_queue: Where failed tasks go, none of `queues`, or a function of a queue's name that
            tells it. Default: the task's queue and `/err`, which also takes over if the function
            raises, or tells the queue itself.
        max_run_seconds: A run that takes longer, in seconds, `docs` included, has failed. A
            function goes on in its thread, since it can't be stopped, and its result is not
            written. None: no limit. Default: 300.
        concurrency: How many handlers run at a time. Default: 1.
        engine: An Engine, or an AsyncEngine for a coroutine function, of the same database: the
            handler's own SQL on `Job.connection`, or `Job.async_connection`, commits with what it
            returns, or not at all. If it has no connection within its pool's time-out, the task
            comes back after a second. None if the work queue is a service's.
        grace_seconds: How many seconds SIGTERM and SIGINT wait for running handlers. Default: 30.
        metrics_registry: Where metrics go. Default: prometheus-client's own registry.

    Raises:
        ConfigurationError: An argument is not allowed.
        InvalidRequestError: A queue's name or the lease is not allowed.

    Example:
        >>> def send(job: Job):
        ...     print("mail to", job.task.value["to"])
        ...     return Insert(queue="sent", value=job.task.value)
        >>> Worker(work, send, "mail", concurrency=4).run()
    """

    def __init__(
        self,
        work: WorkQueue,
        handler: Handler,
        *queues: str,
        docs: Callable[[Task], Iterable[DocClaim]] | None = None,
        lease_seconds: float | None = None,
        retry: RetryPolicy | None = None,
        max_attempts: int | None = None,
        max_claims: int | None = 5,
        error_queue: str | Callable[[str], str] | None = None,
        max_run_seconds: float | None = 300.0,
        concurrency: int = 1,
        engine: AnyEngine | None = None,
        grace_seconds: float = 30.0,
        metrics_registry: CollectorRegistry | None = None,
    ) -> None:
        of_kind(work, WorkQueue, key="work")
        if engine is not None and not work.takes_connections:
            raise not_allowed("engine", engine, "None: a service has transactions of its own")
        if len(work.claimant.encode()) > NAME_BYTES:
            raise not_allowed("claimant", work.claimant, f"at most {NAME_BYTES} bytes in a worker")
        checks.lease(lease_seconds, 0)
        self._work = work
        self._options = Options(
            handler=handler,
            queues=checks.queues(queues),
            docs=docs,
            lease_seconds=lease_seconds,
            retry=ExponentialRetries() if retry is None else retry,
            max_attempts=max_attempts,
            max_claims=max_claims,
            error_queue=error_queue,
            max_run_seconds=max_run_seconds,
            concurrency=concurrency,
            engine=engine,
            grace_seconds=grace_seconds,
            metrics=Metrics(metrics_registry),
        )
        self._lock = Lock()
        self._loop: Loop | None = None
        self._stopped = False

    def run(self, *, until_empty: bool = False, limit: int | None = None) -> None:
        """Claim and run, until `stop`, or SIGTERM or SIGINT if this is the main thread.

        Args:
            until_empty: Whether to return when no task is available and no handler runs. Tasks with
                a later date are not awaited, but those that this run put off, since others held
                their docs or all connections. At a service it needs the right `READ` of the
                queues, for their statistics. Default: False.
            limit: Return after this number of tasks, without those that are put off so. Default:
                any number.

        Raises:
            FailWorker: A handler has raised it. What it raises by `sys.exit()` passes likewise.
            LifecycleError: The worker runs already, or the work queue was closed, or an event loop
                runs in this thread: await `run_async`.
            InvalidRequestError: The limit is not allowed.
            UnauthenticatedError: The service does not know the caller.
            PermissionDeniedError: The caller lacks a right at the service.
        """
        if _in_event_loop():
            raise LifecycleError(
                "an event loop runs in this thread, and run() would block it. Nothing was claimed. "
                "Write `await worker.run_async()`."
            )
        with self._signals():
            asyncio.run(self.run_async(until_empty=until_empty, limit=limit))

    async def run_async(self, *, until_empty: bool = False, limit: int | None = None) -> None:
        """Awaitable twin of `run`, which leaves signals alone.

        If it is cancelled, nothing more is written, and the ends of leases decide.
        """
        bound = None if limit is None else checks.limit(limit)
        loop = Loop(self._work, self._options, until_empty=until_empty, limit=bound)
        with self._lock:
            if self._loop is not None:
                raise LifecycleError("the worker runs already. Make another one.")
            if self._stopped:
                return
            self._loop = loop
        try:
            await loop.turn()
        finally:
            with self._lock:
                self._loop = None

    def stop(self, timeout_seconds: float | None = None) -> None:
        """Claim nothing more, and let `run` return when the running handlers have ended.

        It does not wait, and may be called anywhere, also in a handler. A worker that was stopped
        stays so.

        Args:
            timeout_seconds: 0 or more. After this time the tasks of handlers that still run are
                given back, and what these return is not written. Default: wait for ever.

        Raises:
            ConfigurationError: The time is not allowed.
        """
        wait = (
            None
            if timeout_seconds is None
            else wait_seconds(timeout_seconds, key="timeout_seconds")
        )
        with self._lock:
            self._stopped = True
            if self._loop is not None:
                self._loop.stop_soon(wait)

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Let SIGTERM and SIGINT stop it; the second one does what it does by default."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def stop(number: int, _frame: FrameType | None) -> None:
            signal.signal(number, signal.SIG_DFL)
            self.stop(self._options.grace_seconds)

        before: dict[signal.Signals, Any] = {
            number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
