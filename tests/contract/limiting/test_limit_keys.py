"""Of the entries of one limit key, all nodes together run no more than their queue's limit says."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import create_engine

import stickybus
from queue_core.claiming.limited_keys import ROUNDS_A_LEASE
from queue_core.model.lanes import ANY_NODE, SUSPECT, is_keyed, keyed_lane
from queue_core.reading.depths import depths
from queue_core.storage import key_places
from stickybus import ExactlyOnceContext, InvalidPostError, Mode, PersistentBus, State
from tests import requirements as needs
from tests.contract.cluster import Cluster, Peer
from tests.contract.conftest import MakeBus, MakeService
from tests.contract.harness import Order, Recorder, database_of, ended, eventually, meanwhile

ANN = keyed_lane("bus", "ann")


def hear(cluster: Cluster, *peers: Peer, seconds: int = 1) -> None:
    """Let the time pass after which each node has heard of a change."""
    cluster.live(seconds, *peers)
    for peer in peers:
        peer.lifecycle.limited.turn(cluster.clock.monotonic())
        peer.lifecycle.limited.keys.turn(cluster.clock.monotonic())


def go_round(cluster: Cluster, *peers: Peer) -> None:
    """Let nodes go through all keys."""
    hear(cluster, *peers, seconds=int(peers[0].bus.config.node.lease_seconds / ROUNDS_A_LEASE) + 1)


def post(peer: Peer, *numbers: int, key: str | None = "ann", **options: Any) -> None:
    for number in numbers:
        peer.bus.post(Order(number), limit_key=key, **options)


def claimed(peer: Peer) -> int:
    return len(peer.bus.find(states=State.IN_PROCESSING))


def lanes(peer: Peer) -> list[str]:
    return [entry.lane for entry in peer.bus.find(states=State.AVAILABLE)]


def keys_with_rows(peer: Peer) -> set[str]:
    page = peer.store.statements.page_of_keys
    rows = peer.store.database.fetch(lambda connection: page(connection, after="", limit=100))
    return {row.lane for row in rows}


# -- concurrency ----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", list(Mode))
def test_all_nodes_together_claim_no_more_of_a_key_than_the_limit(
    cluster: Cluster, mode: Mode
) -> None:
    one, other = cluster.join("a", mode=mode), cluster.join("b", mode=mode)
    one.bus.limit(per_key=2)
    hear(cluster, one, other)

    for number in range(10):
        post((one, other)[number % 2], number)
        one.claim()
        other.claim()
        assert claimed(one) <= 2

    assert claimed(one) == 2
    assert lanes(one) == [ANN] * 8
    for _ in range(5):
        one.run()
        other.run()
    assert sorted(one.handler.numbers() + other.handler.numbers()) == list(range(10))


def test_keys_have_places_of_their_own_and_entries_without_a_key_need_none(
    cluster: Cluster,
) -> None:
    peer = cluster.join("a", handler_threads=10)
    peer.bus.limit(per_key=1)
    post(peer, 0, 1, key="ann")
    post(peer, 2, 3, key="bob")
    post(peer, 4, 5, key=None)

    peer.claim()
    assert peer.numbers_held() == [0, 2, 4, 5]
    peer.run()
    assert sorted(peer.handler.numbers()) == list(range(6))


def test_a_key_without_a_limit_changes_nothing(cluster: Cluster) -> None:
    peer = cluster.join("a")
    post(peer, 0, 1)
    peer.claim()
    assert peer.numbers_held() == [0, 1]
    assert keys_with_rows(peer) == set()


def test_the_end_of_one_lets_the_next_go_at_once_in_the_order_of_dates(cluster: Cluster) -> None:
    peer = cluster.join("a")
    peer.bus.limit(per_key=1)
    post(peer, *range(4))
    peer.claim()
    assert lanes(peer) == [ANN] * 3

    peer.lifecycle.run_due()
    assert peer.handler.numbers() == [0]
    assert lanes(peer) == [ANY_NODE, ANN, ANN]
    peer.claim()
    assert peer.numbers_held() == [1]
    peer.run()
    assert peer.handler.numbers() == list(range(4))


def test_an_entry_that_waits_for_its_retry_gives_its_place_up(cluster: Cluster) -> None:
    peer = cluster.join("a", retry=stickybus.ExponentialRetries(initial_seconds=300))
    peer.handler = Recorder(failures=1)
    peer.bus.limit(per_key=1)
    post(peer, 0, 1)
    peer.run()

    assert peer.handler.calls == 2
    assert [entry.error_count for entry in peer.bus.find()] == [1]


def test_an_entry_with_a_date_takes_no_place_before_it(cluster: Cluster) -> None:
    peer = cluster.join("a")
    peer.bus.limit(per_key=1)
    post(peer, 0, delay=60)
    post(peer, 1)
    peer.run()
    assert peer.handler.numbers() == [1]
    post(peer, 2)
    cluster.live(61, peer)
    peer.run()
    assert sorted(peer.handler.numbers()) == [0, 1, 2]


def test_an_entry_that_is_set_aside_in_a_pause_gives_its_place_up(cluster: Cluster) -> None:
    peer = cluster.join("a", handler_threads=4)
    peer.bus.limit(per_key=1)
    post(peer, 0, 1, 2)
    peer.claim()
    assert peer.numbers_held() == [0]
    peer.bus.pause()
    peer.lifecycle.pool.run_submitted()
    peer.lifecycle.finisher.write_all()
    assert peer.handler.calls == 0

    peer.bus.resume()
    hear(cluster, peer)
    peer.run()
    assert sorted(peer.handler.numbers()) == [0, 1, 2]


def test_the_places_of_a_dead_node_are_free_once_it_was_reaped(cluster: Cluster) -> None:
    dead, alive = cluster.join("a"), cluster.join("b")
    dead.bus.limit(per_key=2)
    hear(cluster, dead, alive)
    post(dead, *range(5))
    assert len(dead.claim()) == 2
    assert alive.claim() == []

    cluster.bury("a", alive)
    for _ in range(3):
        go_round(cluster, alive)
        alive.run()

    assert sorted(alive.handler.numbers()) == list(range(5))
    assert dead.handler.calls == 0


def test_a_suspect_that_finds_no_place_is_a_suspect_when_it_has_one(cluster: Cluster) -> None:
    dead, alive = cluster.join("a", mode=Mode.POLLING), cluster.join("b", mode=Mode.POLLING)
    dead.bus.limit(per_key=1)
    hear(cluster, dead, alive)
    post(dead, 0)
    dead.claim()
    cluster.bury("a", alive)
    assert lanes(alive) == [SUSPECT]
    post(alive, 1)
    alive.claim()
    assert alive.numbers_held() == [1]
    assert lanes(alive) == [ANN]

    alive.lifecycle.pool.run_submitted()
    alive.lifecycle.finisher.write_all()
    assert lanes(alive) == [SUSPECT]
    alive.run()
    assert sorted(alive.handler.numbers()) == [0, 1]


def test_what_ran_before_its_node_knew_of_the_limit_counts(make_bus: MakeBus) -> None:
    handler = Recorder(hold=True)
    bus = make_bus(handler_threads=4)
    bus.subscribe(Order, handler, name="orders")
    bus.start()
    for number in range(2):
        bus.post(Order(number), limit_key="ann")
    handler.wait(2)

    bus.limit(per_key=3)
    for number in range(2, 6):
        bus.post(Order(number), limit_key="ann")
    handler.wait(3)
    eventually(lambda: any(is_keyed(one.lane) for one in bus.find()), "others wait for a place")

    assert handler.running == 3
    handler.release()
    ended(bus, 6)
    assert sorted(handler.numbers()) == list(range(6))


def test_what_was_born_claimed_before_its_node_knew_of_the_limit_waits_for_a_place(
    cluster: Cluster,
) -> None:
    one, other = cluster.join("a"), cluster.join("b")
    post(one, 0, 1, 2)
    assert claimed(one) == 3
    other.bus.limit(per_key=1)
    hear(cluster, one, other)

    one.lifecycle.pool.run_submitted()
    assert one.handler.calls == 0
    one.lifecycle.finisher.write_all()
    one.run()
    assert sorted(one.handler.numbers()) == [0, 1, 2]


# -- with a limit of the queue --------------------------------------------------------------------


def test_an_entry_needs_a_place_of_its_queue_and_one_of_its_key(cluster: Cluster) -> None:
    peer = cluster.join("a", handler_threads=10)
    peer.bus.limit(concurrency=3, per_key=2)
    post(peer, 0, 1, 2, key="ann")
    post(peer, 3, 4, 5, key="bob")

    peer.claim()
    assert peer.numbers_held() == [0, 1, 3]
    for _ in range(6):
        peer.run()
        hear(cluster, peer)
        assert claimed(peer) <= 3
    assert sorted(peer.handler.numbers()) == list(range(6))


# -- changes --------------------------------------------------------------------------------------


def test_a_raised_limit_lets_more_go_and_a_lowered_one_lets_what_runs_finish(
    cluster: Cluster,
) -> None:
    peer = cluster.join("a", handler_threads=10)
    peer.bus.limit(per_key=1)
    post(peer, *range(8))
    peer.claim()
    assert peer.numbers_held() == [0]

    peer.bus.limit(per_key=3)
    peer.claim()
    assert peer.numbers_held() == [0, 1, 2]

    peer.bus.limit(per_key=1)
    go_round(cluster, peer)
    peer.claim()
    assert peer.numbers_held() == [0, 1, 2]
    peer.lifecycle.pool.run_submitted()
    peer.lifecycle.finisher.write_all()
    peer.claim()
    assert len(peer.numbers_held()) == 1
    peer.run()
    assert sorted(peer.handler.numbers()) == list(range(8))


def test_without_the_limit_all_that_waited_runs(cluster: Cluster) -> None:
    peer = cluster.join("a", handler_threads=10)
    peer.bus.limit(per_key=1)
    post(peer, *range(5))
    peer.claim()
    assert lanes(peer) == [ANN] * 4

    assert peer.bus.unlimit()
    peer.claim()
    assert peer.numbers_held() == list(range(5))
    peer.run()
    go_round(cluster, peer)
    assert keys_with_rows(peer) == set()


def test_all_that_waited_runs_page_by_page(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_places, "PAGE", 2)
    peer = cluster.join("a", handler_threads=10)
    peer.bus.limit(per_key=1)
    post(peer, *range(8))
    peer.claim()
    assert peer.bus.unlimit()
    for _ in range(4):
        peer.claim()
        cluster.clock.advance(seconds=0.1)
    assert peer.numbers_held() == list(range(8))


def test_a_limit_of_keys_leaves_the_queue_unlimited(cluster: Cluster) -> None:
    peer = cluster.join("a", handler_threads=10)
    peer.bus.limit(concurrency=1)
    peer.bus.limit(per_key=1)
    for number in range(3):
        post(peer, number, key=str(number))
    peer.claim()
    assert len(peer.numbers_held()) == 3


# -- what nobody has told of ----------------------------------------------------------------------


def test_a_key_goes_on_after_its_entry_was_deleted_by_hand(cluster: Cluster) -> None:
    peer = cluster.join("a")
    peer.bus.limit(per_key=1)
    post(peer, 0, 1)
    peer.claim()
    engine = create_engine(peer.store.database.url)
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "DELETE FROM bus_events WHERE processing_state = 'IN_PROCESSING'"
        )
    engine.dispose()

    go_round(cluster, peer)
    peer.run()
    assert peer.handler.numbers() == [0, 1]  # the first from memory


def test_a_key_of_which_nothing_is_left_is_forgotten(cluster: Cluster) -> None:
    peer = cluster.join("a")
    peer.bus.limit(per_key=1)
    post(peer, 0, 1)
    peer.run()
    assert keys_with_rows(peer) == {ANN}
    go_round(cluster, peer)
    assert keys_with_rows(peer) == set()


def test_a_key_of_which_something_waits_is_not_forgotten(cluster: Cluster) -> None:
    peer = cluster.join("a")
    peer.bus.limit(per_key=1)
    post(peer, 0, 1)
    peer.claim()
    go_round(cluster, peer)
    assert keys_with_rows(peer) == {ANN}


# -- the rate -------------------------------------------------------------------------------------


def test_entries_of_a_key_start_at_its_rate(cluster: Cluster) -> None:
    peer = cluster.join("a", handler_threads=10)
    peer.bus.limit(rate_per_key=1, per=timedelta(seconds=10), burst_per_key=2)
    post(peer, *range(5), key="ann")
    post(peer, 10, key="bob")
    peer.run()
    assert sorted(peer.handler.numbers()) == [0, 1, 10]

    hear(cluster, peer, seconds=9)
    peer.run()
    assert len(peer.handler.numbers()) == 3
    for started in (4, 5, 6, 6):
        hear(cluster, peer, seconds=10)
        peer.run()
        assert len(peer.handler.numbers()) == started
    assert sorted(peer.handler.numbers()) == [0, 1, 2, 3, 4, 10]


def test_what_a_node_waits_for_that_has_died_is_known_to_the_others(cluster: Cluster) -> None:
    dead, alive = cluster.join("a"), cluster.join("b")
    dead.bus.limit(rate_per_key=1, per=timedelta(seconds=40))
    hear(cluster, dead, alive)
    post(dead, 0, 1)
    dead.run()
    assert dead.handler.numbers() == [0]

    cluster.bury("a", alive)
    for _ in range(5):
        hear(cluster, alive, seconds=9)
        alive.run()
    assert alive.handler.numbers() == [1]


def test_a_changed_rate_holds_at_once(cluster: Cluster) -> None:
    peer = cluster.join("a", handler_threads=10)
    peer.bus.limit(rate_per_key=1, per=timedelta(days=1))
    post(peer, *range(5))
    peer.run()
    assert peer.handler.numbers() == [0]

    peer.bus.limit(per_key=2)
    peer.run()
    assert sorted(peer.handler.numbers()) == list(range(5))


def test_a_rate_that_changes_while_the_keys_are_looked_at_holds_at_once(cluster: Cluster) -> None:
    peer = cluster.join("a", handler_threads=10)
    peer.bus.limit(rate_per_key=1, per=timedelta(days=1))
    post(peer, *range(5))
    peer.run()
    cluster.live(15, peer)

    with meanwhile(database_of(peer.bus), "queue_limits", lambda: peer.bus.limit(per_key=2)):
        peer.lifecycle.limited.keys.turn(cluster.clock.monotonic())
    peer.run()
    assert sorted(peer.handler.numbers()) == list(range(5))


def test_an_end_lets_nobody_go_whom_the_rate_refuses(cluster: Cluster) -> None:
    peer = cluster.join("a", handler_threads=10)
    peer.bus.limit(per_key=3, rate_per_key=1, per=timedelta(seconds=30))
    post(peer, *range(3))
    peer.run()
    assert peer.handler.numbers() == [0]
    assert lanes(peer) == [ANN] * 2


# -- with other features --------------------------------------------------------------------------


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
    assert "1 of the limit key ann run now" in reason.text
    assert (reason.facts["limit_key"], reason.facts["running"]) == ("ann", 1)

    other = PersistentBus(peer.store.database.url)
    other.unlimit()
    assert [one.code for one in other.explain(waiting).reasons][:1] == ["unlimited"]
    other.close()


def test_what_waits_for_places_of_keys_counts_as_ready(cluster: Cluster) -> None:
    peer = cluster.join("a")
    peer.bus.limit(per_key=1)
    for number in range(6):
        post(peer, number, key=str(number % 2))
    peer.claim()
    assert sum(map(is_keyed, lanes(peer))) == 4
    assert [depth.ready for depth in depths(peer.store)] == [4]


# -- calls ----------------------------------------------------------------------------------------


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
