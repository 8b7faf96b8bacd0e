"""The options of a worker, checked."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, Union

from sqlalchemy import Engine

from queue_core.errors import InvalidRequestError
from queue_core.model.retry import RetryPolicy
from queue_core.model.retry_policies import Circuit
from queue_core.runtime.arguments import function, is_number, not_allowed, of_kind
from queue_core.runtime.log import get_logger
from queue_core.runtime.shown import shown
from work_queue.checks.actions import KINDS
from work_queue.document import DocClaim
from work_queue.metrics import Metrics
from work_queue.modification import Action
from work_queue.task import Task
from work_queue.workers.job import Job

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

log = get_logger(__name__)

Written: TypeAlias = Action | Iterable[Action] | None
"""What a handler returns."""
Handler: TypeAlias = Callable[[Job], Written] | Callable[[Job], Awaitable[Written]]
AnyEngine: TypeAlias = Union[Engine, "AsyncEngine"]


@dataclass(frozen=True, kw_only=True)
class Options:
    """See `Worker`."""

    handler: Handler
    queues: tuple[str, ...]
    docs: Callable[[Task], Iterable[DocClaim]] | None
    lease_seconds: float | None
    retry: RetryPolicy
    max_attempts: int | None
    max_claims: int | None
    error_queue: str | Callable[[str], str] | None
    max_run_seconds: float | None
    concurrency: int
    engine: AnyEngine | None
    grace_seconds: float
    metrics: Metrics

    def __post_init__(self) -> None:
        function(self.handler, key="handler", arguments=1)
        if self.docs is not None:
            plain_function(self.docs, key="docs")
        of_kind(self.retry, RetryPolicy, key="retry")
        if isinstance(self.retry, Circuit):
            allowed = "any policy but a Circuit, which only a bus and notification queues have"
            raise not_allowed("retry", self.retry, allowed)
        _number(self.max_attempts, key="max_attempts")
        _number(self.max_claims, key="max_claims")
        if isinstance(self.error_queue, str):
            if self.error_queue in self.queues:
                raise not_allowed("error_queue", self.error_queue, "no queue that is worked")
        elif self.error_queue is not None:
            plain_function(self.error_queue, key="error_queue")
        if self.max_run_seconds is not None and not (
            is_number(self.max_run_seconds) and self.max_run_seconds > 0
        ):
            raise not_allowed("max_run_seconds", self.max_run_seconds, "above 0, or None")
        if self.concurrency is None:
            raise not_allowed("concurrency", self.concurrency, "1 or more")
        _number(self.concurrency, key="concurrency")
        if not (is_number(self.grace_seconds) and self.grace_seconds >= 0):
            raise not_allowed("grace_seconds", self.grace_seconds, "0 or more")
        if self.engine is not None and not isinstance(self.engine, self._engine_kind):
            kind = self._engine_kind.__name__
            raise not_allowed("engine", self.engine, f"an {kind}, as the handler needs it")

    @property
    def _engine_kind(self) -> type:
        if not self.is_asynchronous:
            return Engine
        # Not imported here: it needs greenlet, which the base install does not have.
        module = sys.modules.get("sqlalchemy.ext.asyncio")
        kind: type = module.AsyncEngine if module else type(None)
        return kind

    @property
    def is_asynchronous(self) -> bool:
        """Whether the handler is a coroutine function."""
        return _is_asynchronous(self.handler)

    def error_queue_of(self, queue: str) -> str:
        """Where the failed tasks of a queue go.

        Never raises: where a function does, or tells no other queue, they go where all go by
        default. In their own queue they would run again, at once and for ever.
        """
        default = f"{queue}/err"
        if self.error_queue is None or isinstance(self.error_queue, str):
            return default if self.error_queue is None else self.error_queue
        try:
            return _another(queue, self.error_queue(queue))
        except Exception:  # the user's code; the worker goes on with other tasks
            log.exception("error_queue_failed", queue=queue, to=default)
            return default


def actions_of(returned: Any, handler: object) -> tuple[Any, ...]:
    """What this handler has returned, as actions. Raises InvalidRequestError."""
    if returned is None:
        return ()
    several = isinstance(returned, Iterable) and not isinstance(returned, str | bytes)
    found = tuple(returned) if several else (returned,)
    for one in found:
        if not isinstance(one, KINDS):
            called = getattr(handler, "__qualname__", type(handler).__qualname__)
            raise InvalidRequestError(
                f"the handler {called} returned {shown(one)}. Nothing was written. A handler "
                "returns None, an action such as Insert(…) or job.task.delete(), or several.",
                key="actions",
                value=one,
            )
    return found


def _is_asynchronous(call: object) -> bool:
    """Whether it is a coroutine function, or an object with a method `__call__` that is one."""
    inner = getattr(call, "__call__", None)  # noqa: B004 -- it is read, not asked for
    return inspect.iscoroutinefunction(call) or inspect.iscoroutinefunction(inner)


def _another(queue: str, told: object) -> str:
    if not isinstance(told, str) or told == queue:
        raise not_allowed("error_queue", told, "the name of another queue")
    return told


def plain_function(call: object, *, key: str) -> None:
    """Raises ConfigurationError for what is no function of 1 argument, or a coroutine function."""
    function(call, key=key, arguments=1)
    if _is_asynchronous(call):
        raise not_allowed(key, call, "a function that is no coroutine function: it has a thread")


def _number(value: object, *, key: str) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise not_allowed(key, value, "1 or more, or None" if key != "concurrency" else "1 or more")
