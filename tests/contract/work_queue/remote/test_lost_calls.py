"""Work queues at a service's address: calls that are lost, and services that are not there."""

from __future__ import annotations

import importlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from queue_core.errors import CommitUnknownError, ConfigurationError, DatabaseUnreachableError
from tests.contract.harness import BOUND_SECONDS, eventually
from tests.contract.work_queue.backends import SERVED, backend_of, waiting
from tests.contract.work_queue.conftest import MakeWork
from tests.contract.work_queue.services import Services
from work_queue.document import DocClaim
from work_queue.service.native.answers import Answer, Answers
from work_queue.work_queue import WorkQueue

pytestmark = pytest.mark.parametrize("place", ["http", "grpc"], indirect=True)


def test_a_service_that_is_not_there_was_sent_nothing(place: str) -> None:
    with pytest.raises(DatabaseUnreachableError, match="nothing was done") as caught:
        WorkQueue(f"{place}://127.0.0.1:1")
    assert not isinstance(caught.value, CommitUnknownError)
    assert caught.value.url == f"{place}://127.0.0.1:1"


def test_a_lost_answer_says_that_the_call_may_have_been_done(
    work: WorkQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = Answers.answer

    async def loses(self: Answers, *arguments: Any) -> Answer:
        await answer(self, *arguments)
        raise RuntimeError("the answer is lost")

    with monkeypatch.context() as losing:
        losing.setattr(Answers, "answer", loses)
        for call in (
            lambda: work.insert("a"),
            lambda: work.try_claim("a"),
            lambda: work.claim_docs(DocClaim("n", "k")),
        ):
            with pytest.raises(CommitUnknownError, match="may have taken effect"):
                call()
        for read in (work.time, work.queues, lambda: work.tasks("a"), lambda: work.docs("n")):
            with pytest.raises(DatabaseUnreachableError) as caught:
                read()
            assert not isinstance(caught.value, CommitUnknownError)
    [task] = work.tasks("a")
    assert task.claims == 1


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (OperationalError("secret", {}, Exception("locked")), DatabaseUnreachableError),
        (InterfaceError("secret", {}, Exception("gone")), DatabaseUnreachableError),
        (PoolTimeoutError("secret"), DatabaseUnreachableError),
        (DatabaseUnreachableError("secret", url="secret"), DatabaseUnreachableError),
        (CommitUnknownError("secret", url="secret"), CommitUnknownError),
    ],
    ids=lambda error: type(error).__name__ if isinstance(error, Exception) else "",
)
def test_a_database_that_does_not_answer_is_told_without_its_address(
    work: WorkQueue, monkeypatch: pytest.MonkeyPatch, error: Exception, raised: type[Exception]
) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(SERVED[work], "modify", fails)
    with pytest.raises(DatabaseUnreachableError) as caught:
        work.insert("a")
    assert type(caught.value) is raised
    assert "secret" not in str(caught.value)
    assert caught.value.url is None


def test_a_connection_that_is_cut_loses_what_was_sent(place: str, services: Services) -> None:
    """Before gRPC sends a call, both ends have greeted each other."""
    with services.cut_off(place) as address, pytest.raises(DatabaseUnreachableError) as caught:
        WorkQueue(address)
    assert {"http": "gave no answer", "grpc": "nothing was done"}[place] in str(caught.value)


def test_what_is_no_service_is_told(place: str, services: Services) -> None:
    with pytest.raises(ConfigurationError, match="no work queue service"):
        WorkQueue(services.nothing(place))


def test_what_is_no_service_for_a_while_ends_no_worker(
    work: WorkQueue, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, name = {
        "http": ("http_connections", "HttpConnections"),
        "grpc": ("grpc_channel", "GrpcChannel"),
    }[place]
    transport = getattr(importlib.import_module(f"work_queue.remote.{module}"), name)
    call = transport.call

    def misled(self: Any, _name: str, *arguments: Any) -> Any:
        return call(self, "nothing", *arguments)

    monkeypatch.setattr(transport, "call", misled)
    with pytest.raises(DatabaseUnreachableError, match="Nothing was done"):
        work.insert("a")


def test_a_service_that_stops_ends_no_worker(
    make_work: MakeWork, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = make_work()
    with ThreadPoolExecutor(1) as pool:
        claim = pool.submit(work.claim, "a")
        eventually(lambda: waiting(work))
        backend_of(work).close()
        with pytest.raises(DatabaseUnreachableError, match="stops"):
            claim.result(BOUND_SECONDS)
