"""EntroQ's service over gRPC, for one generation of its callers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from queue_core.errors import StickybusError
from queue_core.runtime.log import get_logger
from work_queue.document import DocClaim
from work_queue.modified import Modified
from work_queue.service.caller import Caller
from work_queue.service.calls import Calls
from work_queue.service.rpc import answers, requests
from work_queue.service.rpc.callers import Context, caller_of, protocol_of
from work_queue.service.rpc.generations import Generation
from work_queue.service.rpc.statuses import DETAILS, Code, Refusal, refusal
from work_queue.service.rpc.tables import Method
from work_queue.task import Task

PROTOCOLS = ("1", "2")
log = get_logger(__name__)

Handle = Callable[[bytes, Context], Awaitable[Any]]


class EntroQ:
    """The methods of the service, and how they are reached."""

    def __init__(self, calls: Calls, generation: Generation) -> None:
        self._calls = calls
        self._generation = generation
        self._package = generation.package

    def handler(self) -> grpc.GenericRpcHandler:
        """What a server takes. It gets bytes, for it answers for those that are no message."""
        return grpc.method_handlers_generic_handler(
            self._package.service,
            {method.name: self._handler_of(method) for method in self._package.methods},
        )

    def _handler_of(self, method: Method) -> grpc.RpcMethodHandler[bytes, bytes]:
        if method.request == "ClaimRequest":
            return grpc.unary_stream_rpc_method_handler(self._claims(method))
        if method.streams:
            return grpc.unary_stream_rpc_method_handler(self._streams(method))
        return grpc.unary_unary_rpc_method_handler(self._answers(method))

    # -- how a method is answered -----------------------------------------------------------------

    def _answers(self, method: Method) -> Handle:
        answer = {
            "Modify": self._modify,
            "Tasks": self._tasks,
            "Queues": self._queues,
            "QueueStats": self._queues,
            "Time": self._time,
            "Docs": self._docs,
            "ClaimDocs": self._claim_docs,
            "NamespaceStats": self._namespaces,
        }[method.name]

        async def handle(data: bytes, context: Context) -> bytes:
            async with self._told(context, method):
                message = await answer(caller_of(context), self._read(method, data, context))
                packed: bytes = message.SerializeToString()
                return packed

        return handle

    def _streams(self, method: Method) -> Handle:
        async def handle(data: bytes, context: Context) -> None:
            async with self._told(context, method):
                query = requests.task_query(self._read(method, data, context), self._generation)
                for task in await self._calls.tasks(caller_of(context), query):
                    message = answers.tasks([task], self._generation)
                    await context.write(message.SerializeToString())

        return handle

    def _claims(self, method: Method) -> Handle:
        """A claim writes its answer itself: that fails if the caller is gone by then.

        For callers it is a method with one answer.
        """
        timeout_seconds = 0.0 if method.name == "TryClaim" else None

        async def handle(data: bytes, context: Context) -> None:
            async with self._told(context, method):
                tasks = await self._claim(
                    caller_of(context), self._read(method, data, context), timeout_seconds
                )
                try:
                    message = answers.claimed(tasks, self._generation)
                    await context.write(message.SerializeToString())
                except BaseException:
                    await self._calls.give_back(tasks)
                    raise

        return handle

    @asynccontextmanager
    async def _told(self, context: Context, method: Method) -> AsyncIterator[None]:
        """End the call with a status if it fails."""
        try:
            yield
        except Refusal as error:
            await _abort(context, error)
        except StickybusError as error:
            what = "claim docs" if method.name == "ClaimDocs" else "modification"
            told = refusal(error, self._package, what=what, protocol=protocol_of(context))
            if told.code is Code.INTERNAL:
                log.warning("call_failed", method=method.name, exc_info=True)
            await _abort(context, told)
        except grpc.aio.AbortError:
            raise
        except Exception:
            log.exception("call_failed", method=method.name)
            await _abort(context, Refusal(Code.INTERNAL, "the service failed. See its log."))

    def _read(self, method: Method, data: bytes, context: Context) -> Any:
        """The message that bytes are, which has nothing unknown to us. Raises Refusal."""
        if (protocol := protocol_of(context)) not in PROTOCOLS:
            raise Refusal(Code.UNIMPLEMENTED, f"protocol {protocol} is not served.")
        message = self._package[method.request]()
        try:
            message.ParseFromString(data)
        except DecodeError as error:
            raise Refusal(
                Code.INVALID_ARGUMENT, f"no {method.request}: {error}. Nothing was written."
            ) from None
        size = message.ByteSize()
        message.DiscardUnknownFields()
        if message.ByteSize() != size:
            # It means what this service does not know, and would do half of.
            raise Refusal(
                Code.UNIMPLEMENTED,
                f"this {method.request} has fields that are not served. Nothing was written.",
            )
        return message

    # -- methods ----------------------------------------------------------------------------------

    async def _claim(
        self, caller: Caller, request: Any, timeout_seconds: float | None
    ) -> list[Task]:
        return await self._calls.claim(
            caller,
            request.queues,
            claimant=self._generation.name(request.claimant_id),
            lease_seconds=requests.lease_seconds(request.duration_ms),
            timeout_seconds=timeout_seconds,
        )

    async def _modify(self, caller: Caller, request: Any) -> Any:
        dated = requests.has_doc_arrivals(request)
        now = await self._calls.time(caller) if dated else datetime.now(UTC)
        actions = requests.actions(request, self._generation, now)
        if not actions:
            return answers.modified(Modified(), self._generation)
        claimant = self._generation.name(request.claimant_id)
        modified = await self._calls.modify(caller, actions, claimant=claimant)
        return answers.modified(modified, self._generation)

    async def _tasks(self, caller: Caller, request: Any) -> Any:
        query = requests.task_query(request, self._generation)
        return answers.tasks(await self._calls.tasks(caller, query), self._generation)

    async def _queues(self, caller: Caller, request: Any) -> Any:
        query = requests.name_query(request)
        return answers.queues(await self._calls.queue_stats(caller, query), self._generation)

    async def _time(self, caller: Caller, request: Any) -> Any:
        del request
        return answers.time(await self._calls.time(caller), self._generation)

    async def _docs(self, caller: Caller, request: Any) -> Any:
        query = requests.doc_query(request.query)
        return answers.docs(await self._calls.docs(caller, query), "DocsResponse")

    async def _claim_docs(self, caller: Caller, request: Any) -> Any:
        claim = request.claim_query
        sets = await self._calls.claim_docs(
            caller,
            [DocClaim(claim.namespace, claim.key)],
            claimant=claim.claimant,
            lease_seconds=requests.lease_seconds(claim.duration_ms),
            until=None,
        )
        return answers.docs([doc for found in sets for doc in found.docs], "ClaimDocsResponse")

    async def _namespaces(self, caller: Caller, request: Any) -> Any:
        query = requests.name_query(request)
        return answers.namespaces(await self._calls.namespace_stats(caller, query))


async def _abort(context: Context, error: Refusal) -> None:
    metadata = ((DETAILS, error.details),) if error.details else ()
    await context.abort(error.code, str(error), metadata)
