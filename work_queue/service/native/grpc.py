"""The wire over gRPC: the service `stickybus.WorkQueue`, whose messages are the same bytes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import grpc

from work_queue.service.native.answers import Answers
from work_queue.service.rpc.callers import Context, caller_of
from work_queue.service.rpc.listener import Services
from work_queue.wire.calls import SERVICE, method_of


def services(answers: Answers) -> Services:
    """The service, for a listener."""
    methods: dict[str, Any] = {
        method_of(name).rpartition("/")[2]: grpc.unary_unary_rpc_method_handler(
            _answering(answers, name)
        )
        for name in answers.names
    }
    return {SERVICE: methods}


def _answering(answers: Answers, name: str) -> Callable[[bytes, Context], Awaitable[bytes]]:
    async def answered(request: bytes, context: Context) -> bytes:
        answer = await answers.answer(name, caller_of(context), request)
        if answer.undo is not None and context.cancelled():
            await answer.undo()
        return answer.body

    return answered
