"""The pages of a worker: metrics, and whether it is a node that may start handlers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from http.client import HTTPConnection

import pytest
from prometheus_client import CollectorRegistry, Counter
from sqlalchemy import Engine, text

from bus.persistent import PersistentBus
from stickybus.cli.pages import pages, served
from stickybus.cli.worker import health_of
from tests.contract.conftest import MakeBus
from tests.contract.harness import BOUND_SECONDS, eventually, lifecycle_of

Answer = tuple[int, str, bytes]


@pytest.fixture
def port(bus: PersistentBus) -> Iterator[int]:
    registry = CollectorRegistry()
    Counter("orders", "orders", registry=registry).inc()
    with served(pages(registry, partial(health_of, [bus])), "127.0.0.1", 0) as port:
        yield port


def ask(port: int, path: str, method: str = "GET") -> Answer:
    with closing(HTTPConnection("127.0.0.1", port, timeout=BOUND_SECONDS)) as connection:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.headers["Content-Type"], answer.read()


def test_health_is_200_while_the_lease_holds_and_503_before_and_after(
    port: int, bus: PersistentBus
) -> None:
    status, kind, body = ask(port, "/health")
    assert (status, kind) == (503, "application/json")
    assert json.loads(body) == {
        "status": "no lease",
        "node": None,
        "lease_left_seconds": 0.0,
        "healthy": None,
        "unhealthy": False,
    }

    with bus:
        status, _, body = ask(port, "/health")
        told = json.loads(body)
        assert (status, told["status"], told["node"]) == (200, "ok", lifecycle_of(bus).name)
        assert 0 < told["lease_left_seconds"] <= 15

    assert ask(port, "/health")[0] == 503


def test_health_is_503_once_beats_have_failed_for_a_lease_and_200_when_they_succeed_again(
    make_bus: MakeBus, engine: Engine
) -> None:
    bus = make_bus(lease_seconds=0.5)

    def rename(old: str, new: str) -> None:
        with engine.begin() as connection:
            connection.execute(text(f"ALTER TABLE {old} RENAME TO {new}"))

    with served(pages(CollectorRegistry(), partial(health_of, [bus])), "127.0.0.1", 0) as port, bus:
        eventually(lambda: ask(port, "/health")[0] == 200, "it has a lease")
        rename("queue_nodes", "elsewhere")
        try:
            eventually(lambda: ask(port, "/health")[0] == 503, "its lease ends")
        finally:
            rename("elsewhere", "queue_nodes")
        eventually(lambda: ask(port, "/health")[0] == 200, "it has a lease again")


def test_metrics_are_those_of_the_registry(port: int) -> None:
    status, kind, body = ask(port, "/metrics")
    assert (status, kind.partition(";")[0]) == (200, "text/plain")
    assert b"orders_total 1.0" in body
    assert ask(port, "/metrics?name[]=nothing")[0] == 200


@pytest.mark.parametrize("path", ["/", "/healthz", "/metrics/", "/favicon.ico", "/health/live"])
def test_any_other_path_is_not_found(port: int, path: str) -> None:
    status, _, body = ask(port, path)
    assert (status, body) == (404, b"only /metrics and /health are here\n")


def test_a_probe_may_ask_for_the_head_only_and_nobody_may_post(
    port: int, bus: PersistentBus
) -> None:
    with bus:
        assert (ask(port, "/health", "HEAD")[0], ask(port, "/health", "HEAD")[2]) == (200, b"")
        assert ask(port, "/metrics", "HEAD")[0] == 200
    assert ask(port, "/health", "POST")[0] == 405
    assert ask(port, "/metrics", "DELETE")[0] == 405
