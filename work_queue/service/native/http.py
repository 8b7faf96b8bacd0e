"""The wire over HTTP: `POST /work-queue/v1/<call>`."""

from __future__ import annotations

from http import HTTPStatus

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from queue_core.errors import DatabaseUnreachableError, PayloadTooLargeError, StickybusError
from queue_core.runtime.log import get_logger
from work_queue.faults import DependencyError
from work_queue.rights import PermissionDeniedError, UnauthenticatedError
from work_queue.service.http.exchange import CallerGoneError, body_of, caller_of, while_there
from work_queue.service.native.answers import Answer, Answers, nothing
from work_queue.wire.calls import CONTENT_TYPE, PATH, refuse

log = get_logger(__name__)

GONE_STATUS = 499
"""Of answers that nobody reads."""
STATUSES: tuple[tuple[type[StickybusError], HTTPStatus], ...] = (
    (DependencyError, HTTPStatus.CONFLICT),
    (PayloadTooLargeError, HTTPStatus.REQUEST_ENTITY_TOO_LARGE),
    (DatabaseUnreachableError, HTTPStatus.SERVICE_UNAVAILABLE),
    (UnauthenticatedError, HTTPStatus.UNAUTHORIZED),
    (PermissionDeniedError, HTTPStatus.FORBIDDEN),
)
"""For those who look at a log; clients read the answer itself."""


def routes(answers: Answers, *, max_request_bytes: int) -> list[Route]:
    """The routes of all calls."""

    async def endpoint(request: Request) -> Response:
        name = request.url.path.rsplit("/", 1)[-1]
        try:
            body = await body_of(request, max_request_bytes)
            answering = answers.answer(name, caller_of(request), body)
            if name not in answers.undone:
                return _response(await answering)  # such a call is short
            answer = await while_there(request, answering)
            if answer.undo is not nothing and await request.is_disconnected():
                await answer.undo()
            return _response(answer)
        except HTTPException as error:
            refused = PayloadTooLargeError(error.detail, cap_bytes=max_request_bytes)
            return _response(Answer(refuse(refused), refused))
        except (ClientDisconnect, CallerGoneError):
            return Response(status_code=GONE_STATUS)
        except Exception:
            # Not passed on: the server would cut a connection on which the client calls again.
            log.exception("call_failed", method=name)
            return Response(status_code=HTTPStatus.INTERNAL_SERVER_ERROR)

    return [Route(f"{PATH}/{name}", endpoint, methods=["POST"]) for name in answers.names]


def _response(answer: Answer) -> Response:
    status = HTTPStatus.OK
    if answer.error is not None:
        status = next(
            (status for kind, status in STATUSES if isinstance(answer.error, kind)),
            HTTPStatus.BAD_REQUEST,
        )
    return Response(answer.body, status, media_type=CONTENT_TYPE)
