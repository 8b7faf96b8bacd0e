"""Far from its limit a node has places ahead of its claims, as exactly as otherwise."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from unittest.mock import Mock

import pytest
from sqlalchemy import text

from queue_core.model.lanes import ANY_NODE, is_limited
from queue_core.storage.places import Claimed
from queue_core.storage.reserves import Reserve
from queue_core.storage.store import FIRST_DATE
from sql.statements.claims import Claim
from stickybus import Mode
from tests import requirements as needs
from tests.contract.cluster import Cluster, Peer
from tests.contract.harness import Order, statements_of
from tests.contract.limiting.looks import BUS_LANE, claimed, hear

SECONDS = 0.3
"""For a thread that would go on, if it did not wait for a lock."""


def join(cluster: Cluster, *names: str, limit: int = 10) -> list[Peer]:
    """Nodes of a bus with a limit, which has 30 entries that any node may run."""
    peers = [cluster.join(name, mode=Mode.POLLING, handler_threads=4) for name in names]
    peers[0].bus.limit(concurrency=limit)
    hear(cluster, *peers)
    for number in range(30):
        peers[0].bus.post(Order(number))
    return peers


def claim(peer: Peer, limit: int) -> Claimed:
    return peer.moves.claim(ANY_NODE, peer.lifecycle.name, limit)


def reserve(peer: Peer) -> Reserve | None:
    return peer.lifecycle.holdings.places.reserves.of(BUS_LANE)


def claim_by(reserve_of: Peer, peer: Peer, limit: int) -> Claim:
    """What `peer` would claim by a reserve that has to be there."""
    held = reserve(reserve_of)
    assert held is not None
    claim = peer.moves.to_claim(ANY_NODE, peer.lifecycle.name, limit, FIRST_DATE, timedelta())
    claim.reserve = held.name
    return claim


def owners(peer: Peer) -> dict[str, int]:
    """The places by owner, as the table says."""
    rows = peer.store.database.fetch(
        lambda connection: peer.store.statements.bunches(connection, lane=BUS_LANE)
    )
    found = dict[str, int]()
    for row in rows:
        found[row.owner] = found.get(row.owner, 0) + row.places
    return found


def test_claims_by_a_reserve_take_no_places_and_no_lock(cluster: Cluster) -> None:
    [peer] = join(cluster, "a")
    assert len(claim(peer, 1).entries) == 1
    assert owners(peer) == {"a": 10}

    with statements_of(peer.store.database) as statements:
        found = claim(peer, 3)

    assert len(found.entries) == 3
    assert found.placed == {BUS_LANE: [entry.record_id for entry in found.entries]}
    assert not any("queue_limits" in one for one in statements.texts)
    assert not any("INSERT INTO queue_places" in one for one in statements.texts)
    assert owners(peer) == {"a": 10}


def test_a_reserve_bounds_its_claims(cluster: Cluster) -> None:
    [peer] = join(cluster, "a")
    claim(peer, 1)
    found = claim(peer, 20)
    assert len(found.entries) == 9
    assert found.found == 20, "there may be more"

    found = claim(peer, 20)
    assert found.entries == []
    assert found.refused == {BUS_LANE: None}
    assert claimed(peer.bus) == 10


def test_entries_of_other_queues_are_not_claimed_by_the_few(cluster: Cluster) -> None:
    [peer] = join(cluster, "a")
    claim(peer, 1)
    peer.store.database.write(
        lambda connection: connection.execute(
            text("UPDATE bus_events SET queue_name = 'other' WHERE processing_state = 'AVAILABLE'")
        )
    )
    assert len(claim(peer, 20).entries) == 9
    assert len(claim(peer, 20).entries) == 20


def test_a_node_reserves_no_more_than_its_share(cluster: Cluster) -> None:
    one, other = join(cluster, "a", "b")
    claim(one, 1)
    claim(other, 1)
    assert owners(one) == {"a": 5, "b": 5}


def test_nothing_is_reserved_where_much_is_in_use(cluster: Cluster) -> None:
    [peer] = join(cluster, "a")
    claim(peer, 6)
    assert reserve(peer) is None
    assert owners(peer) == {"a": 6}


def test_what_another_has_reserved_and_does_not_use_can_be_had(cluster: Cluster) -> None:
    [one] = join(cluster, "a")
    claim(one, 1)
    assert owners(one) == {"a": 10}
    other = cluster.join("b", mode=Mode.POLLING, handler_threads=9)
    hear(cluster, one, other)

    assert len(claim(other, 20).entries) == 9
    assert len(claim(one, 20).entries) == 0
    assert owners(one) == {"a": 1, "b": 9}
    assert claimed(one.bus) == 10


def test_what_a_dead_node_had_reserved_can_be_had_at_once(cluster: Cluster) -> None:
    dead, alive = join(cluster, "a", "b", limit=4)
    claim(dead, 1)
    assert owners(alive) == {"a": 2}
    assert len(claim(alive, 4).entries) == 3
    assert claimed(alive.bus) == 4


def test_a_changed_limit_ends_reserves_at_once(cluster: Cluster) -> None:
    one, other = join(cluster, "a", "b")
    claim(one, 1)
    other.bus.limit(concurrency=2)
    assert len(claim(one, 10).entries) == 1
    assert claimed(one.bus) == 2


def test_a_claim_by_the_reserve_of_another_takes_nothing(cluster: Cluster) -> None:
    """After a fail-over the ids of entries, and so the names of reserves, may come again."""
    one, other = join(cluster, "a", "b")
    claim(other, 1)
    by_it, store = claim_by(other, one, 4), one.store
    assert not store.database.write(lambda inner: store.statements.claim(inner, by_it))


@pytest.mark.parametrize("others", [False, True])
def test_after_a_reserve_that_did_not_last_none_is_taken_for_a_while(
    cluster: Cluster, *, others: bool
) -> None:
    """Each reads all that is due in the node's own lane."""
    one, other = join(cluster, "a", "b")
    claim(one, 1)
    claim(*((other, 9) if others else (one, 9)))
    claim(one, 1)
    assert reserve(one) is None
    for peer in (one, other):
        holdings = peer.lifecycle.holdings
        holdings.release(holdings.in_processing())
    assert not claimed(one.bus)
    one.store.database.write(lambda inner: one.store.statements.free_places(inner, lane=BUS_LANE))

    claim(one, 1)
    assert reserve(one) is None
    cluster.live(one.store.config.node.lease_seconds, one, other)
    claim(one, 1)
    assert reserve(one) is not None


