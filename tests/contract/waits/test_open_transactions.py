"""Entries that wait for others, while transactions stay open and others end at the same time."""

from __future__ import annotations

import pytest

from queue_core.reading.live_entries import Entries
from stickybus import PersistentBus, State
from tests import requirements as needs
from tests.contract.cluster import Cluster, Peer
from tests.contract.conftest import MakeBus
from tests.contract.harness import Order, database_of, elsewhere, engine_of
from tests.contract.waits.looks import failing, ran, waiting, waits
from tests.contract.waits.many_threads import done_by_two


def ends(peer: Peer) -> set[int]:
    return {entry.record_id for entry in peer.bus.history()}


@needs.many_writers
def test_an_open_transaction_with_an_entry_that_waits_holds_up_no_outcome(
    cluster: Cluster,
) -> None:
    peer, stranger = cluster.join("a"), cluster.peer("stranger")
    first, other = stranger.bus.post(Order(1)), stranger.bus.post(Order(2))
    with database_of(stranger.bus).begin() as connection:
        stranger.bus.post(Order(3), after=[first], connection=connection)
        elsewhere(peer.run)
        assert ends(peer) == {first, other}
        elsewhere(lambda: cluster.live(4, peer))
    for _ in range(2):
        peer.run()
        cluster.live(4, peer)
    assert ran(peer)[2:] == [3]
    assert waits(peer) == 0


@needs.many_writers
def test_an_open_transaction_that_removes_who_waits_holds_up_no_outcome(cluster: Cluster) -> None:
    peer, stranger = cluster.join("a"), cluster.peer("stranger")
    first, other = stranger.bus.post(Order(1)), stranger.bus.post(Order(2))
    second = stranger.bus.post(Order(3), after=[first])
    with database_of(stranger.bus).engine.connect() as connection:
        assert Entries(stranger.store, "bus").remove(second, connection=connection) == 1
        elsewhere(peer.run)
        assert ends(peer) == {first, other}
        elsewhere(lambda: cluster.live(4, peer))
        connection.rollback()
    for _ in range(2):
        peer.run()
        cluster.live(4, peer)
    assert ran(peer)[2:] == [3]
    assert waits(peer) == 0


@needs.many_writers
def test_who_waits_is_looked_at_again_if_a_transaction_has_held_it(cluster: Cluster) -> None:
    peer, stranger = cluster.join("a"), cluster.peer("stranger")
    first = stranger.bus.post(Order(1))
    with database_of(stranger.bus).begin() as connection:
        second = stranger.bus.post(Order(2), after=[first], connection=connection)
        elsewhere(peer.run)
    with database_of(stranger.bus).engine.connect() as connection:
        assert Entries(stranger.store, "bus").remove(second, connection=connection) == 1
        elsewhere(lambda: cluster.live(4, peer))
        elsewhere(peer.run)
        connection.rollback()
    cluster.live(4, peer)
    peer.run()
    assert ran(peer) == [1, 2]


def nothing_is_left(cluster: Cluster, peer: Peer) -> None:
    """Live on, and see that no entry and no wait stands."""
    for _ in range(2):
        peer.run()
        cluster.live(4, peer)
    assert peer.bus.find() == []
    assert waits(peer) == 0


@needs.many_writers
def test_an_open_transaction_that_removes_who_is_held_holds_up_no_retry(cluster: Cluster) -> None:
    peer, _ = failing(cluster, 1)
    first = peer.bus.post(Order(1))
    peer.run()
    held = peer.bus.post(Order(2), after=[first], on_failed="hold")
    with database_of(peer.bus).engine.connect() as connection:
        assert Entries(peer.store, "bus").remove(held, connection=connection) == 1
        elsewhere(lambda: peer.bus.retry(first))
        elsewhere(peer.run)
        connection.commit()
    nothing_is_left(cluster, peer)


@needs.many_writers
def test_an_open_transaction_that_retries_holds_up_no_removal_of_who_is_held(
    cluster: Cluster,
) -> None:
    peer, _ = failing(cluster, 1)
    first = peer.bus.post(Order(1))
    peer.run()
    held = peer.bus.post(Order(2), after=[first], on_failed="hold")
    with database_of(peer.bus).engine.connect() as connection:
        peer.bus.retry(first, connection=connection)
        assert elsewhere(lambda: peer.bus.remove_all(record_ids=[held])).changed == 1
        connection.commit()
    nothing_is_left(cluster, peer)


@needs.many_writers
@pytest.mark.parametrize("commits", [True, False])
def test_an_open_transaction_that_removes_what_is_waited_for_holds_up_no_outcome(
    cluster: Cluster, *, commits: bool
) -> None:
    peer, stranger = cluster.join("a"), cluster.peer("stranger")
    first, other = stranger.bus.post(Order(1)), stranger.bus.post(Order(2))
    both = stranger.bus.post(Order(3), after=[first, other])
    with database_of(stranger.bus).engine.connect() as connection:
        assert Entries(stranger.store, "bus").remove(first, connection=connection) == 1
        elsewhere(peer.run)
        assert ends(peer) == {other}
        posted = elsewhere(lambda: stranger.bus.post(Order(4), after=[first], on_failed="run"))
        elsewhere(lambda: cluster.live(4, peer))
        elsewhere(peer.run)
        assert waiting(peer) == [both, posted]
        connection.commit() if commits else connection.rollback()
    for _ in range(3):
        peer.run()
        cluster.live(4, peer)
    ended = {entry.record_id: entry.processing_state for entry in peer.bus.history()}
    assert ended[both] is (State.REMOVED if commits else State.PROCESSED)
    assert ended[posted] is State.PROCESSED
    assert waits(peer) == 0


@needs.many_writers
def test_a_caller_may_wait_for_what_its_snapshot_does_not_see(cluster: Cluster) -> None:
    peer = cluster.join("a")
    database = database_of(peer.bus)
    with database.engine.connect().execution_options(
        isolation_level="REPEATABLE READ"
    ) as connection:
        peer.bus.find(connection=connection)
        first = elsewhere(lambda: peer.bus.post(Order(1), delay=1))
        second = peer.bus.post(Order(2), after=[first], connection=connection)
        connection.commit()
    assert waiting(peer) == [second]


def test_entries_that_end_at_once_on_two_nodes_release_what_waits_for_them(
    make_bus: MakeBus,
) -> None:
    def work(buses: list[PersistentBus], place: int) -> None:
        for number in range(10):
            base = place * 1_000 + number * 10
            ids = [buses[one % 2].post(Order(base + one)) for one in range(4)]
            last = buses[place % 2].post(Order(base + 8), after=ids)
            buses[place % 2].post(Order(base + 9), after=[last, ids[0]])

    buses, done = done_by_two(make_bus, work, entries=240)
    for last in [number for number in done if number % 10 == 8]:
        place = done.index(last)
        assert all(done.index(last - back) < place for back in (8, 7, 6, 5))
        assert done.index(last + 1) > place
    statements = engine_of(buses[0]).store.dependencies
    left = database_of(buses[0]).fetch(
        lambda connection: statements.statements.counts(connection, "bus_events")
    )
    assert left == (0, 0)
