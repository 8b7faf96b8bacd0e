"""The wire over HTTP: `POST /work-queue/v1/<call>`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from queue_core.errors import (
    DatabaseUnreachableError,
    LifecycleError,
    PayloadTooLargeError,
    StickybusError,
)
from work_queue.faults import DependencyError
from work_queue.service.caller import Caller
from work_queue.service.native.answers import Answer, Answers
from work_queue.wire.calls import CONTENT_TYPE, PATH, refuse

STATUSES: tuple[tuple[type[StickybusError], HTTPStatus], ...] = (
    (DependencyError, HTTPStatus.CONFLICT),
    (PayloadTooLargeError, HTTPStatus.REQUEST_ENTITY_TOO_LARGE),
    (DatabaseUnreachableError, HTTPStatus.SERVICE_UNAVAILABLE),
    (LifecycleError, HTTPStatus.SERVICE_UNAVAILABLE),
)
"""For those who look at a log; clients read the answer itself."""


def routes(
    answers: Answers, caller_of: Callable[[Request], Caller], *, max_request_bytes: int
) -> list[Route]:
    """The routes of all calls."""

    async def endpoint(request: Request) -> Response:
        try:
            body = await _body(request, max_request_bytes)
        except PayloadTooLargeError as error:
            return _response(Answer(refuse(error), error))
        except ClientDisconnect:
            return Response()  # nobody reads it
        name = request.url.path.rsplit("/", 1)[-1]
        answering = asyncio.ensure_future(answers.answer(name, caller_of(request), body))
        gone = asyncio.ensure_future(_gone(request))
        try:
            await asyncio.wait({answering, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not answering.done():
                answering.cancel()
            with suppress(asyncio.CancelledError):
                return _response(await answering)
            return Response()  # nobody reads it
        finally:
            answering.cancel()
            gone.cancel()

    return [Route(f"{PATH}/{name}", endpoint, methods=["POST"]) for name in answers.names]


async def _body(request: Request, max_bytes: int) -> bytes:
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > max_bytes:
            raise PayloadTooLargeError(
                f"the request has more than {max_bytes:,} bytes, which is the service's cap. "
                "Nothing was written. Send less at once.",
                cap_bytes=max_bytes,
            )
    return bytes(body)


async def _gone(request: Request) -> None:
    """Return when the client has closed its connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _response(answer: Answer) -> Response:
    status = HTTPStatus.OK
    if answer.error is not None:
        status = next(
            (status for kind, status in STATUSES if isinstance(answer.error, kind)),
            HTTPStatus.BAD_REQUEST,
        )
    return Response(answer.body, status, media_type=CONTENT_TYPE)
