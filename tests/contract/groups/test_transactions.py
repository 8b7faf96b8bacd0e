"""Groups in transactions of callers, which may roll back."""

from __future__ import annotations

import pytest

from queue_core.reading.live_entries import Entries
from stickybus import Posting
from tests.contract.cluster import Cluster
from tests.contract.groups.looks import (
    FAILED,
    FINISHED,
    SUCCEEDED,
    callbacks,
    counts,
    open_group,
    rows,
)
from tests.contract.harness import Order, database_of
from tests.contract.interrupted.statements import cut_at_each_statement


def test_a_group_lives_and_dies_with_the_callers_transaction(cluster: Cluster) -> None:
    peer = cluster.join("a")
    database = database_of(peer.bus)
    with database.engine.connect() as connection:
        group = open_group(peer, connection=connection)
        peer.bus.post(Order(1), group=group, connection=connection)
        peer.bus.seal(group, connection=connection)
        status = peer.bus.group_status(group, connection=connection)
        assert (status.total, status.sealed_date is None) == (1, False)
        connection.rollback()
    assert (rows(peer), peer.bus.find()) == (0, [])
    with database.begin() as connection:
        group = open_group(peer, connection=connection)
        peer.bus.post_many(
            [Posting(event=Order(number), group=group) for number in range(3)],
            connection=connection,
        )
        peer.bus.seal(group, connection=connection)
    peer.run()
    assert counts(peer, group) == (3, 3, 0, 0)
    assert callbacks(peer) == [SUCCEEDED, FINISHED]


@pytest.mark.parametrize("runs", [True, False], ids=["a node", "a process that only posts"])
def test_a_group_that_a_caller_completes_is_looked_at(cluster: Cluster, *, runs: bool) -> None:
    peer = cluster.join("a")
    caller = peer if runs else cluster.peer("stranger")
    empty, removed = open_group(caller), open_group(caller)
    member = caller.bus.post(Order(1), group=removed, delay=600)
    caller.bus.seal(removed)
    with database_of(caller.bus).begin() as connection:
        caller.bus.seal(empty, connection=connection)
        Entries(caller.store, "bus").remove(member, connection=connection)
    cluster.live(4, peer)
    peer.run()
    assert counts(peer, removed) == (1, 0, 0, 1)
    assert sorted(callbacks(peer)) == [FINISHED, FINISHED, SUCCEEDED, FAILED]


def test_a_rolled_back_post_is_not_counted(cluster: Cluster) -> None:
    peer = cluster.join("a")
    group = open_group(peer)
    with database_of(peer.bus).engine.connect() as connection:
        peer.bus.post(Order(1), group=group, connection=connection)
        assert peer.bus.group_status(group, connection=connection).total == 1
        connection.rollback()
    assert counts(peer, group) == (0, 0, 0, 0)


@pytest.mark.parametrize("lent", [True, False], ids=["in a transaction", "alone"])
def test_a_post_that_is_interrupted_at_any_statement_leaves_nothing(
    cluster: Cluster, *, lent: bool
) -> None:
    peer = cluster.join("a")
    database = database_of(peer.bus)
    group = open_group(peer)

    def post() -> None:
        if not lent:
            peer.bus.post(Order(2), group=group)
            return
        with database.begin() as connection:
            peer.bus.post(Order(2), group=group, connection=connection)

    def check() -> None:
        assert (peer.bus.find(), counts(peer, group)[0]) == ([], 0)

    places = cut_at_each_statement(database.engine, post, check)
    assert places >= 3
    assert (len(peer.bus.find()), counts(peer, group)[0]) == (1, 1)
