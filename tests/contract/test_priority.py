"""Priorities: a head start in the order of claims, which starves nobody."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest

from queue_core.model.lanes import ANY_NODE, PARKED, SUSPECT
from stickybus import InMemoryBus, InvalidPostError, Posting, ScheduledRetries
from tests.contract.cluster import Cluster, Peer
from tests.contract.conftest import MakeBus, MakeService
from tests.contract.harness import BOUND_SECONDS, Order, Recorder, eventually, lifecycle_of


def in_claim_order(peer: Peer) -> list[int]:
    """The numbers of the orders that nobody has, in the order of claims."""
    claimed = lifecycle_of(peer.bus).holdings.moves.claim(ANY_NODE, "a", 10).entries
    return [int((entry.event_json or "").partition(":")[2].rstrip("}")) for entry in claimed]


def test_what_is_due_is_claimed_by_its_priority(cluster: Cluster) -> None:
    poster = cluster.peer("poster")
    poster.bus.post(Order(1))
    poster.bus.post(Order(2), priority="high")
    poster.bus.post_many([Order(3), Posting(event=Order(4), priority="urgent")])
    assert in_claim_order(poster) == [4, 2, 1, 3]


@pytest.mark.parametrize(("priority", "minutes"), [("high", 10), ("urgent", 60)])
def test_no_priority_overtakes_what_was_posted_a_head_start_before(
    cluster: Cluster, priority: Any, minutes: int
) -> None:
    poster = cluster.peer("poster")
    poster.bus.post(Order(1))
    cluster.clock.advance(seconds=60 * minutes + 1)
    poster.bus.post(Order(2))
    poster.bus.post(Order(3), priority=priority)
    assert in_claim_order(poster) == [1, 3, 2]


def test_a_retry_that_runs_at_once_keeps_its_place(cluster: Cluster) -> None:
    peer = cluster.peer("a")
    peer.handler = Recorder(failures=2)
    peer.join()
    peer.bus.post(Order(1))
    peer.bus.post(Order(2), priority="urgent")
    posted = peer.bus.find()
    cluster.clock.advance(seconds=1)
    peer.lifecycle.run_due()
    normal, urgent = peer.bus.find()
    assert normal.error_count == urgent.error_count == 1
    assert normal.effective_date == posted[0].effective_date + timedelta(seconds=1)
    assert urgent.effective_date == posted[1].effective_date


def test_a_later_retry_has_no_head_start(cluster: Cluster) -> None:
    peer = cluster.peer("a", retry=ScheduledRetries((timedelta(hours=2),)))
    peer.handler = Recorder(failures=1)
    peer.join()
    peer.bus.post(Order(1), priority="urgent")
    peer.run()
    [entry] = peer.bus.find()
    assert entry.effective_date > cluster.clock.now()
    cluster.clock.advance(seconds=30)
    peer.run()
    assert len(peer.handler.events) == 1


@pytest.mark.parametrize("priority", ["normal", "high", "urgent"])
@pytest.mark.parametrize(
    ("waited", "minutes"),
    [(0, [5, 15, 60, 360, 1440]), (30, [30, 40, 85, 385, 1465]), (120, [120, 130, 175, 475, 1555])],
)
def test_a_schedule_of_retries_keeps_its_distances_whatever_the_priority(
    cluster: Cluster, priority: Any, waited: int, minutes: list[int]
) -> None:
    peer = cluster.peer("a", retry=ScheduledRetries(), lease_seconds=1e6)
    peer.handler = Recorder(failures=99)
    posted, runs = cluster.clock.now(), list[int]()
    peer.join().bus.post(Order(1), priority=priority)
    cluster.clock.advance(seconds=60 * waited)
    while peer.lifecycle.run_due() and peer.bus.find():
        [entry] = peer.bus.find()
        due = max(entry.effective_date, cluster.clock.now())
        runs.append((due - posted) // timedelta(minutes=1))
        cluster.clock.advance_to(due)
    assert runs == minutes


def test_a_head_start_is_no_lateness(cluster: Cluster) -> None:
    peer = cluster.peer("a")
    contexts = list[Any]()
    peer.instead = lambda _order, context: contexts.append(context)
    peer.join()
    record_id = peer.bus.post(Order(1), priority="urgent")
    [reason] = peer.bus.explain(record_id).reasons
    assert "since" not in reason.facts or reason.facts["since"] == cluster.clock.now()
    peer.run()
    assert contexts[0].lateness == timedelta()


@pytest.mark.parametrize("on_conflict", ["replace", "debounce"])
def test_what_replaces_an_entry_has_the_head_start_of_its_own_priority(
    cluster: Cluster, on_conflict: Any
) -> None:
    poster = cluster.peer("poster")
    poster.bus.post(Order(1), key="effect", delay=timedelta(hours=3))
    cluster.clock.advance(seconds=7_200)
    poster.bus.post(Order(2))
    poster.bus.post(Order(3), key="effect", priority="urgent", on_conflict=on_conflict)
    node = cluster.join("a")
    cluster.live(5, node)
    node.run()
    assert [order.number for order in node.handler.events] == [3, 2]
    replaced = node.handler.contexts[0]
    assert (replaced.age, replaced.lateness) == (timedelta(seconds=5), timedelta(seconds=5))


def test_a_head_start_is_no_age_of_a_queue(cluster: Cluster) -> None:
    poster, now = cluster.peer("poster"), cluster.clock.now()
    poster.bus.post(Order(1), priority="urgent")
    statements, paused = poster.store.statements, ("!paused", "!paused~")
    with poster.store.database.begin() as connection:
        [in_lane] = statements.lane_counts(connection, lane=ANY_NODE, until=now, limit=10)
        [of_queue] = statements.live_counts(
            connection,
            now=now,
            since=now,
            parked=PARKED,
            suspect=SUSPECT,
            paused=paused,
            limited=[("!limited", "!limited~")],
        )
    assert in_lane.oldest == of_queue.oldest == now


def test_priorities_that_would_start_an_entry_early_are_refused(cluster: Cluster) -> None:
    bus = cluster.peer("a").bus
    first = bus.post(Order(1))
    with pytest.raises(InvalidPostError, match="due now"):
        bus.post(Order(2), priority="urgent", delay=1)
    with pytest.raises(InvalidPostError, match="due now"):
        bus.post(Order(2), priority="urgent", after=[first])
    with pytest.raises(InvalidPostError, match="normal, high, urgent"):
        bus.post(Order(2), priority="low")  # type: ignore[call-overload]
    assert [entry.record_id for entry in bus.find()] == [first]


def test_a_date_that_has_come_may_have_a_priority(make_service: MakeService) -> None:
    queue = make_service().create_queue("shop", "mails", lambda _event: None)
    record_id = queue.schedule({"n": 1}, delay=0, priority="high")
    [entry] = queue.find()
    assert entry.record_id == record_id
    assert entry.created_date - entry.effective_date >= timedelta(minutes=10)


def test_the_bus_in_memory_runs_in_the_order_of_posting() -> None:
    with InMemoryBus() as bus, pytest.raises(InvalidPostError, match="priority"):
        bus.post(Order(1), priority="high")


def test_what_a_node_holds_is_overtaken_in_turns(make_bus: MakeBus) -> None:
    bus = make_bus(handler_threads=1)
    started, go_on, done = threading.Event(), threading.Event(), list[int]()

    def handle(order: Order) -> None:
        started.set()
        assert go_on.wait(BOUND_SECONDS)
        done.append(order.number)

    bus.subscribe(Order, handle, name="orders")
    bus.start()
    bus.post(Order(0))
    assert started.wait(BOUND_SECONDS)
    for number in (1, 2, 3):
        bus.post(Order(number))
    for number in (11, 12, 13):
        bus.post(Order(number), priority="urgent")
    go_on.set()
    eventually(lambda: len(done) == 7, "all have run")
    assert done == [0, 11, 1, 12, 2, 13, 3]
