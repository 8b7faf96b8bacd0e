"""A service whose modifications wait for locks that an application holds."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from sqlalchemy import URL, create_engine

from tests.contract.harness import BOUND_SECONDS, eventually
from tests.contract.service.http.conftest import Serve
from tests.contract.service.http.rights import bearer, written
from tests.contract.service.http.running import Json, Running
from tests.contract.work_queue.backends import backend_of
from work_queue.modification import Insert
from work_queue.service.authorisers.policy import PolicyFile
from work_queue.service.service import CALLS, THREADS

BLOCKED = 40
"""More than the threads that an event loop has by itself."""
ROOT = bearer("root")


def busy() -> int:
    """Threads that are in calls, at least once all are."""
    return sum(thread.name.startswith(THREADS) for thread in threading.enumerate())


@pytest.fixture
def blocked(serve: Serve, policy: Path, database_url: URL) -> Iterator[Running]:
    """A service with `BLOCKED` modifications that wait."""
    service = serve(authoriser=PolicyFile(written(policy)))
    work, application = service.work, create_engine(database_url)
    tasks = work.modify(*(Insert(queue="locked") for _ in range(BLOCKED))).inserted
    with ThreadPoolExecutor(BLOCKED) as pool, application.connect() as holder:
        work.modify(*(task.change(value="theirs") for task in tasks), connection=holder)
        calls = [
            pool.submit(service.call, "/modify", deleting(task.id), headers=ROOT) for task in tasks
        ]
        eventually(lambda: busy() >= BLOCKED)
        yield service
        assert not any(call.done() for call in calls)
        holder.rollback()
        assert {call.result(BOUND_SECONDS).status_code for call in calls} == {200}
    application.dispose()


def deleting(id_: str) -> Json:
    return {"claimantId": "root", "deletes": [{"id": id_, "version": 0, "queue": "locked"}]}


def test_claims_and_probes_are_answered_while_modifications_wait(
    blocked: Running, database_name: str
) -> None:
    writes = database_name != "sqlite"  # there, all that writes waits for the holder
    if writes:
        blocked.work.insert("free")
    body = {"claimantId": "root", "queues": ["free", "empty"]}
    task = blocked.answer("/claim", body, headers=ROOT)["task"]
    assert (task is not None) is writes
    for page in ("/health", "/metrics"):
        answer = httpx.get(f"{blocked.url}{page}", headers=ROOT, timeout=BOUND_SECONDS)
        assert answer.status_code == 200


def test_a_probe_finds_a_connection_even_if_all_threads_have_one(service: Running) -> None:
    pool = backend_of(service.work).database.engine.pool
    assert pool.size() + pool._max_overflow > CALLS
