"""What an entry waits for, as it is declared, computed, refused and explained."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import text

from stickybus import (
    ConfigurationError,
    EntryNotFoundError,
    InMemoryBus,
    InvalidPostError,
    NotificationService,
    Posting,
    State,
)
from tests.contract.cluster import Cluster, Peer
from tests.contract.harness import Order, database_of
from tests.contract.waits.looks import failing, waiting, waits


def test_what_does_not_exist_can_not_be_waited_for(cluster: Cluster) -> None:
    peer = cluster.join("a")
    first = peer.bus.post(Order(1), delay=3)
    with pytest.raises(EntryNotFoundError, match="4711") as raised:
        peer.bus.post(Order(2), after=[first, 4711])
    assert raised.value.record_id == 4711
    with (
        pytest.raises(EntryNotFoundError),
        database_of(peer.bus).begin() as connection,
    ):
        peer.bus.post(Order(2), after=[first, 4711], connection=connection)
    assert [entry.record_id for entry in peer.bus.find()] == [first]
    assert waits(peer) == 0


@pytest.mark.parametrize(
    "options",
    [
        {"after": "12"},
        {"after": 12},
        {"after": ["12"]},
        {"after": [True]},
        {"after": [1], "on_failed": "stop"},
        {"on_failed": "stop"},
        {"on_failed": "stop", "key": "k"},
        {"after": ("bus", "k")},
        {"after": range(1001)},
        *(
            {"after": [1], "key": "k", "on_conflict": on}
            for on in ("replace", "requeue", "debounce")
        ),
    ],
)
def test_what_can_not_be_waited_for_is_refused(cluster: Cluster, options: Any) -> None:
    peer = cluster.join("a")
    with pytest.raises(InvalidPostError):
        peer.bus.post(Order(1), **options)
    assert peer.bus.find() == []


def test_a_pair_that_is_in_no_list_is_refused_with_what_is_allowed(cluster: Cluster) -> None:
    with pytest.raises(InvalidPostError, match="Allowed: a list of ids, and of pairs"):
        cluster.join("a").bus.post(Order(1), after=("bus", "k"))  # type: ignore[arg-type]


def test_the_bus_in_memory_waits_for_nothing() -> None:
    with InMemoryBus() as bus, pytest.raises(InvalidPostError, match="after"):
        bus.post(Order(1), after=[1])


def test_events_may_tell_themselves_what_they_wait_for(cluster: Cluster) -> None:
    peer = cluster.join("a")
    peer.bus.register_event(Order, after=lambda order: [order.number] if order.number else [])
    first = peer.bus.post(Order(0), delay=3)
    second = peer.bus.post(Order(first))
    assert waiting(peer) == [second]
    assert [entry.record_id for entry in peer.bus.find(states="AVAILABLE")] == [first]
    peer.bus.register_event(Order, after=lambda order: [order.number // 0])
    with pytest.raises(InvalidPostError, match="ZeroDivisionError"):
        peer.bus.post(Order(3))
    peer.bus.post(Order(3), after=[])


def test_notifications_wait_too(cluster: Cluster) -> None:
    peer = cluster.join("a")
    service = NotificationService(cluster.url, clock=cluster.clock)
    queue = service.create_queue("shop", "mail", lambda _event: None, event_types=[Order])
    first = queue.schedule(Order(1), delay=60)
    second = queue.schedule(Order(2), delay=0, after=[first])
    [third] = queue.schedule_many([Posting(event=Order(3), after=[second], on_failed="run")])
    assert [entry.record_id for entry in queue.find(states="WAITING")] == [second, third]
    assert queue.remove(first) == 1
    assert [entry.record_id for entry in queue.find()] == [third]
    assert queue.find()[0].processing_state is State.AVAILABLE
    assert waits(peer) == 0
    service.close()


def test_what_a_key_names_is_waited_for(cluster: Cluster) -> None:
    peer = cluster.join("a")
    first = peer.bus.post(Order(1), key="k", delay=3)
    second = peer.bus.post(Order(2), delay=3)
    third = peer.bus.post(Order(3), after=[("bus", "k"), second])
    assert waiting(peer) == [third]
    with database_of(peer.bus).begin() as connection:
        inner = peer.bus.post(Order(4), key="inner", delay=3, connection=connection)
        fourth = peer.bus.post(Order(5), after=[("bus", "inner")], connection=connection)
        rows = connection.execute(text("SELECT waiter_id, awaited_id FROM queue_waits")).all()
    assert sorted(rows) == [(third, first), (third, second), (fourth, inner)]
    with pytest.raises(EntryNotFoundError, match="'other'"):
        peer.bus.post(Order(6), after=[("bus", "k"), ("bus", "other")])
    with pytest.raises(EntryNotFoundError, match="'k'"):
        peer.bus.post(Order(6), after=[("elsewhere", "k")])
    for wrong in (("bus",), ("bus", 7), ("bus", "a", "b")):
        with pytest.raises(InvalidPostError, match="after"):
            peer.bus.post(Order(6), after=[wrong])  # type: ignore[list-item]
    cluster.live(3, peer)
    peer.run()
    assert [order.number for order in peer.handler.events][-2:] == [3, 5]
    assert peer.bus.find() == []


def test_a_queue_computes_what_its_notifications_wait_for(cluster: Cluster) -> None:
    service = NotificationService(cluster.url, clock=cluster.clock)
    options: dict[str, Any] = {"event_types": [Order]}
    service.create_queue(
        "shop",
        "mail",
        lambda _event: None,
        after=lambda order: [order.number] if order.number else [],
        **options,
    )
    mail, other = service.get_queue("shop:mail"), service.create_queue("shop", "other", print)
    first = mail.schedule(Order(0), delay=60)
    second, third = mail.schedule_many([Posting(event=Order(first)), Posting(event=Order(0))])
    fourth = mail.schedule(Order(first), delay=0, after=[])
    assert [entry.record_id for entry in mail.find(states="WAITING")] == [second]
    assert [entry.record_id for entry in mail.find()] == [first, second, third, fourth]
    assert other.schedule({"number": first}, delay=0) not in [
        entry.record_id for entry in other.find(states="WAITING")
    ]
    with pytest.raises(ConfigurationError, match="after"):
        service.create_queue("shop", "wrong", print, after=7)  # type: ignore[call-overload]
    service.delete_queue("shop", "mail")
    again = service.create_queue("shop", "mail", lambda _event: None, **options)
    again.schedule(Order(first), delay=0)
    assert [entry.record_id for entry in again.find(states="WAITING")] == [second]
    service.close()


def test_what_an_entry_waits_for_is_explained(cluster: Cluster) -> None:
    peer, _ = failing(cluster, 1)
    stranger = cluster.peer("stranger")
    first, other = stranger.bus.post(Order(1)), stranger.bus.post(Order(2), delay=600)
    both = stranger.bus.post(Order(3), after=[first, other], on_failed="hold")
    held = stranger.bus.post(Order(4), after=[first], on_failed="hold")
    peer.run()
    cluster.live(4, peer)

    def reasons(record_id: int) -> list[tuple[str, Any]]:
        return [
            (reason.code, reason.facts["record_id"])
            for reason in peer.bus.explain(record_id).reasons
            if "record_id" in reason.facts
        ]

    assert reasons(both) == [("waits-for-entry", other)]
    assert reasons(held) == [("dependency-failed", first)]


def test_an_entry_whose_waits_are_over_is_not_called_ready(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So many wait for one entry that its end does not decide about all of them."""
    monkeypatch.setattr("queue_core.links.dependencies.BATCH", 1)
    peer = cluster.join("a")
    peer.beat()
    first = peer.bus.post(Order(0))
    waiting = [peer.bus.post(Order(number), after=[first]) for number in (1, 2)]
    peer.lifecycle.pool.run_submitted()
    peer.lifecycle.finisher.write_all()

    codes = [[reason.code for reason in peer.bus.explain(one).reasons] for one in waiting]
    assert codes == [["ready"], ["waits-over"]]


