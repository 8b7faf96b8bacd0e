"""A database server that is away for a while."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from prometheus_client import CollectorRegistry
from sqlalchemy import URL

from devtools.server import DatabaseServer, StopMode
from tests.contract.harness import BOUND_SECONDS, eventually
from tests.contract.service.http.running import Json, Running, waiting_claim
from work_queue.work_queue import WorkQueue


@pytest.fixture
def running(own_server_url: URL) -> Iterator[Running]:
    registry = CollectorRegistry()
    with WorkQueue(own_server_url, poll_seconds=1, metrics_registry=registry) as work:
        service = Running(work, registry=registry)
        yield service
        service.close()


def test_calls_are_refused_until_the_database_is_back(
    running: Running, own_server: DatabaseServer
) -> None:
    running.modify(inserts=[{"queue": "a", "value": 1}])
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(running.call, "/claim/wait", waiting_claim("b"))
        eventually(lambda: running.waiting)
        own_server.stop(StopMode.CRASH)
        insert: Json = {"claimantId": "me", "inserts": [{"queue": "a"}]}
        claim: Json = {"claimantId": "me", "queues": ["a"]}
        for path, sent in (("/time", None), ("/modify", insert), ("/claim", claim)):
            refusal = running.refusal(503, path, sent)
            assert refusal["code"] == 14
            assert "SELECT" not in refusal["message"]
        assert httpx.get(f"{running.url}/health", timeout=BOUND_SECONDS).status_code == 503
        metrics = httpx.get(f"{running.url}/metrics", timeout=BOUND_SECONDS)
        assert 'stickybus_database_up{table="work_tasks"} 0.0' in metrics.text
        # It ends, or goes on when the database is back.
        own_server.start()
        eventually(lambda: running.call("/time").status_code == 200)
        [task] = running.answer("/tasks", queue="a")["tasks"]
        assert task["value"] == 1
        running.modify(inserts=[{"queue": "b"}])
        response = waiting.result(BOUND_SECONDS)
        assert response.status_code in {200, 503}
