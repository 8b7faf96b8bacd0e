"""Posts with limit keys: beside other options, in transactions, and refused."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import create_engine

import stickybus
from queue_core.model.lanes import is_keyed, keyed_lane
from queue_core.reading.depths import depths
from stickybus import ExactlyOnceContext, InvalidPostError, PersistentBus, State
from tests import requirements as needs
from tests.contract.cluster import Cluster
from tests.contract.conftest import MakeBus, MakeService
from tests.contract.harness import Order, Recorder, database_of, ended, eventually
from tests.contract.limiting.key_looks import ANN, claimed, go_round, lanes, post


def test_a_limit_key_goes_with_an_order_key_and_with_dependencies(cluster: Cluster) -> None:
    peer = cluster.join("a", handler_threads=10)
    peer.bus.limit(per_key=1)
    first = peer.bus.post(Order(0), limit_key="ann", order_key="x")
    post(peer, 1, order_key="x")
    post(peer, 2, after=[first])
    post(peer, 3, order_key="y")
    peer.claim()
    assert claimed(peer) == 1
    peer.run()
    numbers = peer.handler.numbers()
    assert sorted(numbers) == [0, 1, 2, 3]
    assert numbers.index(0) < numbers.index(1)


def test_the_end_of_an_exactly_once_handler_lets_the_next_go(make_bus: MakeBus) -> None:
    """Long before a node goes through the keys."""
    bus, numbers = make_bus(lease_seconds=300.0), list[int]()

    def handle(order: Order, context: ExactlyOnceContext) -> None:
        context.connection.exec_driver_sql("SELECT 1")
        numbers.append(order.number)

    bus.subscribe(Order, handle, name="orders", exactly_once=True)
    bus.limit(per_key=1)
    bus.start()
    for number in range(4):
        bus.post(Order(number), limit_key="ann")
    ended(bus, 4)
    assert sorted(numbers) == list(range(4))


def test_what_a_caller_posts_is_limited_once_it_has_committed(cluster: Cluster) -> None:
    peer = cluster.join("a")
    peer.bus.limit(per_key=1)
    engine = create_engine(peer.store.database.url)
    with engine.begin() as connection:
        for number in range(3):
            peer.bus.post(Order(number), limit_key="ann", connection=connection)
    engine.dispose()
    peer.claim()
    assert peer.numbers_held() == [0]
    assert lanes(peer) == [ANN] * 2
    peer.run()
    assert peer.handler.numbers() == [0, 1, 2]


def test_what_replaces_an_entry_brings_its_own_limit_key(cluster: Cluster) -> None:
    peer = cluster.join("a", handler_threads=10)
    peer.bus.limit(per_key=1)
    post(peer, 0)
    peer.claim()
    peer.bus.post(Order(1), key="effect", limit_key="ann", delay=5)
    peer.bus.post(Order(2), key="effect", limit_key="bob", on_conflict="replace")
    peer.claim()
    assert peer.numbers_held() == [0, 2]


def test_a_removed_entry_leaves_the_others_waiting_for_the_place(cluster: Cluster) -> None:
    peer = cluster.join("a")
    peer.bus.limit(per_key=1)
    post(peer, 0)
    waiting = peer.bus.post(Order(1), limit_key="ann", search_key1=1)
    post(peer, 2)
    peer.claim()
    assert peer.bus.remove_all(record_ids=[waiting]).changed == 1
    peer.run()
    assert peer.handler.numbers() == [0, 2]


@needs.many_writers
def test_a_transaction_that_holds_the_next_entry_holds_up_no_outcome(cluster: Cluster) -> None:
    peer = cluster.join("a")
    peer.bus.limit(per_key=1)
    post(peer, 0)
    waiting = peer.bus.post(Order(1), limit_key="ann")
    post(peer, 2)
    peer.claim()
    engine = create_engine(peer.store.database.url)
    with engine.begin() as connection:
        connection.exec_driver_sql(
            f"UPDATE bus_events SET user_token = 'x' WHERE record_id = {waiting}"
        )
        peer.lifecycle.pool.run_submitted()
        peer.lifecycle.finisher.write_all()
        assert peer.handler.numbers() == [0]
    engine.dispose()
    go_round(cluster, peer)
    peer.run()
    assert peer.handler.numbers() == [0, 1, 2]


def test_it_is_explained_that_an_entry_waits_for_a_place_of_its_key(cluster: Cluster) -> None:
    peer = cluster.join("a")
    peer.bus.limit(per_key=1, by="ann")
    post(peer, 0)
    waiting = peer.bus.post(Order(1), limit_key="ann")
    peer.claim()

    [reason] = [one for one in peer.bus.explain(waiting).reasons if one.code == "limited"]
    assert "limited to 1 at once of each key by ann" in reason.text
    [running] = peer.bus.find(states=State.IN_PROCESSING)
    assert f"Running now with the limit key ann: 1 ({running.record_id})" in reason.text
    assert (reason.facts["limit_key"], reason.facts["running"]) == ("ann", 1)
    assert reason.facts["running_ids"] == str(running.record_id)
    assert reason.facts["until"] is None

    other = PersistentBus(peer.store.database.url)
    other.unlimit()
    assert [one.code for one in other.explain(waiting).reasons][:1] == ["unlimited"]
    other.close()


def test_it_is_explained_until_when_the_rate_of_its_key_holds_an_entry_up(cluster: Cluster) -> None:
    peer = cluster.join("a")
    peer.bus.limit(rate_per_key=1, per=timedelta(minutes=1))
    waiting = [peer.bus.post(Order(number), limit_key="ann") for number in range(2)][-1]
    peer.claim()
    peer.run()

    [reason] = [one for one in peer.bus.explain(waiting).reasons if one.code == "limited"]
    assert reason.facts["until"] == cluster.clock.now() + timedelta(minutes=1)
    assert "Its rate allows the next start at 2026-01-01 00:01:00 UTC" in reason.text


def test_what_waits_for_places_of_keys_counts_as_ready(cluster: Cluster) -> None:
    peer = cluster.join("a")
    peer.bus.limit(per_key=1)
    for number in range(6):
        post(peer, number, key=str(number % 2))
    peer.claim()
    assert sum(map(is_keyed, lanes(peer))) == 4
    assert [(depth.ready, depth.limited) for depth in depths(peer.store)] == [(4, 4)]


def test_a_notification_queue_limits_its_keys(make_service: MakeService) -> None:
    handler = Recorder(hold=True)
    service = make_service()
    queue = service.create_queue("shop", "mails", handler)
    service.start()
    made = queue.limit(per_key=1)
    assert queue.limits() == [made]
    for number in range(3):
        queue.schedule(Order(number), delay=0, limit_key="ann")
    handler.wait(1)
    eventually(
        lambda: (
            [one.lane for one in queue.find(states=State.AVAILABLE)]
            == [keyed_lane(queue.full_name, "ann")] * 2
        ),
        "the others wait",
    )
    assert handler.running == 1
    handler.release()
    ended(queue, 3)


def test_a_look_that_began_before_a_limit_does_not_forget_it(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = cluster.join("a")
    database = database_of(peer.bus)
    fetch = database.fetch

    def late(work: Any) -> Any:
        found = fetch(work)
        monkeypatch.undo()
        peer.bus.limit(per_key=1)
        return found

    monkeypatch.setattr(database, "fetch", late)
    peer.lifecycle.limited.turn(cluster.clock.monotonic() + 60)
    assert "bus" in peer.lifecycle.holdings.places.keys.queues


def test_a_limit_of_keys_is_told(cluster: Cluster) -> None:
    peer = cluster.join("a")
    made = peer.bus.limit(
        per_key=3, rate_per_key=10, per=timedelta(minutes=1), burst_per_key=2, by="ann"
    )
    assert peer.bus.limits() == [made]
    assert made.told == "3 at once of each key, 10 in 60 s of each key"


@pytest.mark.parametrize("key", ["", "x" * 129, 7, "a\0b"])
def test_a_limit_key_that_no_database_stores_is_refused(cluster: Cluster, key: Any) -> None:
    with pytest.raises(InvalidPostError, match="limit_key"):
        cluster.join("a").bus.post(Order(0), limit_key=key)


@pytest.mark.parametrize("name", ["per_key", "rate_per_key", "burst_per_key"])
@pytest.mark.parametrize("count", [0, -1, True, 1.5])
def test_a_limit_of_keys_that_is_no_count_is_refused(
    cluster: Cluster, name: str, count: Any
) -> None:
    options: Any = {name: count, "concurrency": 1}
    with pytest.raises(InvalidPostError, match=f"{name}="):
        cluster.join("a").bus.limit(**options)


def test_the_bus_in_memory_refuses_limit_keys() -> None:
    bus = stickybus.InMemoryBus()
    bus.subscribe(Order, Recorder(), name="orders")
    with pytest.raises(InvalidPostError, match="limit_key needs the persistent bus"):
        bus.post_many([stickybus.Posting(event=Order(0), limit_key="ann")])
