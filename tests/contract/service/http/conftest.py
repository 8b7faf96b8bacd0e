"""Fixtures of the tests of services over HTTP. A test of a scenario has its number in its name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

import pytest
from prometheus_client import CollectorRegistry
from sqlalchemy import URL

from tests.contract.service.authorities import authorities
from tests.contract.service.http.rights import bearer, written
from tests.contract.service.http.running import Running
from work_queue.service.authorisers.policy import PolicyFile
from work_queue.work_queue import WorkQueue

__all__ = ["authorities"]


class Serve(Protocol):
    """Starts a service of a new work queue on the test's database."""

    def __call__(self, **options: Any) -> Running: ...


@pytest.fixture
def serve(database_url: URL) -> Iterator[Serve]:
    with ExitStack() as made:

        def start(*, poll_seconds: float | None = None, **options: Any) -> Running:
            registry = CollectorRegistry()
            work = made.enter_context(
                WorkQueue(database_url, poll_seconds=poll_seconds, metrics_registry=registry)
            )
            running = Running(work, registry=registry, **options)
            made.callback(running.close)
            return running

        yield start


@pytest.fixture
def service(serve: Serve) -> Running:
    """A service without an authoriser."""
    return serve()


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    return tmp_path / "policy.json"


@pytest.fixture
def guarded(serve: Serve, policy: Path) -> Running:
    """A service whose caller "ann" may do nothing yet; there is a task, a held one, and a doc."""
    service = serve(authoriser=PolicyFile(written(policy)))
    service.answer(
        "/modify",
        {
            "claimantId": "root",
            "inserts": [{"queue": "q/1", "id": "free"}, {"queue": "q/2", "id": "other"}],
            "docInserts": [{"namespace": "n/1", "key": "k", "id": "doc"}],
        },
        headers=bearer("root"),
    )
    return service
