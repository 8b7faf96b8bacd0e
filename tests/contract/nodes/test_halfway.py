"""Starts and stops that overlap or fail halfway lose nothing."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import Connection, Row

from queue_core import membership
from queue_core.cluster.node import Node
from queue_core.cluster.redispatch import recover
from sql.statements import nodes
from stickybus import (
    NodeNameTakenError,
    State,
)
from tests.contract.cluster import Cluster
from tests.contract.conftest import MakeBus, MakeService
from tests.contract.harness import (
    Order,
    Recorder,
    Trouble,
    database_of,
    eventually,
    lifecycle_of,
    node_of,
)


def test_what_is_posted_while_a_bus_starts_runs_once(
    make_bus: MakeBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    bus, handler = make_bus(), Recorder()
    bus.subscribe(Order, handler)

    def posting(*arguments: Any, **options: Any) -> int:
        bus.post(Order(1))
        found = recover(*arguments, **options)
        bus.post(Order(2))
        return found

    monkeypatch.setattr(membership, "recover", posting)
    bus.start()

    eventually(lambda: len(bus.history(states=[State.PROCESSED])) == 2, "both have run")
    assert handler.numbers() == [1, 2]
    assert bus.history(states=[State.REAPED]) == []


def test_a_start_that_fails_halfway_leaves_no_node_behind_and_can_be_tried_again(
    make_bus: MakeBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    bus, handler = make_bus(), Recorder()
    bus.subscribe(Order, handler)

    def failing(*_arguments: Any, **_options: Any) -> int:
        raise Trouble

    with monkeypatch.context() as patched:
        patched.setattr(membership, "recover", failing)
        with pytest.raises(Trouble):
            bus.start()
    assert not lifecycle_of(bus).running
    bus.post(Order(1))
    assert [entry.lane for entry in bus.find()] == [""]

    bus.start()

    assert handler.wait() == [Order(1)]


def test_after_a_stop_that_failed_halfway_events_are_posted_for_others(
    make_bus: MakeBus, make_service: MakeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    bus, service = make_bus(node_name="a"), make_service(node_name="a")
    bus.start()
    service.start()  # keeps the node alive

    def failing(_node: object) -> None:
        raise Trouble

    with monkeypatch.context() as patched:
        patched.setattr(Node, "announce", failing)
        assert not bus.stop()
    bus.post(Order(1))

    assert [(entry.lane, entry.processing_state) for entry in bus.find()] == [("", State.AVAILABLE)]


def test_a_member_that_could_not_join_is_none_and_may_try_again(
    make_bus: MakeBus, make_service: MakeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    bus, service = make_bus(node_name="a"), make_service(node_name="a")
    service.start()

    def failing(_node: object) -> None:
        raise Trouble

    with monkeypatch.context() as patched:
        patched.setattr(Node, "announce", failing)
        with pytest.raises(Trouble):
            bus.start()
    bus.start()

    handler = Recorder()
    bus.subscribe(Order, handler)
    bus.post(Order(1))
    assert handler.wait() == [Order(1)]


def test_a_node_beats_through_the_connections_of_a_member_that_is_still_there(
    make_bus: MakeBus, make_service: MakeService
) -> None:
    bus, service = make_bus(node_name="a"), make_service(node_name="a")
    service.start()
    bus.start()
    node = node_of(bus)
    assert node.database is database_of(service)

    service.close()

    assert node.database is database_of(bus)
    node.beat_turn()
    assert (
        database_of(service).engine.pool.status().startswith("Pool size: 5  Connections in pool: 0")
    )


def test_a_name_is_watched_for_a_lease_from_when_it_was_first_seen(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder, late = cluster.join("a"), cluster.peer("a")
    cluster.vanish(holder)
    look, looks = nodes.Nodes().node, list[str]()

    def too_early(_nodes: nodes.Nodes, connection: Connection, name: str) -> Row[Any] | None:
        looks.append(name)
        if len(looks) > 1:
            return look(connection, name)
        cluster.clock.advance(seconds=20)  # the database is slow
        return None

    monkeypatch.setattr(nodes.Nodes, "node", too_early)

    with pytest.raises(NodeNameTakenError):
        cluster.while_waiting(late.join, holder.beat).result()
