"""The line to a service: how calls are sent, and the fate of calls without an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from queue_core.errors import (
    CommitUnknownError,
    ConfigurationError,
    DatabaseUnreachableError,
    LifecycleError,
    StickybusError,
)
from work_queue.remote.address import Address
from work_queue.remote.background import Background
from work_queue.remote.blocking_calls import BlockingCalls
from work_queue.remote.transport import (
    BlockingTransport,
    LostError,
    StrangeError,
    Transport,
    UnsentError,
)
from work_queue.wire import calls as wire

ANSWER_SECONDS = 60.0
"""The longest time to an answer, besides the wait of a claim."""
LEAVE_SECONDS = 2.0
"""How long the end of a claim that nobody wants any more may take, before its connection is cut."""

NO_ANSWER = (UnsentError, LostError, StrangeError)

Request = TypeVar("Request")
Result = TypeVar("Result")


class Line:
    """May be used by any threads and event loops, and after a fork."""

    def __init__(
        self,
        address: Address,
        connect: Callable[[Address], Transport],
        connect_blocking: Callable[[Address], BlockingTransport],
        cap_bytes: int,
    ) -> None:
        self.address = address
        self._connect = connect
        self.cap_bytes = cap_bytes
        self._background = Background()
        self._blocking = BlockingCalls(lambda: connect_blocking(address))
        self._transports = dict[asyncio.AbstractEventLoop, Transport]()
        """One for this process, and those from before a fork: what ends them would be sent."""
        self.closed = False
        self._answered = False
        """Whether a service has ever answered here."""

    def call(self, call: wire.Call[Request, Result], request: Request) -> Result:
        """Do a call in this thread."""
        with self.begun() as transport:
            return self.call_on(transport, call, request, ANSWER_SECONDS)

    def call_on(
        self,
        transport: BlockingTransport,
        call: wire.Call[Request, Result],
        request: Request,
        seconds: float,
    ) -> Result:
        """Do a call on this transport, and wait so long for its answer."""
        body = call.ask(request, self.cap_bytes)
        try:
            data = transport.call(call.name, body, seconds)
        except NO_ANSWER as error:
            raise self.failed(call, error) from error
        return self.read(call, data)

    def begun(self) -> AbstractContextManager[BlockingTransport]:
        """A block in which a call of this thread runs. Raises LifecycleError after the end."""
        return self._blocking.begun()

    async def run_async(
        self,
        work: Coroutine[Any, Any, Result],
        undo: Callable[[Result], Coroutine[Any, Any, None]],
    ) -> Result:
        """Run the asking coroutine, and await it on any loop. See `Background.run_async`."""
        return await self._background.run_async(work, undo)

    async def ask(
        self, call: wire.Call[Request, Result], request: Request, wait_seconds: float = 0.0
    ) -> Result:
        """Do a call within what runs."""
        body = call.ask(request, self.cap_bytes)
        return self.read(call, await self._send(call, body, wait_seconds))

    def check_open(self) -> None:
        """Raise LifecycleError after the end."""
        if self.closed:
            raise LifecycleError("the work queue was closed. Nothing was done.")

    def close(
        self,
        first: Collection[asyncio.Task[Any]],
        leave: Callable[[BlockingTransport], None],
    ) -> None:
        """End what runs, which gets a while for it: these `first`, and those in threads by `leave`.

        In a child process of a fork only its memory is let go.
        """
        self.closed = True
        try:
            self._blocking.end(leave, LEAVE_SECONDS)
        finally:
            self._background.end(lambda: self._end(first))

    async def _end(self, first: Collection[asyncio.Task[Any]]) -> None:
        running = asyncio.all_tasks() - {asyncio.current_task()}
        for task in running.intersection(first):
            task.cancel()
        if running:
            await asyncio.wait(running, timeout=LEAVE_SECONDS)
        for call in running:
            call.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        if (transport := self._transports.pop(asyncio.get_running_loop(), None)) is not None:
            await transport.close()

    async def _send(
        self, call: wire.Call[Any, Any], body: bytes, wait_seconds: float = 0.0
    ) -> bytes:
        try:
            return await self._carrier().call(call.name, body, wait_seconds + ANSWER_SECONDS)
        except NO_ANSWER as error:
            raise self.failed(call, error) from error
        except asyncio.CancelledError:
            if self.closed and call is not wire.CLAIM:
                raise self._lost(call, "the work queue was closed") from None
            raise

    def failed(self, call: wire.Call[Any, Any], error: Exception) -> StickybusError:
        """What a call raises without an answer."""
        if isinstance(error, StrangeError):
            return self._strange(call, str(error))
        if isinstance(error, LostError):
            return self._lost(call, "the work queue was closed" if self.closed else str(error))
        return DatabaseUnreachableError(
            f"the service {self.address} can't be reached: {error}. Nothing was "
            "sent, and nothing was done.",
            url=str(self.address),
        )

    def read(self, call: wire.Call[Request, Result], data: bytes) -> Result:
        """The result in an answer."""
        try:
            result = call.answered(data)
        except (ValueError, RecursionError) as error:
            if self._answered:
                raise self._lost(call, f"what it says can't be read: {error}") from error
            raise self._strange(call, str(error)) from error
        self._answered = True
        return result

    def _carrier(self) -> Transport:
        """The connections of this process."""
        loop = asyncio.get_running_loop()
        if loop not in self._transports:
            self._transports[loop] = self._connect(self.address)
        return self._transports[loop]

    def _lost(self, call: wire.Call[Any, Any], why: str) -> DatabaseUnreachableError:
        url = str(self.address)
        said = f"the service {url} gave no answer: {why}."
        if not call.writes:
            return DatabaseUnreachableError(said, url=url)
        return CommitUnknownError(
            f"{said} The call may have taken effect: read its tasks or docs before you call again. "
            "If it was a claim, they come back when its lease ends.",
            url=url,
        )

    def _strange(self, call: wire.Call[Any, Any], why: str) -> StickybusError:
        url = str(self.address)
        said = f"the server at {url} is no work queue service: {why}."
        if self._answered:  # it was one before: something on the way answers for it
            return DatabaseUnreachableError(f"{said} Nothing was done.", url=url)
        return ConfigurationError(f"{said} Look at the address.", key="database")
