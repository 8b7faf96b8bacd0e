"""A function is told of queues in which too much waits, and not too often."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from stickybus import ConfigurationError, QueueDepth
from tests.contract.cluster import Cluster, Peer
from tests.contract.conftest import MakeService
from tests.contract.harness import Order, engine_of, lifecycle_of, statements_of


def wait_for_a_node(cluster: Cluster, entries: int) -> None:
    """Post entries that no node has claimed."""
    cluster.peer("poster").bus.post_many(Order(number) for number in range(entries))


def look(cluster: Cluster, peer: Peer, seconds: float = 10) -> None:
    """Let time pass, and the watch look; nothing is claimed or run but its functions."""
    cluster.live(seconds, peer)
    engine_of(peer.bus).backlog.turn(cluster.clock.monotonic())
    peer.lifecycle.pool.run_submitted()


def test_it_is_told_of_what_waits_once_in_a_while(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    told = list[QueueDepth]()
    peer = cluster.join("a")
    assert peer.bus.on_backlog(told.append, above=3, pause_seconds=60) == told.append
    wait_for_a_node(cluster, 3)
    look(cluster, peer)
    assert told == []

    wait_for_a_node(cluster, 1)
    with caplog.at_level(logging.WARNING):
        for _ in range(6):
            look(cluster, peer)
        assert [(depth.queue_name, depth.ready) for depth in told] == [("bus", 4)]
        look(cluster, peer)

    assert len(told) == 2
    assert told[0].oldest_age_seconds >= 10
    warnings = [line for line in caplog.messages if line.startswith("backlog ")]
    assert len(warnings) == 2
    assert "queue_name=bus ready=4" in warnings[0]


def test_a_failing_function_holds_up_nothing(cluster: Cluster) -> None:
    told = list[QueueDepth]()
    peer = cluster.join("a")

    @peer.bus.on_backlog
    def fail(_depth: QueueDepth) -> None:
        raise RuntimeError("it fails")

    peer.bus.on_backlog(told.append, above=0)
    peer.bus.on_backlog(above=1)
    wait_for_a_node(cluster, 1_001)
    look(cluster, peer)
    peer.run()

    assert len(told) == 1
    assert peer.handler.calls == 1_001


def test_without_a_function_nothing_is_counted(cluster: Cluster) -> None:
    peer = cluster.join("a")
    with statements_of(peer.store.database) as statements:
        look(cluster, peer, 20)
        before = len(statements.starting_with("SELECT"))
        engine_of(peer.bus).backlog.turn(cluster.clock.monotonic() + 100)
    assert len(statements.starting_with("SELECT")) == before


def test_a_service_is_told_of_its_own_queues_only(make_service: MakeService) -> None:
    served, other = make_service(), make_service()
    told = list[QueueDepth]()
    queue = served.create_queue("shop", "bills", lambda _event: None, event_types=[Order])
    strange = other.create_queue("shop", "strange", lambda _event: None, event_types=[Order])
    queue.start()
    for some in (queue, strange):
        some.schedule(Order(1), delay=0)
    served.on_backlog(told.append, above=0)

    engine_of(served).backlog.turn(1.0)
    lifecycle_of(served).pool.run_submitted()

    assert {depth.queue_name for depth in told} == {"shop:bills"}


@pytest.mark.parametrize(
    "wrong", [{"above": -1}, {"above": 10_000}, {"pause_seconds": -1}, {"hook": 7}]
)
def test_arguments_that_make_no_sense_are_refused(cluster: Cluster, wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        cluster.peer("a").bus.on_backlog(**wrong)
