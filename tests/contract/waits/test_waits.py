"""Entries that wait for others, from their post to their end."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from sqlalchemy import event, text

from queue_core.model.lanes import WAITING_LANE
from queue_core.reading.live_entries import Entries
from stickybus import (
    ConfigurationError,
    EntryNotFoundError,
    ImmediateRetries,
    InMemoryBus,
    InvalidPostError,
    NotificationService,
    Posting,
    State,
    inspect,
)
from tests.contract.cluster import Cluster, Peer
from tests.contract.harness import Order, Recorder, database_of


def waiting(peer: Peer) -> list[int]:
    return [entry.record_id for entry in peer.bus.find(states="WAITING")]


def ran(peer: Peer) -> list[int]:
    """The numbers of the orders in the order in which their handler was called."""
    return [order.number for order in peer.handler.events]


def waits(peer: Peer) -> int:
    """How many rows the table of waits has."""
    with peer.store.database.begin() as connection:
        return int(connection.execute(text("SELECT count(*) FROM queue_waits")).scalar_one())


def ends(peer: Peer) -> dict[int, State]:
    return {entry.record_id: entry.processing_state for entry in peer.bus.history()}


def failing(cluster: Cluster, *numbers: int, name: str = "a") -> tuple[Peer, Recorder]:
    """A node whose handler fails for some orders, for good."""
    peer = cluster.join(name, retry=ImmediateRetries(0))
    recorder = Recorder()

    def handle(order: Order, context: Any) -> None:
        recorder(order, context)
        if order.number in numbers:
            raise RuntimeError

    peer.handler = handle  # type: ignore[assignment]
    return peer, recorder


def test_an_entry_runs_when_all_that_it_waits_for_have_ended(cluster: Cluster) -> None:
    peer, stranger = cluster.join("a"), cluster.peer("stranger")
    first, second = (stranger.bus.post(Order(number)) for number in (1, 2))
    third = stranger.bus.post(Order(3), after=[first, second, first])
    fourth = stranger.bus.post(Order(4), after=[third])
    assert waiting(peer) == [third, fourth]
    assert {entry.lane for entry in peer.bus.find(states="WAITING")} == {WAITING_LANE}
    peer.run()
    cluster.live(4, peer)
    peer.run()
    assert sorted(ran(peer)[:2]) == [1, 2]
    assert ran(peer)[2:] == [3, 4]
    assert waits(peer) == 0
    assert peer.bus.find() == []
    assert all(entry.captured == {} for entry in peer.bus.history())


def test_a_single_wait_ends_in_the_transaction_of_what_it_waits_for(cluster: Cluster) -> None:
    peer, stranger = cluster.join("a"), cluster.peer("stranger")
    first = stranger.bus.post(Order(1))
    stranger.bus.post(Order(2), after=[first])
    peer.run()
    assert ran(peer) == [1, 2]
    assert waits(peer) == 0


def test_an_entry_may_be_awaited_while_it_runs(cluster: Cluster) -> None:
    peer, stranger = cluster.join("a"), cluster.peer("stranger")
    recorder = Recorder()

    def handle(order: Order, context: Any) -> None:
        if order.number == 1:
            stranger.bus.post(Order(2), after=[context.record_id])
        recorder(order, context)

    peer.handler = handle  # type: ignore[assignment]
    stranger.bus.post(Order(1))
    peer.run()
    assert [order.number for order in recorder.events] == [1, 2]


def test_what_has_succeeded_is_not_waited_for(cluster: Cluster) -> None:
    peer = cluster.join("a")
    first = peer.bus.post(Order(1))
    peer.run()
    second = peer.bus.post(Order(2), after=[first])
    assert [entry.processing_state for entry in peer.bus.find()] == [State.AVAILABLE]
    peer.run()
    assert ends(peer) == {first: State.PROCESSED, second: State.PROCESSED}
    assert waits(peer) == 0


@pytest.mark.parametrize("early", [True, False], ids=["posted before", "posted after"])
def test_a_failure_cancels_those_that_wait_and_those_that_wait_for_them(
    cluster: Cluster, *, early: bool
) -> None:
    peer, recorder = failing(cluster, 1)
    stranger = cluster.peer("stranger")
    first = stranger.bus.post(Order(1))
    if not early:
        peer.run()
    second = stranger.bus.post(Order(2), after=[first])
    third = stranger.bus.post(Order(3), after=[second])
    peer.run()
    assert [order.number for order in recorder.events] == [1]
    assert ends(peer) == {first: State.FAILED, second: State.REMOVED, third: State.REMOVED}
    errors = {entry.record_id: entry.last_error or "" for entry in peer.bus.history()}
    assert f"entry {first}," in errors[second]
    assert f"entry {second}," in errors[third]
    assert (peer.bus.find(), waits(peer)) == ([], 0)


def test_a_long_chain_is_cancelled_as_a_whole(cluster: Cluster) -> None:
    peer, _ = failing(cluster, 0)
    stranger = cluster.peer("stranger")
    last = first = stranger.bus.post(Order(0))
    for number in range(1, 30):
        last = stranger.bus.post(Order(number), after=[last])
    peer.run()
    assert set(ends(peer).values()) == {State.FAILED, State.REMOVED}
    assert len(ends(peer)) == 30
    assert (ends(peer)[first], waits(peer)) == (State.FAILED, 0)


def test_many_that_wait_for_one_are_released_in_several_looks(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("queue_core.links.dependencies.BATCH", 3)
    peer, stranger = cluster.join("a"), cluster.peer("stranger")
    first = stranger.bus.post(Order(0))
    stranger.bus.post_many([Posting(event=Order(number), after=[first]) for number in range(1, 11)])
    for _ in range(8):
        peer.run()
        cluster.live(4, peer)
    assert sorted(ran(peer)) == list(range(11))
    assert waits(peer) == 0


def test_an_entry_may_run_though_what_it_waited_for_has_failed(cluster: Cluster) -> None:
    peer, recorder = failing(cluster, 1)
    stranger = cluster.peer("stranger")
    first = stranger.bus.post(Order(1))
    stranger.bus.post(Order(2), after=[first], on_failed="run")
    peer.run()
    stranger.bus.post(Order(3), after=[first], on_failed="run")
    peer.run()
    assert [order.number for order in recorder.events] == [1, 2, 3]
    assert waits(peer) == 0


def test_a_held_entry_waits_for_the_retry(cluster: Cluster) -> None:
    peer = cluster.join("a", retry=ImmediateRetries(0))
    peer.handler = Recorder(failures=2)
    stranger = cluster.peer("stranger")
    first = stranger.bus.post(Order(1))
    second = stranger.bus.post(Order(2), after=[first], on_failed="hold")
    peer.run()
    cluster.live(4, peer)
    assert waiting(peer) == [second]
    copy = peer.bus.retry(first)
    peer.run()
    assert waiting(peer) == [second]
    peer.bus.retry(copy)
    peer.run()
    cluster.live(4, peer)
    peer.run()
    assert ran(peer) == [1, 1, 1, 2]
    assert waits(peer) == 0


def test_a_held_entry_can_be_released_and_removed(cluster: Cluster) -> None:
    peer, recorder = failing(cluster, 1)
    stranger = cluster.peer("stranger")
    first = stranger.bus.post(Order(1))
    second, third = (
        stranger.bus.post(Order(number), after=[first], on_failed="hold") for number in (2, 3)
    )
    peer.run()
    assert peer.bus.release(second)
    assert not peer.bus.release(second)
    assert Entries(peer.store, "bus").remove(third) == 1
    peer.run()
    assert [order.number for order in recorder.events] == [1, 2]
    assert ends(peer)[third] is State.REMOVED
    with pytest.raises(EntryNotFoundError):
        peer.bus.release(4711)


def test_the_removal_of_an_entry_cancels_those_that_wait(cluster: Cluster) -> None:
    peer = cluster.join("a")
    first = peer.bus.post(Order(1), delay=60)
    second = peer.bus.post(Order(2), after=[first], search_key1=7)
    third = peer.bus.post(Order(3), after=[second], on_failed="run")
    peer.bus.forget(search_key1=7)
    assert waiting(peer) == []
    peer.run()
    assert ran(peer) == [3]
    assert Entries(peer.store, "bus").remove(first) == 1
    assert ends(peer) == {first: State.REMOVED, third: State.PROCESSED}
    cluster.live(4, peer)
    peer.run()
    assert waits(peer) == 0


def test_the_copy_of_a_reaped_entry_is_waited_for(cluster: Cluster) -> None:
    dead, watcher = cluster.join("dead"), cluster.join("w")
    stranger = cluster.peer("stranger")
    first = stranger.bus.post(Order(1))
    second = stranger.bus.post(Order(2), after=[first])
    dead.claim()
    cluster.bury("dead", watcher)
    assert waiting(watcher) == [second]
    third = stranger.bus.post(Order(3), after=[first])  # by the id that it was posted under
    cluster.live(40, watcher, step=3)
    watcher.run()
    cluster.live(4, watcher)
    watcher.run()
    assert sorted(ran(watcher)) == [1, 2, 3]
    assert ran(watcher)[0] == 1
    assert ends(watcher)[third] is State.PROCESSED
    assert waits(watcher) == 0


def test_history_may_be_truncated_while_entries_wait(cluster: Cluster) -> None:
    peer, recorder = failing(cluster, 1)
    stranger = cluster.peer("stranger")
    first, other = stranger.bus.post(Order(1)), stranger.bus.post(Order(9), delay=30)
    held = stranger.bus.post(Order(2), after=[first], on_failed="hold")
    both = stranger.bus.post(Order(3), after=[first, other], on_failed="run")
    peer.run()
    peer.bus.truncate_history()
    assert waiting(peer) == [held, both]
    cluster.live(40, peer, step=3)
    peer.run()
    cluster.live(4, peer)
    peer.run()
    assert [order.number for order in recorder.events] == [1, 9, 3]
    assert waiting(peer) == [held]


def test_a_process_of_an_older_version_may_end_what_is_waited_for(cluster: Cluster) -> None:
    peer, stranger = cluster.join("a"), cluster.peer("stranger")
    first = stranger.bus.post(Order(1))
    stranger.bus.post(Order(2), after=[first])
    statements = peer.store.statements
    values = {"processing_state": "PROCESSED", "finished_date": cluster.clock.now()}
    peer.store.database.write(
        lambda connection: statements.to_history(connection, ids=[first], values=values)
    )
    peer.run()
    assert ran(peer) == []
    cluster.live(700, peer, step=5)
    peer.run()
    assert ran(peer) == [2]


@pytest.mark.parametrize("runs", [True, False], ids=["a node", "a process that only posts"])
def test_posts_in_callers_transactions_wait_too(cluster: Cluster, *, runs: bool) -> None:
    peer = cluster.join("a")
    poster = peer if runs else cluster.peer("stranger")
    done = poster.bus.post(Order(0))
    peer.run()
    with database_of(poster.bus).begin() as connection:
        first = poster.bus.post(Order(1), connection=connection)
        second = poster.bus.post(Order(2), after=[done, first], connection=connection)
        poster.bus.post(Order(3), after=[second], connection=connection)
    for _ in range(3):
        peer.run()
        cluster.live(4, peer)
    assert ran(peer) == [0, 1, 2, 3]
    assert waits(peer) == 0


def test_a_rolled_back_transaction_leaves_nothing(cluster: Cluster) -> None:
    peer = cluster.join("a")
    first = peer.bus.post(Order(1), delay=3)
    with database_of(peer.bus).engine.connect() as connection:
        peer.bus.post(Order(2), after=[first], connection=connection)
        connection.rollback()
    assert (waiting(peer), waits(peer)) == ([], 0)


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


def test_an_entry_that_has_lost_its_row_is_found_and_can_be_released(cluster: Cluster) -> None:
    peer = cluster.join("a")
    first = peer.bus.post(Order(1), delay=600)
    lost = peer.bus.post(Order(2), after=[first])
    peer.bus.post(Order(3), after=[first])
    peer.bus.post_many([Posting(event=Order(number), order_key="k") for number in (4, 5)])
    delete = text("DELETE FROM queue_waits WHERE waiter_id = :id")
    peer.store.database.write(lambda connection: connection.execute(delete, {"id": lost}))

    def found() -> list[str]:
        with inspect(cluster.url) as inspector:
            return [one.cure for one in inspector.doctor() if one.check == "lost-waits"]

    [cure] = found()
    assert f"entries release {lost} " in cure
    assert peer.bus.release(lost)
    assert found() == []
    [ordered] = [one for one in peer.bus.find(states="WAITING") if "!order" in (one.headers or "")]
    assert not peer.bus.release(ordered.record_id)


@pytest.mark.parametrize("lent", [True, False], ids=["in a transaction", "alone"])
def test_a_post_that_is_interrupted_at_any_statement_leaves_nothing(
    cluster: Cluster, *, lent: bool
) -> None:
    peer = cluster.join("a")
    database, place = database_of(peer.bus), 0
    first = peer.bus.post(Order(1), delay=60)

    class Interrupt(BaseException):
        pass

    def post() -> None:
        if not lent:
            peer.bus.post(Order(2), after=[first])
            return
        with database.begin() as connection:
            peer.bus.post(Order(2), after=[first], connection=connection)

    while True:
        left = place

        def interrupt(*_: object) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise Interrupt

        event.listen(database.engine, "before_cursor_execute", interrupt)
        with suppress(Interrupt):
            post()
        event.remove(database.engine, "before_cursor_execute", interrupt)
        if left >= 0:
            break
        assert ([one.record_id for one in peer.bus.find()], waits(peer)) == ([first], 0)
        place += 1
    assert place >= (3 if lent else 6)
    assert (len(peer.bus.find()), waits(peer)) == (2, 1)
