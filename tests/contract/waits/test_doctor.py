"""What the doctor says of entries that have an order key and wait for others, and its cures."""

from __future__ import annotations

import re

import pytest
from sqlalchemy import text

from queue_core.links.ordering import Ordering
from sql.doctor.finding import Finding
from stickybus import ImmediateRetries, inspect
from tests.contract.cluster import Cluster, Peer
from tests.contract.harness import Order, Recorder
from tests.contract.order_looks import post, rows
from tests.contract.waits.looks import ran, settle, waits


def found(cluster: Cluster) -> list[Finding]:
    checks = {"lost-waits", "circular-waits"}
    with inspect(cluster.url) as inspector:
        return [one for one in inspector.doctor() if one.check in checks]


def cured(cluster: Cluster, peer: Peer) -> list[int]:
    """Release what the only finding says, and return that."""
    [finding] = found(cluster)
    told = re.fullmatch(r"stickybus entries release ([0-9 ]+) --table bus_events", finding.cure)
    assert told, finding.cure
    ids = [int(record_id) for record_id in told[1].split()]
    assert [peer.bus.release(record_id) for record_id in ids] == [True] * len(ids)
    assert found(cluster) == []
    return ids


@pytest.fixture
def older(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retries as by a process of an older version: they run behind the others."""
    monkeypatch.setattr(Ordering, "put_first", lambda *_arguments, **_options: None)


def failing_once(cluster: Cluster) -> Peer:
    peer = cluster.join("a", retry=ImmediateRetries(0))
    peer.handler = Recorder(failures=1)
    return peer


def test_one_that_has_lost_its_wait_is_found_and_released_into_its_turn(cluster: Cluster) -> None:
    peer = cluster.join("a")
    late = peer.bus.post(Order(0), delay=600)
    post(peer, 1, delay=3)
    [lost] = post(peer, 2, after=[late])
    post(peer, 3)
    post(peer, 4, key="other", after=[late])
    assert found(cluster) == []
    delete = text("DELETE FROM queue_waits WHERE waiter_id = :id")
    peer.store.database.write(lambda connection: connection.execute(delete, {"id": lost}))
    settle(cluster, peer)
    assert ran(peer) == [1]
    [finding] = found(cluster)
    assert finding.check == "lost-waits"
    assert finding.what.startswith("1 entry of bus_events: waiting for others")
    assert cured(cluster, peer) == [lost]
    settle(cluster, peer)
    assert ran(peer) == [1, 2, 3]


@pytest.mark.usefixtures("older")
def test_one_that_waits_for_a_retry_behind_it_is_found_and_released(cluster: Cluster) -> None:
    peer = failing_once(cluster)
    [first] = post(peer, 1, order_failure="skip")
    [second] = post(peer, 2, after=[first], on_failed="hold")
    peer.run()
    assert found(cluster) == []  # it is for a person to decide
    copy = peer.bus.retry(first)
    [finding] = found(cluster)
    assert finding.check == "circular-waits"
    assert f"{second} for {copy}" in finding.what
    assert cured(cluster, peer) == [second]
    settle(cluster, peer)
    assert ran(peer) == [1, 2, 1]
    assert (rows(peer), waits(peer)) == ((0, 0), 0)


@pytest.mark.usefixtures("older")
def test_a_circle_over_several_keys_is_opened_at_one_place(cluster: Cluster) -> None:
    peer = failing_once(cluster)
    [first] = post(peer, 1, order_failure="skip")
    [second] = post(peer, 2, key="j", after=[first], on_failed="hold")
    [third] = post(peer, 3, key="j")
    post(peer, 4, after=[third])
    post(peer, 5, after=[second])
    peer.run()
    peer.bus.retry(first)
    settle(cluster, peer)
    assert ran(peer) == [1]
    assert cured(cluster, peer) == [second]
    settle(cluster, peer)
    assert sorted(ran(peer)) == [1, 1, 2, 3, 4, 5]
    assert (rows(peer), waits(peer)) == ((0, 0), 0)


def test_a_retry_that_runs_before_those_that_wait_for_it_is_no_circle(cluster: Cluster) -> None:
    peer = failing_once(cluster)
    [first] = post(peer, 1)
    post(peer, 2, after=[first], on_failed="hold")
    peer.run()
    peer.bus.retry(first)
    assert found(cluster) == []
    settle(cluster, peer)
    assert ran(peer) == [1, 1, 2]
