"""Servers on the test's database, and callers of both generations."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Protocol

import grpc
import pytest
from sqlalchemy import URL

from tests.contract.service.grpc.harness import Served, Stubs, compiled
from work_queue.work_queue import WorkQueue


class Serve(Protocol):
    """Starts a server on the test's database, or on a work queue."""

    def __call__(self, other: WorkQueue | None = None, **options: Any) -> Served: ...


@pytest.fixture(scope="session")
def stubs(tmp_path_factory: pytest.TempPathFactory) -> Stubs:
    """What protoc makes of the texts."""
    return compiled(tmp_path_factory.mktemp("stubs"))


@pytest.fixture
def make_work(database_url: URL) -> Iterator[Any]:
    """Makes work queues on the test's database."""
    with ExitStack() as made:

        def make(*, database: URL | None = None, **options: Any) -> WorkQueue:
            work = WorkQueue(database or database_url, **options)
            made.callback(work.close)
            return work

        yield make


@pytest.fixture
def work(make_work: Any) -> WorkQueue:
    """The work queue that is served."""
    made: WorkQueue = make_work(claimant="here")
    return made


@pytest.fixture
def serve(work: WorkQueue) -> Iterator[Serve]:
    """Starts servers, which are stopped after the test."""
    with ExitStack() as started:

        def start(other: WorkQueue | None = None, **options: Any) -> Served:
            served = Served(other or work, **options)
            started.callback(served.stop)
            return served

        yield start


@pytest.fixture
def served(serve: Serve) -> Served:
    """A server."""
    return serve()


@pytest.fixture
def channel(served: Served) -> Iterator[grpc.Channel]:
    """A channel to the server."""
    with served.channel() as channel:
        yield channel


@pytest.fixture
def entroq(channel: grpc.Channel, stubs: Stubs) -> Any:
    """A caller of api.EntroQ."""
    return stubs.api_stub(channel)


@pytest.fixture
def legacy(channel: grpc.Channel, stubs: Stubs) -> Any:
    """A caller of proto.EntroQ."""
    return stubs.proto_stub(channel)
