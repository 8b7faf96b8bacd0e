"""The calls of handlers, as the test kit shows them: results and errors."""

from __future__ import annotations

import copy
import inspect
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, Self

import msgspec

from queue_core.running.invocation import Answer, Invocation
from queue_core.running.runner import Runner
from queue_core.running.subscriber import Subscriber
from queue_core.runtime.middleware import chained


class HandlerCalls:
    """The calls of handlers by one runner, by the id of the entry and the subscriber's name."""

    def __init__(self) -> None:
        self.returned: dict[int, dict[str, Any]] = defaultdict(dict)
        self.raised: dict[int, dict[str, BaseException]] = defaultdict(dict)

    @contextmanager
    def of(self, runner: Runner) -> Iterator[Self]:
        """Keep the calls of `runner` within a block."""
        plain = runner._invoke
        runner._invoke = chained(plain, [self._around])
        try:
            yield self
        finally:
            runner._invoke = plain

    def _around(self, rest: Callable[[Invocation], Answer], call: Invocation) -> Answer:
        kept = copy.copy(call.subscriber)
        returned = self.returned[call.entry.record_id]
        kept.handler = _keeping(call.subscriber, returned)
        try:
            return rest(msgspec.structs.replace(call, subscriber=kept))
        except BaseException as error:
            # An exactly-once handler may have returned before its transaction failed.
            returned.pop(kept.name, None)
            self.raised[call.entry.record_id][kept.name] = error
            raise


def _keeping(subscriber: Subscriber, returned: dict[str, Any]) -> Callable[..., Any]:
    """The handler of a subscriber, which also puts its answer into `returned`."""
    handler, name = subscriber.handler, subscriber.name

    async def kept(answer: Awaitable[Any]) -> Any:
        returned[name] = await answer
        return returned[name]

    @wraps(handler)
    def keeping(*arguments: Any) -> Any:
        answer = handler(*arguments)
        if inspect.isawaitable(answer) and not subscriber.exactly_once:
            return kept(answer)
        returned[name] = answer
        return answer

    return keeping
