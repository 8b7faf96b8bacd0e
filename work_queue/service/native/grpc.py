"""The wire over gRPC: the service `stickybus.WorkQueue`, whose messages are the same bytes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import grpc

from queue_core.runtime.log import get_logger
from work_queue.service.native.answers import Answer, Answers
from work_queue.service.rpc.callers import Context, caller_of, sent_or_undone
from work_queue.service.rpc.listener import Services
from work_queue.service.rpc.statuses import FAILED
from work_queue.wire.calls import SERVICE, method_of

log = get_logger(__name__)


def services(answers: Answers) -> Services:
    """The service, for a listener."""
    methods: dict[str, Any] = {
        method_of(name).rpartition("/")[2]: _handler(answers, name) for name in answers.names
    }
    return {SERVICE: methods}


def _handler(answers: Answers, name: str) -> Any:
    """One that sends its answer itself only if something is to be undone when that fails.

    For others gRPC sends the answer and the end of the call at once.
    """
    if name in answers.undone:
        return grpc.unary_stream_rpc_method_handler(_sending(answers, name))
    return grpc.unary_unary_rpc_method_handler(_returning(answers, name))


def _sending(answers: Answers, name: str) -> Callable[[bytes, Context], Awaitable[None]]:
    async def answered(request: bytes, context: Context) -> None:
        answer = await _answer(answers, name, request, context)
        async with sent_or_undone(answer.undo):
            await context.write(answer.body)

    return answered


def _returning(answers: Answers, name: str) -> Callable[[bytes, Context], Awaitable[bytes]]:
    async def answered(request: bytes, context: Context) -> bytes:
        return (await _answer(answers, name, request, context)).body

    return answered


async def _answer(answers: Answers, name: str, request: bytes, context: Context) -> Answer:
    try:
        return await answers.answer(name, caller_of(context), request)
    except Exception:  # what it says is none of the caller's business
        log.exception("call_failed", method=name)
        await context.abort(FAILED.code, FAILED.message)
        raise
