"""Clients that vanish when their claim has taken a task: it is released at once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from sqlalchemy import URL
from starlette.requests import Request

from tests import requirements as needs
from tests.contract.work_queue.services import Services
from work_queue.requests import ClaimRequest
from work_queue.service.calls import Calls
from work_queue.service.native.answers import Answers
from work_queue.service.native.grpc import services as grpc_services
from work_queue.wire import calls as wire
from work_queue.work_queue import WorkQueue


@needs.any_database
def test_over_http(database_url: URL, services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    async def gone(_request: Request) -> bool:
        return True

    with WorkQueue(database_url) as stored, WorkQueue(services.http(stored)) as work:
        work.insert("a")
        monkeypatch.setattr(Request, "is_disconnected", gone)
        assert work.try_claim("a")
        [task] = stored.tasks("a")
        assert (task.claimant, task.version) == ("", 2)


class Vanished:
    """The context of a call to which nothing can be sent any more."""

    async def write(self, _answer: bytes) -> None:
        raise ConnectionError

    def invocation_metadata(self) -> tuple[()]:
        return ()

    def auth_context(self) -> dict[str, Any]:
        return {}


@needs.any_database
def test_over_grpc(database_url: URL) -> None:
    with WorkQueue(database_url) as stored:
        stored.insert("a")
        claim: Any = grpc_services(Answers(Calls(stored)))[wire.SERVICE]["Claim"]
        asked = wire.Claim(ClaimRequest("ann", ("a",), 30.0), 0.0, "ticket")
        with pytest.raises(ConnectionError):
            asyncio.run(claim.unary_stream(wire.CLAIM.ask(asked, 100), Vanished()))
        [task] = stored.tasks("a")
        assert (task.claimant, task.version) == ("", 2)
