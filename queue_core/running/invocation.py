"""The call of one handler, whichever kind of handler it is."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import msgspec

from queue_core.model.entry import Entry
from queue_core.model.outcome import Lost, Recorded
from queue_core.model.run_limit import run_limit_of
from queue_core.running.coroutines import Coroutines
from queue_core.running.exactly_once import ExactlyOnce
from queue_core.running.run import Run
from queue_core.running.subscriber import Backlogs, Subscriber, context_of
from queue_core.runtime.middleware import Around


class Invocation(msgspec.Struct, eq=False):
    """A call of one subscriber's handler for the entry of a run."""

    entry: Entry
    """The entry that is handled."""
    run: Run
    subscriber: Subscriber
    began_at: float
    """Monotonic, in seconds."""

    @property
    def limit(self) -> float | None:
        """The seconds that it may take: by the entry, else by the subscriber."""
        return run_limit_of(self.entry.headers) or self.subscriber.max_run_seconds


Answer: TypeAlias = Recorded | Lost | None
"""The outcome of the entry if it stands in the table already, else None."""

AroundHandler: TypeAlias = Around[Invocation, Answer]
"""Middleware around each call of a handler, in the thread that runs it.

Around a coroutine it waits until that has ended; around an exactly-once handler, until its
transaction has.
"""


@dataclass(frozen=True)
class Handling:
    """A handler at work: how long it has run in seconds, and where (its thread's stack)."""

    invocation: Invocation
    seconds: float
    stack: str

    @property
    def entry(self) -> Entry:
        """The entry that is handled."""
        return self.invocation.entry

    @property
    def subscriber(self) -> Subscriber:
        """The subscriber whose handler is called."""
        return self.invocation.subscriber

    @property
    def limit(self) -> float | None:
        """See `Invocation.limit`."""
        return self.invocation.limit

    @property
    def key(self) -> tuple[int, int]:
        """Names this claim of the entry."""
        return self.entry.claim


class Invoker:
    """Calls each kind of handler in its way. `exactly_once`: None where there is no database."""

    def __init__(
        self,
        coroutines: Coroutines,
        exactly_once: ExactlyOnce | None,
        backlogs: Backlogs,
    ) -> None:
        self._backlogs = backlogs
        self._coroutines = coroutines
        self._exactly_once = exactly_once

    def call(self, invocation: Invocation) -> Answer:
        """Call the handler and wait for its end.

        Raises the handler's error, and CancelledError for a coroutine that a stop has ended.
        """
        run, subscriber = invocation.run, invocation.subscriber
        if subscriber.exactly_once:
            if self._exactly_once is None:
                raise RuntimeError(
                    f"{subscriber.name} is exactly_once, and there is no database here"
                )
            return self._exactly_once.call(run, subscriber, self._backlogs)
        arguments = (
            (run.event, context_of(run.entry, run.started_date, self._backlogs))
            if subscriber.takes_context
            else (run.event,)
        )
        if subscriber.is_async:
            returned = self._coroutines.call(partial(subscriber.handler, *arguments))
        else:
            returned = subscriber.handler(*arguments)
            if returned is not None and inspect.isawaitable(returned):
                # Of a lambda or a decorator around a coroutine function.
                awaitable: Awaitable[object] = returned
                returned = self._coroutines.call(lambda: awaitable)
        if returned is not None:
            run.heed(returned)
        return None
