"""Callers' transactions that stay open hold up no outcome, post or node of an order key."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sqlalchemy import Connection

from queue_core.claiming.ordered_keys import OrderedKeys
from queue_core.reading.live_entries import Entries
from stickybus import ImmediateRetries
from tests import requirements as needs
from tests.contract.cluster import Cluster, Peer
from tests.contract.harness import Order, Recorder, database_of, elsewhere
from tests.contract.order_looks import post, rows
from tests.contract.waits.looks import ends, ran, settle, waits

Touch = Callable[[Peer, int, Connection], object]


def _removes(peer: Peer, record_id: int, connection: Connection) -> None:
    assert Entries(peer.store, "bus").remove(record_id, connection=connection) == 1


def _updates(peer: Peer, record_id: int, connection: Connection) -> None:
    values = {"effective_date": peer.store.clock.now()}
    Entries(peer.store, "bus").update(record_id, values, connection=connection)


def _replaces(peer: Peer, _record_id: int, connection: Connection) -> None:
    posted = peer.bus.post(
        Order(7), key="second", on_conflict="replace", order_key="k", connection=connection
    )
    assert not posted.created


@needs.many_writers
@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize(
    ("touch", "numbers"),
    [(_removes, [1, 3, 4]), (_updates, [1, 2, 3, 4]), (_replaces, [1, 7, 3, 4])],
)
def test_who_touches_the_next_one_holds_up_no_outcome_of_the_first(
    cluster: Cluster, touch: Touch, numbers: list[int], *, commits: bool
) -> None:
    peer, stranger = cluster.join("a"), cluster.peer("stranger")
    [first] = post(peer, 1)
    second = peer.bus.post(Order(2), order_key="k", key="second")
    post(peer, 3)
    other = peer.bus.post(Order(9))
    with database_of(stranger.bus).engine.connect() as connection:
        touch(stranger, second, connection)
        elsewhere(peer.run)
        assert ends(peer).keys() == {first, other}
        elsewhere(lambda: post(peer, 4))
        elsewhere(lambda: settle(cluster, peer))
        assert ends(peer).keys() == {first, other}
        connection.commit() if commits else connection.rollback()
    settle(cluster, peer)
    assert [n for n in ran(peer) if n != 9] == (numbers if commits else [1, 2, 3, 4])
    assert rows(peer) == (0, 0)


@needs.many_writers
def test_looks_at_a_key_whose_next_one_is_held_are_no_busy_loop(cluster: Cluster) -> None:
    peer, stranger = cluster.join("a"), cluster.peer("stranger")
    _, second = post(peer, 1, 2)
    with database_of(stranger.bus).engine.connect() as connection:
        _updates(stranger, second, connection)
        elsewhere(peer.run)
        ordered = OrderedKeys(peer.store, peer.lifecycle.claimer)
        assert elsewhere(ordered.look) == 0
        connection.rollback()
    assert ordered.look() == 1


@needs.many_writers
def test_who_removes_what_was_just_posted_in_another_transaction_holds_up_no_look(
    cluster: Cluster,
) -> None:
    peer, stranger = cluster.join("a"), cluster.peer("stranger")
    with database_of(stranger.bus).begin() as connection:
        ids = [
            stranger.bus.post(Order(number), order_key="k", connection=connection)
            for number in (1, 2, 3)
        ]
    with database_of(stranger.bus).engine.connect() as connection:
        _removes(stranger, ids[1], connection)
        elsewhere(lambda: settle(cluster, peer))
        assert ran(peer) == [1]
        connection.commit()
    settle(cluster, peer)
    assert ran(peer) == [1, 3]
    assert rows(peer) == (0, 0)


@needs.many_writers
@pytest.mark.parametrize("commits", [True, False])
def test_who_retries_one_that_was_skipped_holds_up_nobody(
    cluster: Cluster, *, commits: bool
) -> None:
    peer = cluster.join("a", retry=ImmediateRetries(0))
    stranger = cluster.peer("stranger")
    peer.handler = Recorder(failures=1)
    [first] = post(peer, 1, order_failure="skip")
    peer.run()
    post(peer, 2, 3)
    with database_of(stranger.bus).engine.connect() as connection:
        stranger.bus.retry(first, connection=connection)
        elsewhere(peer.run)
        assert ran(peer) == [1, 2, 3]
        elsewhere(lambda: post(peer, 4))
        elsewhere(lambda: settle(cluster, peer))
        assert ran(peer) == [1, 2, 3, 4]
        connection.commit() if commits else connection.rollback()
    settle(cluster, peer)
    assert ran(peer) == [1, 2, 3, 4, *([1] if commits else [])]
    assert rows(peer) == (0, 0)


@needs.many_writers
@pytest.mark.parametrize("commits", [True, False])
def test_who_retries_one_for_which_others_wait_holds_up_no_head(
    cluster: Cluster, *, commits: bool
) -> None:
    peer = cluster.join("a", retry=ImmediateRetries(0))
    stranger = cluster.peer("stranger")
    peer.handler = Recorder(failures=1)
    [first] = post(peer, 1, order_failure="skip")
    waits_for_first = peer.bus.post(Order(2), after=[first], on_failed="hold")
    peer.run()
    post(peer, 3, 4)
    with database_of(stranger.bus).engine.connect() as connection:
        stranger.bus.retry(first, connection=connection)
        elsewhere(peer.run)
        assert ran(peer) == [1, 3, 4]
        connection.commit() if commits else connection.rollback()
    settle(cluster, peer)
    assert ran(peer) == [1, 3, 4, *([1, 2] if commits else [])]
    assert (waits_for_first in ends(peer)) is commits
    assert waits(peer) == (0 if commits else 1)


@pytest.mark.parametrize("decides", ["retry", "discard"])
@pytest.mark.parametrize("commits", [True, False])
def test_a_callers_transaction_may_decide_about_a_key_that_is_held(
    cluster: Cluster, decides: str, *, commits: bool
) -> None:
    peer = cluster.join("a", retry=ImmediateRetries(0))
    stranger = cluster.peer("stranger")
    peer.handler = Recorder(failures=1)
    first, _ = post(peer, 1, 2)
    peer.run()
    with database_of(stranger.bus).engine.connect() as connection:
        getattr(stranger.bus, decides)(first, connection=connection)
        if connection.dialect.name != "sqlite":
            elsewhere(lambda: post(peer, 3))
            elsewhere(lambda: settle(cluster, peer))
        assert ran(peer) == [1]
        connection.commit() if commits else connection.rollback()
    post(peer, 4)
    settle(cluster, peer)
    sqlite = database_of(peer.bus).dialect.name == "sqlite"
    behind = [2, 4] if sqlite else [2, 3, 4]
    expected = ([1, *behind] if decides == "retry" else behind) if commits else []
    assert ran(peer) == [1, *expected]
    if commits:
        assert rows(peer) == (0, 0)
    else:
        assert [held.record_id for held in peer.bus.held_keys()] == [first]


def test_a_retry_of_a_held_key_that_is_removed_before_its_turn_may_be_retried(
    cluster: Cluster,
) -> None:
    peer = cluster.join("a", retry=ImmediateRetries(0))
    peer.handler = Recorder(failures=1)
    first, _ = post(peer, 1, 2)
    peer.run()
    with database_of(peer.bus).begin() as connection:
        copy = peer.bus.retry(first, connection=connection)
    assert Entries(peer.store, "bus").remove(copy) == 1
    with database_of(peer.bus).begin() as connection:
        peer.bus.retry(first, connection=connection)
    settle(cluster, peer)
    assert ran(peer) == [1, 1, 2]
    assert rows(peer) == (0, 0)
