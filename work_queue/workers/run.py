"""One run of a handler: under renewals, from the claim to what is written."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

from sqlalchemy.exc import DBAPIError

from queue_core.errors import InvalidRequestError, StickybusError
from queue_core.model.retry import GiveUp
from queue_core.runtime.awaitable import awaited
from queue_core.runtime.log import get_logger
from queue_core.runtime.own_threads import in_own_thread
from work_queue.faults import DependencyError
from work_queue.modification import Action, Change, Renew
from work_queue.task import Task
from work_queue.values import UNREAD
from work_queue.work_queue import WorkQueue
from work_queue.workers.failures import (
    IMPOSSIBLE_SECONDS,
    after_claims,
    after_failure,
    without_value,
)
from work_queue.workers.job import Job
from work_queue.workers.lease import (
    RENEWAL_PART,
    UNREACHED,
    Lease,
    LeaseClosedError,
    LeaseLostError,
    NotBegunError,
    NotWrittenError,
)
from work_queue.workers.options import Options, actions_of
from work_queue.workers.requests import FailWorker, StopWorker
from work_queue.workers.threads import EXITS, ExitedError, in_thread
from work_queue.workers.transaction import Transaction, check, has_one_writer, mark

CONTENTION_SECONDS = 1.0
"""About how long a task is put off whose doc sets somebody else holds, or the connection."""
CANCEL_SECONDS = 10.0
"""How long a cancelled coroutine may take to end."""
FUNCTION_SECONDS = 1.0
"""The same for a function, which may not look whether its job was given up, and goes on then."""
REFUSED = StickybusError, DBAPIError, *UNREACHED
"""What a database answers, or that it does not."""

MakeJob: TypeAlias = Callable[..., Job]
"""Makes the job of a handler, with its connection if it has one."""

log = get_logger(__name__)


class Run:
    """A claimed task on its way."""

    def __init__(
        self, work: WorkQueue, options: Options, task: Task, cut: asyncio.Future[None]
    ) -> None:
        self._work = work
        self._options = options
        self._task = task
        self._cut = cut
        """Done when the worker waits for handlers no longer."""
        self._begun = time.monotonic()
        self._lease = Lease(work, task, self._begun)
        self._given_up = threading.Event()
        self._end = "left"
        """How it has ended, for the metrics; "left": the end of the lease decides."""
        self.back: float | None = None
        """When the task is back, as time.monotonic() tells. None: its handler has begun."""

    async def pass_through(self) -> None:
        """Run the handler, and write what comes of it.

        Raises StopWorker, FailWorker and ExitedError, and what is no Exception, if the handler
        raises them.
        """
        try:
            await self._pass_through()
        finally:
            self._options.metrics.ran(self._task.queue, self._end, time.monotonic() - self._begun)

    async def _pass_through(self) -> None:
        if self._is_claimed_too_often:
            change = await _aside(lambda: after_claims(self._task, self._options))
            stays = self._task.renew(IMPOSSIBLE_SECONDS)  # with its claims: it does not run again
            if await self._write(change, end="moved", instead=stays):
                log.warning("task_moved", **self._facts, claims=self._task.claims)
            return
        try:
            error = _unreadable(self._task) or await self._docs_missed()
            if error is None:
                error = await self._handled()
        except Exception as failed:  # noqa: BLE001 -- of what can't be claimed, whatever it is
            error = failed
        if error is not None:
            await self._failed(error)

    @property
    def _is_claimed_too_often(self) -> bool:
        limit = self._options.max_claims
        return limit is not None and self._task.claims > limit

    @property
    def _facts(self) -> dict[str, Any]:
        return {"queue": self._task.queue, "task_id": self._task.id, "attempt": self._task.attempt}

    # -- docs -------------------------------------------------------------------------------------

    async def _docs_missed(self) -> BaseException | None:
        """Claim the doc sets; returns why that failed.

        If others hold one, the task is put off for a moment.
        """
        docs: Any = self._options.docs
        if docs is None:
            return None
        naming = in_thread(lambda: tuple(docs(self._task)), name="work_queue-docs")
        if (error := await self._renewed_during(naming)) is not None:
            return error
        try:
            if claims := naming.result():
                await in_own_thread(self._lease.claim_docs, claims)
        except DependencyError:
            log.info("docs_held", **self._facts)
            await self._put_off()
            return LeaseClosedError("the task was put off")
        return None

    async def _put_off(self) -> float:
        """Give the task back, for a moment; returns for how many seconds."""
        seconds = CONTENTION_SECONDS * (1 - random.random() / 4)  # noqa: S311 -- spreads them
        if await self._write(Renew(self._task.ref, seconds, undo_claim=True), end="put_off"):
            self.back = time.monotonic() + seconds
        return seconds

    # -- the handler ------------------------------------------------------------------------------

    async def _handled(self) -> BaseException | None:
        """Await the handler and its commit; returns why they failed."""
        sets = tuple(self._lease.sets)
        job = partial(
            Job,
            self._task,
            sets,
            given_up=self._given_up,
            work=self._work,
            hold=self._lease.hold,
        )
        running = self._start(job)
        error = await self._renewed_during(running)
        if error is None:
            self._end = "done"
        return error

    async def _renewed_during(self, running: asyncio.Future[Any]) -> BaseException | None:
        """Await a function of the user's while the lease is renewed; returns why it failed."""
        renewing = asyncio.ensure_future(self._renewed())
        try:
            await asyncio.wait(
                {running, renewing, self._cut},
                timeout=self._seconds_left,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if not running.done() and self._lease.close():
                lost = renewing.done()
                renewing.cancel()  # it would find the lease closed, again and again
                return await self._given_up_on(running, lost=lost, cut=self._cut.done())
            await asyncio.wait({running})  # its commit is under way
        except asyncio.CancelledError:
            if self._lease.close():
                self._given_up.set()
                running.cancel()
            raise
        finally:
            renewing.cancel()
        if running.cancelled():
            return asyncio.CancelledError("the handler was cancelled")
        return running.exception()

    @property
    def _seconds_left(self) -> float | None:
        """How much longer the run may take."""
        limit = self._options.max_run_seconds
        return None if limit is None else max(0.0, self._begun + limit - time.monotonic())

    def _start(self, job: MakeJob) -> asyncio.Future[None]:
        if self._options.is_asynchronous:
            return asyncio.ensure_future(self._call_async(job))
        return in_thread(lambda: self._call(job), name="work_queue-handler")

    def _call(self, job: MakeJob) -> None:
        handler: Any = self._options.handler
        engine: Any = self._options.engine
        if engine is None:
            self._lease.finish(actions_of(handler(job()), handler), None)
            return
        transaction = Transaction()
        with transaction.whole(), engine.begin() as connection:
            mark(connection)
            with transaction.handler(connection):
                actions = actions_of(handler(job(connection)), handler)
            check(connection)
            self._lease.finish(actions, connection)

    async def _call_async(self, job: MakeJob) -> None:
        try:
            await self._called(job)
        except EXITS as error:
            raise ExitedError(error) from error

    async def _called(self, job: MakeJob) -> None:
        handler: Any = self._options.handler
        engine: Any = self._options.engine
        if engine is None:
            await self._finish_async(actions_of(await handler(job()), handler), None)
            return
        transaction = Transaction()
        with transaction.whole():
            async with engine.begin() as connection:
                await connection.run_sync(mark)
                with transaction.handler(connection):
                    actions = actions_of(await handler(job(connection)), handler)
                await connection.run_sync(check)
                await self._finish_async(actions, connection)

    async def _finish_async(self, actions: tuple[Action, ...], connection: Any) -> None:
        await awaited(lambda inner: self._lease.finish(actions, inner), connection)

    async def _given_up_on(
        self, running: asyncio.Future[None], *, lost: bool, cut: bool
    ) -> BaseException:
        """Let the handler end, lest it works beside the task's next run; returns why it failed."""
        self._given_up.set()
        if self._options.is_asynchronous:
            running.cancel()
            await asyncio.wait({running}, timeout=CANCEL_SECONDS)
        else:
            try:
                await asyncio.wait({running}, timeout=FUNCTION_SECONDS)
            finally:
                running.cancel()  # nobody waits for its thread any more
        if running.done() and not running.cancelled():
            running.exception()  # seen; the handler's clean-up has failed
        if lost:
            return LeaseLostError()
        if cut:
            release = Renew(self._task.ref, 0.0, undo_claim=True)
            if await self._write(release, end="given_back"):
                log.warning("task_given_back", **self._facts)
            return LeaseClosedError("the task was given back")
        return TimeoutError(f"the run took longer than {self._options.max_run_seconds} s")

    # -- renewals ---------------------------------------------------------------------------------

    async def _renewed(self) -> None:
        """Renew, and return when the lease is lost, or closed."""
        while True:
            await asyncio.sleep(self._lease.seconds_to_renewal)
            if self._lease.closed or not await self._is_renewed():
                return

    async def _is_renewed(self) -> bool:
        """Try until it is renewed. False: it is lost, by a refusal, or as it ends unanswered."""
        lease, waits = self._lease, self._keeps_others_out
        pause = lease.margin_seconds / 8
        while True:
            try:
                async with asyncio.timeout(None if waits else lease.seconds_to_answer):
                    await in_thread(lease.renew, name="work_queue-renewal")
                return True
            except DependencyError:
                return False
            except Exception as error:
                expected = isinstance(error, (*REFUSED, TimeoutError))
                log.warning(
                    "renewal_failed",
                    **self._facts,
                    error=type(error).__name__,
                    exc_info=None if expected else error,
                )
            await asyncio.sleep(pause if waits else min(pause, lease.seconds_left))
            if lease.seconds_to_renewal:  # one that had hung was answered meanwhile
                return True
            if not (waits or lease.seconds_left):
                return False
            pause = min(2 * pause, lease.seconds * RENEWAL_PART)

    @property
    def _keeps_others_out(self) -> bool:
        """Whether the handler's transaction may hold up renewals, and all claims with them."""
        engine = self._options.engine
        return engine is not None and has_one_writer(engine)

    # -- what is written --------------------------------------------------------------------------

    async def _failed(self, error: BaseException) -> None:
        self._lease.close()
        if isinstance(error, LeaseClosedError):
            return
        if isinstance(error, LeaseLostError):
            self._lost()
            return
        if isinstance(error, NotWrittenError):
            self._left(error.__cause__)
            return
        if isinstance(error, NotBegunError):
            log.warning("no_connection", **self._facts, error=type(error.__cause__).__name__)
            # It claims nothing meanwhile, or it would put off all tasks, one after the other.
            await asyncio.wait({self._cut}, timeout=await self._put_off())
            return
        if isinstance(error, FailWorker | ExitedError) or not isinstance(
            error, Exception | asyncio.CancelledError
        ):
            raise error
        if isinstance(error, StopWorker):
            change = without_value(self._task).change(reset_claims=True)
            await self._write(change, end="given_back")
            raise error
        seconds = time.monotonic() - self._begun
        change = await _aside(lambda: after_failure(self._task, error, self._options, seconds))
        runs_again = change.queue is None
        stays = replace(change, queue=None, delay=IMPOSSIBLE_SECONDS)
        if await self._write(change, end="retried" if runs_again else "moved", instead=stays):
            log.warning(
                "task_retried" if runs_again else "task_moved",
                **self._facts,
                error=type(error).__name__,
            )

    def _left(self, error: BaseException | None) -> None:
        """Nothing was written: the end of the lease decides."""
        log.warning("task_left", **self._facts, error=type(error).__name__)

    def _lost(self) -> None:
        self._end = "lost"
        log.warning("lease_lost", **self._facts)

    async def _write(self, action: Action, *, end: str, instead: Action | None = None) -> bool:
        """Write what becomes of the task; whether it was. If not, the end of the lease decides.

        `instead` is written where the action can't be done: it goes to a queue of too long a name.
        """
        self._lease.close()
        try:
            try:
                await in_own_thread(self._lease.write, (action,))
            except InvalidRequestError as error:
                if instead is None or not isinstance(action, Change):
                    raise
                await in_own_thread(self._lease.write, (instead,))
                self._end = "put_off"
                log.error(  # noqa: TRY400 -- the traceback tells nothing more
                    "task_not_moved",
                    **self._facts,
                    to=action.queue,
                    delay=IMPOSSIBLE_SECONDS,
                    error=str(error),
                )
                return False
        except REFUSED as error:
            self._left(error)
            return False
        self._end = end
        return True


def _unreadable(task: Task) -> BaseException | None:
    """Why its handler is not called: a claim reads values, unless somebody has spoilt one."""
    if task.value is not UNREAD:
        return None
    return GiveUp("its stored value is no JSON: somebody has changed it by SQL of their own")


def _aside(call: Callable[[], Change]) -> asyncio.Future[Change]:
    """Call it where it holds up no other run: retry policies and error queues are user's code."""
    return in_thread(call, name="work_queue-failure")
