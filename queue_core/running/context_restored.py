"""Middleware that sets an entry's context variables around each of its handlers."""

from __future__ import annotations

from collections.abc import Callable

from queue_core.model.captured_context import CapturedContext
from queue_core.running.invocation import Answer, AroundHandler, Invocation


def restoring(context: CapturedContext) -> list[AroundHandler]:
    """The middleware; none where no variable is captured.

    A coroutine runs in another thread, with a copy of the context of this one.
    """

    def around(rest: Callable[[Invocation], Answer], invocation: Invocation) -> Answer:
        with context.restored(invocation.entry.headers):
            return rest(invocation)

    return [around] if context else []
