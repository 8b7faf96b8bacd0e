"""Callers that vanish when their claim has taken something: it is released at once."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from sqlalchemy import URL
from starlette.requests import Request

from tests import requirements as needs
from tests.contract.harness import BOUND_SECONDS
from tests.contract.work_queue.backends import backend_of
from tests.contract.work_queue.services import Services
from work_queue.document import DocClaim, DocSet
from work_queue.requests import ClaimRequest, DocClaimRequest
from work_queue.service.caller import Caller
from work_queue.service.calls import Calls
from work_queue.service.native.answers import Answers
from work_queue.service.native.grpc import services as grpc_services
from work_queue.service.rpc.descriptors import API
from work_queue.service.rpc.entroq import entroq
from work_queue.wire import calls as wire
from work_queue.work_queue import WorkQueue

SET = DocClaim("n", "k")


@needs.any_database
def test_a_claim_whose_http_caller_is_gone_is_released(
    database_url: URL, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def gone(_request: Request) -> bool:
        return True

    with WorkQueue(database_url) as stored, WorkQueue(services.http(stored)) as work:
        work.insert("a")
        monkeypatch.setattr(Request, "is_disconnected", gone)
        assert work.try_claim("a")
        [task] = stored.tasks("a")
        assert (task.claimant, task.version, task.claims) == ("", 2, 0)
        assert work.claim_docs(SET)
        assert is_free(stored)


def is_free(stored: WorkQueue) -> bool:
    """The doc set was claimed once, and released."""
    [claimed] = stored.claim_docs(SET, claimant="another")
    return claimed.version == 3


class Vanished:
    """The context of a call to which nothing can be sent any more."""

    async def write(self, _answer: bytes) -> None:
        raise ConnectionError

    async def abort(self, *_ending: object) -> None:
        raise ConnectionError

    def invocation_metadata(self) -> tuple[()]:
        return ()

    def auth_context(self) -> dict[str, Any]:
        return {}


@needs.any_database
def test_a_claim_whose_grpc_caller_is_gone_is_released(database_url: URL) -> None:
    with WorkQueue(database_url) as stored:
        stored.insert("a")
        claim: Any = grpc_services(Answers(Calls(stored)))[wire.SERVICE]["Claim"]
        asked = wire.Claim(ClaimRequest("ann", ("a",), 30.0), 0.0, "ticket")
        with pytest.raises(ConnectionError):
            asyncio.run(claim.unary_stream(wire.CLAIM.ask(asked, 100), Vanished()))
        [task] = stored.tasks("a")
        assert (task.claimant, task.version, task.claims) == ("", 2, 0)


@needs.any_database
def test_doc_sets_whose_grpc_caller_is_gone_are_released(database_url: URL) -> None:
    with WorkQueue(database_url) as stored:
        native: Any = grpc_services(Answers(Calls(stored)))[wire.SERVICE]["ClaimDocs"]
        asked = wire.CLAIM_DOCS.ask(DocClaimRequest("ann", (SET,), 30.0), 100)
        with pytest.raises(ConnectionError):
            asyncio.run(native.unary_stream(asked, Vanished()))
        assert is_free(stored)


@needs.any_database
def test_doc_sets_whose_caller_over_entroqs_grpc_is_gone_are_released(database_url: URL) -> None:
    with WorkQueue(database_url) as stored:
        claim: Any = entroq(Calls(stored))[API.service]["ClaimDocs"]
        query = {"namespace": "n", "key": "k", "claimant": "ann", "duration_ms": 30_000}
        asked = API["ClaimDocsRequest"](claim_query=query).SerializeToString()
        with pytest.raises(ConnectionError):
            asyncio.run(claim.unary_stream(asked, Vanished()))
        assert is_free(stored)


@needs.any_database
def test_doc_sets_are_released_if_their_claim_is_cancelled_while_the_database_claims_them(
    database_url: URL, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken, go_on = threading.Event(), threading.Event()
    with WorkQueue(database_url) as stored:
        backend = backend_of(stored)
        claim_docs = backend.claim_docs

        def slowly(request: DocClaimRequest) -> list[DocSet]:
            found: list[DocSet] = claim_docs(request)
            taken.set()
            go_on.wait(BOUND_SECONDS)
            return found

        async def cancelled() -> None:
            calling = Calls(stored).claim_docs(
                Caller(), [SET], claimant="ann", lease_seconds=30, until=None
            )
            claim = asyncio.ensure_future(calling)
            assert await asyncio.to_thread(taken.wait, BOUND_SECONDS)
            claim.cancel()
            await asyncio.sleep(0)  # the cancellation is under way
            go_on.set()
            with pytest.raises(asyncio.CancelledError):
                await claim

        with monkeypatch.context() as slow:
            slow.setattr(backend, "claim_docs", slowly)
            asyncio.run(cancelled())
        assert is_free(stored)