def test_claims_of_unknown_end_count(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    [peer] = join(cluster, "a")
    claim(peer, 1)
    with monkeypatch.context() as cut:
        cut.setattr("queue_core.storage.moves.claimed", Mock(side_effect=MemoryError))
        with pytest.raises(MemoryError):
            claim(peer, 3)
    assert claimed(peer.bus) == 4

    claim(peer, 1)
    claim(peer, 20)
    claim(peer, 20)
    assert claimed(peer.bus) == 10


def test_claims_that_the_ledger_does_not_know_count(cluster: Cluster) -> None:
    [peer] = join(cluster, "a")
    claim(peer, 1)
    claim(peer, 3)
    ledger, reserves = peer.lifecycle.ledger, peer.lifecycle.holdings.places.reserves
    ledger.discard([*ledger.placed(BUS_LANE)])
    reserves.forget()
    claim(peer, 1)
    assert reserve(peer) is not None
    claim(peer, 20)
    assert claimed(peer.bus) == 10


def test_claims_whose_places_somebody_deleted_are_listed_anew(cluster: Cluster) -> None:
    [peer] = join(cluster, "a")
    claim(peer, 1)
    claim(peer, 3)
    peer.store.database.write(
        lambda connection: peer.store.statements.free_places(connection, lane=BUS_LANE)
    )
    claim(peer, 2)  # by the reserve nothing, and then by places
    assert sum(owners(peer).values()) >= claimed(peer.bus) == 6


@needs.server
def test_who_ends_a_reserve_counts_the_claim_under_way(cluster: Cluster) -> None:
    one, other = join(cluster, "a", "b", limit=4)
    claim(one, 1)
    statements, database = one.store.statements, one.store.database
    by_reserve = claim_by(one, one, 1)

    with ThreadPoolExecutor(1) as thread:
        with database.begin() as connection:
            assert len(statements.claim(connection, by_reserve)) == 1
            future = thread.submit(claim, other, 4)
            with pytest.raises(TimeoutError):
                future.result(SECONDS)
        assert len(future.result().entries) == 2
    assert claimed(one.bus) == 4


@needs.server
def test_a_claim_by_a_reserve_that_is_being_ended_takes_nothing(cluster: Cluster) -> None:
    [one] = join(cluster, "a")
    claim(one, 1)
    statements, database = one.store.statements, one.store.database
    by_reserve = claim_by(one, one, 5)

    def claimed_by_it() -> int:
        return len(database.write(lambda inner: statements.claim(inner, by_reserve)))

    with ThreadPoolExecutor(1) as thread:
        with database.begin() as connection:
            statements.terms(connection, lane=BUS_LANE)
            statements.list_all(connection, lane=BUS_LANE, due_by=one.store.claims_due_by)
            future = thread.submit(claimed_by_it)
            with suppress(TimeoutError):  # it waits, or finds the row locked
                future.result(SECONDS)
        assert future.result() == 0
    assert owners(one) == {"a": 1}
    assert not any(is_limited(entry.lane) for entry in one.bus.find())
