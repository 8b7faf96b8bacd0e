"""Of a limit that is far from full, places are taken in few messages, as exactly as otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import get_ident
from typing import Any
from unittest.mock import Mock

import msgspec
import pytest
from psycopg import Connection
from sqlalchemy import text

from queue_core.model.entry import from_row
from queue_core.model.lanes import ANY_NODE
from queue_core.storage.limits import StoredLimits
from queue_core.storage.places import Claimed, Places
from queue_core.storage.seating import Seating
from queue_core.storage.store import FIRST_DATE
from stickybus import Mode, State
from tests import requirements as needs
from tests.contract.cluster import Cluster, Peer
from tests.contract.harness import Order, eventually, statements_of
from tests.contract.limiting.looks import BUS_LANE

LOCKING = text(
    "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%queue_limits%'"
)


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[Connection[Any]]:
    """This thread's waits for answers, on connections that are opened from here on."""
    found, wait, here = list[Connection[Any]](), Connection.wait, get_ident()

    def counted(self: Connection[Any], *arguments: Any, **options: Any) -> Any:
        if get_ident() == here:
            found.append(self)
        return wait(self, *arguments, **options)

    monkeypatch.setattr(Connection, "wait", counted)
    return found


def with_two(cluster: Cluster, limit: Mapping[str, Any]) -> Peer:
    """A node of a limited bus, which has two entries that any node may run.

    Another queue of its table is limited, too: a node has places ahead only of a single one.
    """
    peer = cluster.join("a", mode=Mode.POLLING, handler_threads=8)
    stored = StoredLimits(peer.store)
    stored.put(msgspec.structs.replace(peer.bus.limit(**limit), queue_name="other"))
    peer.lifecycle.limited.look()
    for number in range(2):
        peer.bus.post(Order(number))
    return peer


def claim(peer: Peer) -> Claimed:
    return peer.moves.claim(ANY_NODE, peer.lifecycle.holdings.name, 10)


@needs.postgresql
@pytest.mark.parametrize("limit", [{"concurrency": 4}, {"per_node": 4}])
@pytest.mark.parametrize("connection", ["that was kept", "of the pool"])
def test_a_claim_waits_for_three_answers(
    waits: list[Connection[Any]], cluster: Cluster, limit: dict[str, int], connection: str
) -> None:
    peer = with_two(cluster, limit)
    claim(peer)
    for number in range(2, 4):
        peer.bus.post(Order(number))
    if connection == "of the pool":
        peer.store.database.kept.close()

    waits.clear()
    claimed = claim(peer)

    assert len(waits) == 3
    assert len(claimed.entries) == 2
    assert claimed.placed == {BUS_LANE: [entry.record_id for entry in claimed.entries]}


@needs.postgresql
@pytest.mark.parametrize("limited", ["concurrency", "per_node"])
def test_places_that_another_takes_meanwhile_count(cluster: Cluster, limited: str) -> None:
    peer = with_two(cluster, {limited: 4})
    assert len(claim(peer).entries) == 2
    for number in range(2, 6):
        peer.bus.post(Order(number))
    statements, database = peer.store.statements, peer.store.database
    owner = peer.lifecycle.holdings.name if limited == "per_node" else "b"

    with ThreadPoolExecutor(1) as thread:
        with database.begin() as other:
            statements.terms(other, lane=BUS_LANE)
            two = peer.moves.to_claim(ANY_NODE, owner, 2, FIRST_DATE, timedelta())
            claims = [from_row(row).claim for row in statements.claim(other, two)]
            statements.take_places(other, lane=BUS_LANE, owner=owner, claims=claims)
            future = thread.submit(claim, peer)
            eventually(
                lambda: database.fetch(lambda one: one.execute(LOCKING).first()),
                "the claim waits for the lock of the limit",
            )
        claimed = future.result()

    assert claimed.entries == []
    assert claimed.refused == {BUS_LANE: None}
    assert sum(entry.lane == BUS_LANE for entry in peer.bus.find()) == 2


@needs.postgresql
def test_a_claim_that_is_cut_off_between_its_messages_claims_nothing(
    waits: list[Connection[Any]], cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = with_two(cluster, {"concurrency": 4})
    waits.clear()
    with monkeypatch.context() as cut:
        cut.setattr(Places, "by_lane", Mock(side_effect=MemoryError))
        with pytest.raises(MemoryError):
            claim(peer)

    # Rolled back by then: the server would lock the rows of one that was closed for a while yet.
    assert not any(connection.closed for connection in waits)
    assert [entry.processing_state for entry in peer.bus.find()] == [State.AVAILABLE] * 2
    assert len(claim(peer).entries) == 2


@needs.postgresql
def test_what_finds_no_place_is_not_claimed_meanwhile(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = with_two(cluster, {"concurrency": 1})
    with monkeypatch.context() as cut:
        cut.setattr(Seating, "__init__", Mock(side_effect=MemoryError))
        with pytest.raises(MemoryError):
            claim(peer)

    assert [entry.processing_state for entry in peer.bus.find()] == [State.AVAILABLE] * 2
    assert len(claim(peer).entries) == 1


@needs.postgresql
def test_a_traced_claim_takes_its_places_too(cluster: Cluster) -> None:
    peer = with_two(cluster, {"concurrency": 4})
    with statements_of(peer.store.database) as statements:
        claimed = claim(peer)

    assert len(claimed.placed[BUS_LANE]) == len(claimed.entries) == 2
    assert any("queue_places" in text for text in statements.texts)
