"""The calls of the service over HTTP, for callers of both protocols."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from work_queue.document import DocSet
from work_queue.modified import Modified
from work_queue.requests import DocQuery, NameQuery, TaskQuery
from work_queue.service.calls import Calls
from work_queue.service.http import answers
from work_queue.service.http.answers import Json, JsonAnswer
from work_queue.service.http.exchange import CallerGoneError, body_of, caller_of, while_there
from work_queue.service.http.messages import (
    ClaimDocsMessage,
    ClaimMessage,
    ModifyMessage,
    decoded,
    whole,
)
from work_queue.service.http.parameters import Parameters
from work_queue.service.http.refusals import refused
from work_queue.service.http.streams import LINES_TYPE, lines
from work_queue.service.protocol import PROTOCOL_KEY, Rules, ms_of, protocol_of
from work_queue.task import Task

BASE = "/api/v0"
NAMES = ("matchPrefix", "matchExact")
GONE_STATUS = 499
"""Of answers that nobody reads."""

Claimed = TypeVar("Claimed", Task, DocSet)
Call = Callable[[Request, int], Awaitable[Json | Response]]


class Application:
    """The calls, each by its path.

    Args:
        calls: What is called.
        max_request_bytes: The longest body of a request.
    """

    def __init__(self, calls: Calls, max_request_bytes: int) -> None:
        self._calls = calls
        self._cap_bytes = max_request_bytes

    def starlette(self, routes: Sequence[BaseRoute] = ()) -> Starlette:
        """The application for a server, with further routes."""
        calls: list[tuple[str, str, Call]] = [
            ("GET", "/time", self.time),
            ("GET", "/queues", self.queues),
            ("GET", "/queues/stats", self.queues),
            ("GET", "/namespaces/stats", self.namespaces),
            ("GET", "/tasks", self.tasks),
            ("GET", "/tasks/stream", self.stream),
            ("GET", "/docs", self.docs),
            ("POST", "/claim", self.try_claim),
            ("POST", "/claim/wait", self.claim),
            ("POST", "/docs/claim", self.claim_docs),
            ("POST", "/modify", self.modify),
        ]
        return Starlette(
            routes=[
                *(Route(BASE + path, _answering(call), methods=[how]) for how, path, call in calls),
                Route("/health", _answering(self.health), methods=["GET"]),
                Route("/metrics", self.metrics, methods=["GET"]),
                *routes,
            ],
            exception_handlers={HTTPException: _refused},
        )

    # -- claims -----------------------------------------------------------------------------------

    async def try_claim(self, request: Request, protocol: int) -> Json:
        """Claim available tasks."""
        return await self._claim(request, protocol, 0.0)

    async def claim(self, request: Request, protocol: int) -> Json:
        """Wait until something can be claimed."""
        return await self._claim(request, protocol, None)

    async def _claim(self, request: Request, protocol: int, timeout_seconds: float | None) -> Json:
        Parameters(request.query_params, ())
        message = decoded(await body_of(request, self._cap_bytes), ClaimMessage)
        whole(message.poll_ms, "pollMs")
        claim = self._calls.claim(
            caller_of(request),
            message.queues or [],
            claimant=message.claimant_id or "",
            lease_seconds=Rules(protocol).lease_seconds(whole(message.duration_ms, "durationMs")),
            timeout_seconds=timeout_seconds,
        )
        found = await self._reaching(request, claim)
        return {"task": answers.task(found[0]) if found else None}

    async def _reaching(
        self, request: Request, claim: Coroutine[Any, Any, list[Claimed]]
    ) -> list[Claimed]:
        """Await a claim. If the caller goes, nothing stays claimed."""
        found = await while_there(request, claim)
        if found and await request.is_disconnected():
            await self._calls.give_back(found)
            raise CallerGoneError
        return found

    async def claim_docs(self, request: Request, protocol: int) -> Json:
        """Claim doc sets."""
        Parameters(request.query_params, ())
        body = decoded(await body_of(request, self._cap_bytes), ClaimDocsMessage)
        message, rules = body.claim_query, Rules(protocol)
        claim = self._calls.claim_docs(
            caller_of(request),
            message.claims(rules),
            claimant=message.claimant or "",
            lease_seconds=rules.lease_seconds(whole(message.duration_ms, "durationMs")),
            until=message.until(rules),
        )
        return answers.claimed_docs(await self._reaching(request, claim))

    # -- modifications ----------------------------------------------------------------------------

    async def modify(self, request: Request, protocol: int) -> Json:
        """Insert, change, delete and check."""
        Parameters(request.query_params, ())
        message = decoded(await body_of(request, self._cap_bytes), ModifyMessage)
        caller = caller_of(request)
        # Only dates of protocol 1 need the time.
        rules = Rules(1, await self._calls.time(caller)) if protocol == 1 else Rules(protocol)
        actions = message.actions(rules)
        if not actions and protocol == 1:
            return answers.modified(Modified(), ())
        result = await self._calls.modify(caller, actions, claimant=message.claimant_id or "")
        return answers.modified(result, actions)

    # -- reads ------------------------------------------------------------------------------------

    async def tasks(self, request: Request, protocol: int) -> Json:
        """Read tasks."""
        del protocol
        found = await self._calls.tasks(caller_of(request), _tasks(request))
        return {"tasks": [answers.task(one) for one in found]}

    async def stream(self, request: Request, protocol: int) -> Response:
        """Read tasks, of which each is sent as soon as it is read."""
        pages = self._calls.pages(caller_of(request), _tasks(request))
        # What refuses the call has the status of its refusal, so nothing is sent before.
        first = await anext(pages)
        return StreamingResponse(lines(first, pages, protocol), media_type=LINES_TYPE)

    async def docs(self, request: Request, protocol: int) -> Json:
        """Read docs."""
        del protocol
        names = ("namespace", "keyStart", "keyEnd", "keyExact", "limit", "omitValues")
        given = Parameters(
            request.query_params, [f"query.{name}" for name in names], ("query.ids",)
        )
        query = DocQuery(
            given.text("query.namespace"),
            given.texts("query.ids") or None,
            given.text("query.keyExact") or None,
            given.text("query.keyStart"),
            given.text("query.keyEnd"),
            given.number("query.limit"),
            not given.flag("query.omitValues"),
        )
        found = await self._calls.docs(caller_of(request), query)
        return {"docs": [answers.doc(one) for one in found]}

    async def queues(self, request: Request, protocol: int) -> Json:
        """Read the counts of queues."""
        del protocol
        found = await self._calls.queue_stats(caller_of(request), _names(request))
        return {"queues": [answers.queue(one) for one in found]}

    async def namespaces(self, request: Request, protocol: int) -> Json:
        """Read the counts of namespaces."""
        del protocol
        found = await self._calls.namespace_stats(caller_of(request), _names(request))
        return {"namespaces": [answers.namespace(one) for one in found]}

    async def time(self, request: Request, protocol: int) -> Json:
        """Read the clock that decides."""
        del protocol
        Parameters(request.query_params, ())
        return {"timeMs": str(ms_of(await self._calls.time(caller_of(request))))}

    # -- pages ------------------------------------------------------------------------------------

    async def health(self, request: Request, protocol: int) -> Json:
        """Whether the database answers."""
        del request, protocol
        await self._calls.check()
        return {"status": "ok"}

    async def metrics(self, request: Request) -> Response:
        """The metrics for Prometheus."""
        try:
            text = await self._calls.scrape(caller_of(request))
        except Exception as error:  # noqa: BLE001 -- each error has its answer
            return refused(error, 1)
        return Response(text, media_type=CONTENT_TYPE_LATEST)


def _answering(call: Call) -> Callable[[Request], Awaitable[Response]]:
    """An endpoint that answers with the result or error of a call."""

    async def endpoint(request: Request) -> Response:
        protocol = 1
        try:
            protocol = protocol_of(request.headers.get(PROTOCOL_KEY))
            found = await call(request, protocol)
            return found if isinstance(found, Response) else JsonAnswer(found)
        except (CallerGoneError, ClientDisconnect):
            return Response(status_code=GONE_STATUS)
        except Exception as error:  # noqa: BLE001 -- each error has its answer
            return refused(error, protocol)

    return endpoint


def _tasks(request: Request) -> TaskQuery:
    given = Parameters(
        request.query_params, ("queue", "claimantId", "limit", "omitValues"), ("taskId",)
    )
    return TaskQuery(
        given.text("queue") or None,
        given.texts("taskId") or None,
        given.text("claimantId") or None,
        given.number("limit"),
        not given.flag("omitValues"),
    )


def _names(request: Request) -> NameQuery:
    given = Parameters(request.query_params, ("limit",), NAMES)
    return NameQuery(given.texts("matchPrefix"), given.texts("matchExact"), given.number("limit"))


async def _refused(request: Request, error: Exception) -> Response:
    del request
    return refused(error, 1)
