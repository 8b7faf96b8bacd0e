"""EntroQ's service over gRPC: how its methods are reached, and how calls end that fail."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from functools import partial
from typing import Any, TypeAlias

import grpc
from google.protobuf.message import DecodeError

from queue_core.errors import InvalidRequestError
from queue_core.runtime.log import get_logger
from work_queue.service.calls import Calls
from work_queue.service.protocol import Rules, UnsupportedRequestError, protocol_of
from work_queue.service.rpc import answers
from work_queue.service.rpc.callers import Context, caller_of, declared_protocol, sent_or_undone
from work_queue.service.rpc.generations import Current, Generation, Legacy
from work_queue.service.rpc.listener import RpcMethod, Services
from work_queue.service.rpc.methods import Answer, Claim, Methods
from work_queue.service.rpc.statuses import DETAILS, FAILED, ending
from work_queue.service.rpc.tables import Method

Handle: TypeAlias = Callable[[bytes, Context], Awaitable[Any]]
log = get_logger(__name__)


def entroq(calls: Calls) -> Services:
    """What serves both generations of callers."""
    services = (_Entroq(calls, generation) for generation in (Current(), Legacy()))
    return {service.name: service.methods() for service in services}


class _Entroq:
    """The service of one generation. It gets bytes, and answers for those that are no message."""

    def __init__(self, calls: Calls, generation: Generation) -> None:
        self._calls = calls
        self._methods = Methods(calls, generation)
        self._generation = generation
        self._package = generation.package

    @property
    def name(self) -> str:
        """Its full name."""
        return self._package.service

    def methods(self) -> dict[str, RpcMethod]:
        """What a server takes, by name."""
        return {method.name: self._handler_of(method) for method in self._package.methods}

    def _handler_of(self, method: Method) -> RpcMethod:
        if (claim := self._methods.claims.get(method.name)) is not None:
            return grpc.unary_stream_rpc_method_handler(self._claims(method, claim))
        if method.streams:
            return grpc.unary_stream_rpc_method_handler(self._streams(method))
        answer = self._methods.answers[method.name]
        return grpc.unary_unary_rpc_method_handler(self._answers(method, answer))

    def _answers(self, method: Method, answer: Answer) -> Handle:
        async def handle(data: bytes, context: Context) -> bytes:
            async with self._call(method, context) as rules:
                request = self._read(method, data)
                message = await answer(caller_of(context), request, rules)
                packed: bytes = message.SerializeToString()
                return packed

        return handle

    def _streams(self, method: Method) -> Handle:
        async def handle(data: bytes, context: Context) -> None:
            async with self._call(method, context):
                request = self._read(method, data)
                pages = self._methods.pages(caller_of(context), request)
                async with aclosing(pages):
                    async for page in pages:
                        for task in page:
                            message = answers.tasks([task], self._generation)
                            await context.write(message.SerializeToString())

        return handle

    def _claims(self, method: Method, claim: Claim) -> Handle:
        async def handle(data: bytes, context: Context) -> None:
            async with self._call(method, context) as rules:
                request = self._read(method, data)
                claimed, answer = await claim(caller_of(context), request, rules)
                async with sent_or_undone(partial(self._calls.give_back, claimed)):
                    await context.write(answer().SerializeToString())

        return handle

    @asynccontextmanager
    async def _call(self, method: Method, context: Context) -> AsyncIterator[Rules]:
        """One call: by which rules it is read, and how it ends if it fails."""
        rules = Rules(protocol=1)
        try:
            rules = Rules(protocol_of(declared_protocol(context)))
            yield rules
        except grpc.aio.BaseError:
            raise
        except Exception as error:  # whatever it is, the caller is told a status
            told = ending(error, method, self._package, rules.protocol)
            if told is FAILED:
                log.exception("call_failed", method=method.name)
            metadata = ((DETAILS, told.details),) if told.details else ()
            await context.abort(told.code, told.message, metadata)

    def _read(self, method: Method, data: bytes) -> Any:
        """The message that bytes are.

        Raises InvalidRequestError and UnsupportedRequestError.
        """
        message = self._package[method.request]()
        try:
            message.ParseFromString(data)
        except DecodeError as error:
            raise InvalidRequestError(
                f"this is no {method.request}: {error}. Nothing was written.", key="request"
            ) from None
        size = message.ByteSize()
        message.DiscardUnknownFields()
        if message.ByteSize() != size:
            # To do only its known part could be wrong, or too much.
            raise UnsupportedRequestError(
                f"this {method.request} has fields that are not served. Nothing was written."
            )
        return message
