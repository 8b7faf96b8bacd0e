"""What the doctor finds where a hand has deleted rows that belong to entries, and its cures."""

from __future__ import annotations

import re
from typing import Any

import pytest
from sqlalchemy import text

from queue_core.model.lanes import KEYED
from sql.doctor.finding import Finding
from stickybus import inspect
from tests.contract.cluster import Cluster, Peer
from tests.contract.harness import Order
from tests.contract.order_looks import post, rows
from tests.contract.waits.looks import ran, settle, waiting

CHECKS = {"lost-order", "headless-keys", "lost-limit-keys", "uncounted-groups"}


def found(cluster: Cluster) -> list[Finding]:
    with inspect(cluster.url) as inspector:
        return [one for one in inspector.doctor() if one.check in CHECKS]


def run(peer: Peer, statements: str, **values: Any) -> None:
    with peer.store.database.begin() as connection:
        for statement in statements.split("; "):
            assert connection.execute(text(statement), values).rowcount == 1


def posted_anew(peer: Peer, finding: Finding) -> None:
    """Do what the cure says: remove the entries, and retry them."""
    told = re.fullmatch(
        r"stickybus entries remove ([0-9 ]+) --table bus_events "
        r"# then stickybus entries retry \1 --table bus_events",
        finding.cure,
    )
    assert told, finding.cure
    ids = [int(record_id) for record_id in told[1].split()]
    assert peer.bus.remove_all(record_ids=ids).changed == len(ids)
    for record_id in ids:
        peer.bus.retry(record_id)


def test_entries_that_wait_as_they_should_are_not_found(cluster: Cluster) -> None:
    peer = cluster.join("a")
    late = peer.bus.post(Order(0), delay=600)
    peer.bus.limit(per_key=1)
    post(peer, 1, 2)
    post(peer, 3, 4, key="waits for another", after=[late])
    for number in range(5, 7):
        peer.bus.post(Order(number), limit_key="one")
    peer.bus.post(Order(7), delay=600, group=peer.bus.open_group())
    peer.claim()
    assert any(entry.lane.startswith(KEYED) for entry in peer.bus.find())
    assert len(waiting(peer)) == 3

    with peer.store.database.lazy() as connection:
        peer.bus.post(Order(8), order_key="unstarted", connection=connection)
        peer.bus.post(Order(9), order_key="unstarted", connection=connection)
        connection.commit()

    assert found(cluster) == []


def test_an_entry_without_a_place_in_its_key_is_found_and_posted_anew(cluster: Cluster) -> None:
    peer = cluster.join("a")
    post(peer, 1)
    [lost] = post(peer, 2)
    post(peer, 3)
    run(peer, "DELETE FROM queue_ordered WHERE record_id = :id", id=lost)
    peer.run()
    assert ran(peer) == [1, 3]

    [finding] = found(cluster)
    assert finding.check == "lost-order"
    assert finding.what.startswith("1 entry of bus_events: waiting for the turn of an order key")

    posted_anew(peer, finding)
    peer.run()
    assert ran(peer) == [1, 3, 2]
    assert (found(cluster), rows(peer)) == ([], (0, 0))


@pytest.mark.parametrize("deleted", ["the row of the head", "the head"])
def test_a_key_without_a_head_is_found_and_has_its_turn(cluster: Cluster, deleted: str) -> None:
    peer = cluster.join("a")
    [first] = post(peer, 1)
    post(peer, 2, 3)
    if deleted == "the head":
        run(peer, "DELETE FROM bus_events WHERE record_id = :id", id=first)
    else:
        run(peer, "DELETE FROM queue_order_heads WHERE record_id = :id", id=first)
        peer.run()
        assert ran(peer) == [1]
    assert len(waiting(peer)) == 2

    [finding] = found(cluster)
    assert finding.check == "headless-keys"
    assert "with the order key 'k' wait, but" in finding.what

    run(peer, finding.cure)
    settle(cluster, peer)
    peer.run()
    assert ran(peer)[-2:] == [2, 3]
    assert (found(cluster), rows(peer)) == ([], (0, 0))


def test_a_limit_key_without_its_row_is_found_and_goes_on(cluster: Cluster) -> None:
    peer = cluster.join("a")
    peer.bus.limit(per_key=1)
    for number in range(4):
        peer.bus.post(Order(number), limit_key="one")
    peer.claim()
    run(peer, "DELETE FROM queue_limit_keys WHERE limit_key = 'one'")
    peer.run()
    settle(cluster, peer)
    assert ran(peer) == [0]

    [finding] = found(cluster)
    assert finding.check == "lost-limit-keys"

    posted_anew(peer, finding)
    peer.run()
    assert sorted(ran(peer)) == [0, 1, 2, 3]
    assert found(cluster) == []


def test_a_group_that_counts_no_ends_is_found(cluster: Cluster) -> None:
    peer = cluster.join("a")
    group = peer.bus.open_group()
    peer.bus.post(Order(1), group=group)
    run(peer, "DELETE FROM queue_group_ends WHERE group_id = :id", id=group)

    [finding] = found(cluster)
    assert finding.check == "uncounted-groups"
    assert f"Group {group} of 'bus' in bus_events" in finding.what

    run(peer, finding.cure.partition(" # ")[0])
    peer.run()
    assert ran(peer) == [1]
    assert found(cluster) == []