def forget_history(cluster: Cluster, peer: Peer) -> None:
    cluster.live(1, peer)
    peer.bus.truncate_history(before=cluster.clock.now())
    assert peer.bus.history() == []


@pytest.mark.parametrize("settings", [{}, {"history": "failures"}])
def test_a_kept_key_tells_how_an_entry_has_ended_that_left_no_row(
    cluster: Cluster, settings: Any
) -> None:
    peer = cluster.join("a", **settings)
    peer.bus.post(Order(1), key="k", keep="forever")
    peer.run()
    forget_history(cluster, peer)
    peer.bus.post(Order(2), after=[("bus", "k")])
    with database_of(peer.bus).begin() as connection:
        peer.bus.post(Order(3), after=[("bus", "k")], connection=connection)
    cluster.live(1, peer)
    peer.run()
    assert sorted(order.number for order in peer.handler.events) == [1, 2, 3]
    assert waits(peer) == 0


@pytest.mark.parametrize(
    ("on_failed", "state"), [("cancel", State.REMOVED), ("run", State.PROCESSED)]
)
def test_a_kept_key_tells_that_an_entry_has_failed_that_left_no_row(
    cluster: Cluster, on_failed: Any, state: State
) -> None:
    peer, _ = failing(cluster, 1)
    first = peer.bus.post(Order(1), key="k", keep="forever")
    peer.run()
    forget_history(cluster, peer)
    second = peer.bus.post(Order(2), after=[("bus", "k")], on_failed=on_failed)
    peer.run()
    [entry] = peer.bus.history(record_ids=[second])
    assert entry.processing_state is state
    assert waits(peer) == 0
    if state is State.REMOVED:
        assert f"entry {first}" in (entry.last_error or "")
