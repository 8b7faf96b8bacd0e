"""A paused order key starts nothing, on any node, until it is resumed; other keys go on."""

from __future__ import annotations

import pytest
from sqlalchemy import Engine

from queue_core.model.lanes import WAITING_LANE, paused_lane
from stickybus import InvalidPostError
from tests.contract.cluster import Cluster
from tests.contract.conftest import MakeService
from tests.contract.harness import Order, Recorder, eventually

LANE = paused_lane("bus", order_key="k")


def test_its_first_entry_waits_and_all_behind_it_while_other_keys_run(cluster: Cluster) -> None:
    one, other = cluster.join("a"), cluster.join("b")
    made = one.bus.pause(order_key="k", reason="disputed", by="ann")
    cluster.live(1, one, other)
    for peer, numbers in ((one, (1, 2)), (other, (3,))):
        for number in numbers:
            peer.bus.post(Order(number), order_key="k")
    one.bus.post(Order(4), order_key="other")
    one.bus.post(Order(5))
    for peer in (one, other, one):
        peer.run()

    assert sorted(one.handler.numbers() + other.handler.numbers()) == [4, 5]
    assert [entry.lane for entry in one.bus.find()] == [LANE, WAITING_LANE, WAITING_LANE]
    assert one.bus.pauses() == [made]

    assert other.bus.resume(order_key="k")
    for _ in range(4):
        cluster.live(1, one, other)
        one.run()
        other.run()

    assert one.bus.find() == []
    ran = [order.number for order in one.handler.events + other.handler.events]
    assert [number for number in ran if number < 4] == [1, 2, 3]


def test_a_pause_of_the_key_is_none_of_the_queue_or_of_a_handler_of_that_name(
    cluster: Cluster,
) -> None:
    peer = cluster.join("a")
    peer.bus.pause(order_key="orders")
    peer.bus.post(Order(1))
    peer.run()

    assert peer.handler.numbers() == [1]
    assert not peer.bus.resume()
    assert not peer.bus.resume(handler="orders")
    assert peer.bus.resume(order_key="orders")


def test_it_is_told_why_an_entry_of_the_key_waits(cluster: Cluster) -> None:
    peer = cluster.join("a")
    peer.bus.pause(order_key="k", reason="disputed", by="ann")
    first = peer.bus.post(Order(1), order_key="k")
    free = peer.bus.post(Order(1), order_key="free", delay=60)
    peer.run()

    [reason] = peer.bus.explain(first).reasons

    assert (reason.code, reason.facts["order_key"]) == ("paused", "k")
    assert reason.text.startswith("Its order key k is paused by ann since ")
    assert "paused" not in [one.code for one in peer.bus.explain(free).reasons]


def test_in_a_transaction(cluster: Cluster, engine: Engine) -> None:
    peer = cluster.join("a")
    with engine.begin() as connection:
        peer.bus.pause(order_key="k", connection=connection)
    with engine.connect() as connection:
        assert peer.bus.resume(order_key="k", connection=connection)
        connection.rollback()

    assert [pause.order_key for pause in peer.bus.pauses()] == ["k"]


def test_a_notification_queue_pauses_its_own_key(make_service: MakeService) -> None:
    service, recorder = make_service(), Recorder()
    queue = service.create_queue("shop", "held", recorder, event_types=[Order])
    other = service.create_queue("shop", "other", recorder, event_types=[Order])
    service.start()
    queue.pause(order_key="k")
    queue.schedule(Order(1), delay=0, order_key="k")
    other.schedule(Order(2), delay=0, order_key="k")

    assert recorder.wait() == [Order(2)]
    lane = paused_lane("shop:held", order_key="k")
    eventually(lambda: [entry.lane for entry in queue.find()] == [lane], "it is set aside")
    queue.resume(order_key="k")
    assert recorder.wait(2)[1] == Order(1)


def test_a_handler_and_a_key_at_once_are_refused(cluster: Cluster) -> None:
    bus = cluster.join("a").bus
    with pytest.raises(InvalidPostError, match=r"not of both\. Nothing was written"):
        bus.pause(handler="orders", order_key="k")
    with pytest.raises(InvalidPostError, match="order_key="):
        bus.resume(order_key="k" * 129)
    assert bus.pauses() == []
