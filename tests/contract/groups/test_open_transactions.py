"""Groups while transactions stay open, and while members end at the same time on two nodes."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Connection
from sqlalchemy.exc import OperationalError

from queue_core.reading.live_entries import Entries
from stickybus import GroupLockedError, GroupNotFoundError, GroupSealedError, Posting
from tests import requirements as needs
from tests.contract.cluster import Cluster
from tests.contract.conftest import MakeBus
from tests.contract.groups.looks import (
    FAILED,
    FINISHED,
    SUCCEEDED,
    callbacks,
    counts,
    failing,
    open_group,
)
from tests.contract.harness import Order, database_of, elsewhere, eventually, see_what_changes


@needs.many_writers
@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("act", ["post", "seal", "remove", "retry"])
def test_an_open_transaction_that_changes_a_group_holds_up_no_outcome(
    cluster: Cluster, act: str, *, commits: bool
) -> None:
    peer, stranger = failing(cluster, 9), cluster.peer("stranger")
    group = open_group(stranger)
    failed = stranger.bus.post(Order(9), group=group)
    peer.run()
    first = stranger.bus.post(Order(1), group=group)
    waits = stranger.bus.post(Order(2), group=group, delay=3600)
    stranger.bus.post(Order(3))
    with database_of(stranger.bus).engine.connect() as connection:
        if act == "post":
            stranger.bus.post(Order(4), group=group, connection=connection)
        elif act == "seal":
            assert stranger.bus.seal(group, connection=connection)
        elif act == "remove":
            Entries(stranger.store, "bus").remove(waits, connection=connection)
        else:
            stranger.bus.retry(failed, connection=connection)
        elsewhere(peer.run)
        assert first in {entry.record_id for entry in peer.bus.history()}
        assert elsewhere(lambda: counts(peer, group)) == (3, 1, 1, 0)
        elsewhere(lambda: cluster.live(4, peer))
        connection.commit() if commits else connection.rollback()
    if act != "remove" or not commits:
        Entries(stranger.store, "bus").remove(waits)
    stranger.bus.seal(group)
    for _ in range(2):
        peer.run()
        cluster.live(4, peer)
    total = 4 if commits and act == "post" else 3
    assert counts(peer, group) == (total, total - 2, 1, 1)
    assert callbacks(peer) == [FAILED, FINISHED]


@needs.many_writers
def test_who_posts_into_a_group_waits_for_another_for_a_while(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("queue_core.storage.groups.WAIT_SECONDS", 1.0)
    peer, stranger = cluster.join("a"), cluster.peer("stranger")
    group = open_group(stranger)
    with database_of(stranger.bus).begin() as connection:
        stranger.bus.post(Order(1), group=group, connection=connection)

        def posts(lent: Connection | None) -> None:
            calls: list[Callable[[], object]] = [
                lambda: peer.bus.post(Order(2), group=group, connection=lent),
                lambda: peer.bus.seal(group, connection=lent),
            ]
            for call in calls:
                with pytest.raises(GroupLockedError, match=f"group {group}") as raised:
                    call()
                assert raised.value.group_id == group

        elsewhere(lambda: posts(None))
        with database_of(peer.bus).begin() as other:
            elsewhere(lambda: posts(other))
            elsewhere(lambda: peer.bus.post(Order(3), connection=other))
    peer.run()
    assert sorted(order.number for order in peer.handler.events) == [1, 3]
    assert counts(peer, group) == (1, 1, 0, 0)


@needs.many_writers
def test_an_open_transaction_holds_up_no_other_group(cluster: Cluster) -> None:
    """In REPEATABLE READ, in which MariaDB and MySQL lock gaps."""
    peer, stranger = cluster.join("a"), cluster.peer("stranger")
    mine, past = open_group(peer), 2**40
    unknown: list[Callable[[Connection], object]] = [
        lambda lent: peer.bus.post(Order(1), group=past, connection=lent),
        lambda lent: peer.bus.seal(past, connection=lent),
        lambda lent: peer.bus.group_status(past, connection=lent),
    ]

    def others() -> None:
        group = open_group(stranger)
        stranger.bus.post(Order(2), group=group)
        assert stranger.bus.seal(group)

    with (
        database_of(peer.bus)
        .engine.connect()
        .execution_options(isolation_level="REPEATABLE READ") as connection
    ):
        for call in unknown:
            with pytest.raises(GroupNotFoundError):
                call(connection)
        open_group(peer, connection=connection)
        peer.bus.post(Order(1), group=mine, connection=connection)
        peer.bus.seal(mine, connection=connection)
        elsewhere(others)
        elsewhere(peer.run)
        connection.rollback()
    assert counts(peer, mine) == (0, 0, 0, 0)
    assert callbacks(peer) == [SUCCEEDED, FINISHED]


@needs.many_writers
@pytest.mark.parametrize("commits", [True, False])
def test_a_seal_waits_for_those_who_post_at_the_same_time(
    cluster: Cluster, *, commits: bool
) -> None:
    peer, stranger = cluster.join("a"), cluster.peer("stranger")
    group = open_group(stranger)
    begun = threading.Event()

    def seal() -> None:
        begun.set()
        assert peer.bus.seal(group)

    sealing = threading.Thread(target=seal)
    with database_of(stranger.bus).engine.connect() as connection:
        stranger.bus.post(Order(1), group=group, connection=connection)
        sealing.start()
        begun.wait()
        connection.commit() if commits else connection.rollback()
    sealing.join()
    assert (callbacks(peer) == []) is commits
    peer.run()
    assert counts(peer, group) == (commits, commits, 0, 0)
    assert callbacks(peer) == [SUCCEEDED, FINISHED]


@needs.many_writers
def test_a_post_that_has_waited_for_a_seal_is_refused(cluster: Cluster) -> None:
    peer, stranger = cluster.join("a"), cluster.peer("stranger")
    group = open_group(stranger)
    raised, begun = list[GroupSealedError](), threading.Event()

    def post() -> None:
        begun.set()
        with pytest.raises(GroupSealedError) as caught:
            peer.bus.post(Order(1), group=group)
        raised.append(caught.value)

    posting = threading.Thread(target=post)
    with database_of(stranger.bus).begin() as connection:
        stranger.bus.seal(group, connection=connection)
        posting.start()
        begun.wait()
    posting.join()
    assert len(raised) == 1
    cluster.live(4, peer)
    peer.run()
    assert counts(peer, group) == (0, 0, 0, 0)
    assert callbacks(peer) == [SUCCEEDED, FINISHED]


@needs.many_writers
def test_a_caller_may_post_into_a_group_that_its_snapshot_does_not_see(cluster: Cluster) -> None:
    peer = cluster.join("a")
    database = database_of(peer.bus)
    isolation = "READ COMMITTED" if database.dialect.name == "postgresql" else "REPEATABLE READ"
    with database.engine.connect().execution_options(isolation_level=isolation) as connection:
        see_what_changes(connection)
        peer.bus.find(connection=connection)
        group = elsewhere(lambda: open_group(peer))
        peer.bus.post(Order(1), group=group, connection=connection)
        connection.commit()
    assert counts(peer, group) == (1, 0, 0, 0)


@needs.mariadb
def test_mariadb_may_refuse_a_group_that_has_changed_after_the_callers_snapshot(
    cluster: Cluster,
) -> None:
    """As it does with any row. Another try, in a transaction of its own, finds the group."""
    peer = cluster.join("a")
    engine = database_of(peer.bus).engine
    with engine.connect().execution_options(isolation_level="REPEATABLE READ") as connection:
        connection.exec_driver_sql("SET SESSION innodb_snapshot_isolation = ON")
        connection.commit()
        peer.bus.find(connection=connection)
        group = elsewhere(lambda: open_group(peer))
        with pytest.raises(OperationalError, match="1020"):
            peer.bus.post(Order(1), group=group, connection=connection)
        connection.rollback()
        peer.bus.post(Order(2), group=group, connection=connection)
        connection.commit()
    assert counts(peer, group) == (1, 0, 0, 0)


def test_callbacks_are_posted_once_though_members_end_at_once_on_two_nodes(
    make_bus: MakeBus,
) -> None:
    buses = [make_bus(node_name=f"n{place}", poll_interval_seconds=0.05) for place in range(2)]
    done, lock = Counter[int](), threading.Lock()

    def handle(order: Order) -> None:
        with lock:
            done[order.number] += 1

    for bus in buses:
        bus.subscribe(Order, handle, name="orders")
        bus.start()
    groups = 40

    def work(place: int) -> None:
        for number in range(place, groups, 4):
            group = buses[0].open_group(on_finished=Order(1000 + number))
            members = [Posting(event=Order(number), group=group)] * 3
            for bus in buses:
                bus.post_many(members)
            buses[number % 2].seal(group)

    threads = [threading.Thread(target=work, args=(place,)) for place in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    eventually(lambda: sum(done.values()) >= 7 * groups, "all have run")
    assert done == {
        **dict.fromkeys(range(groups), 6),
        **dict.fromkeys(range(1000, 1000 + groups), 1),
    }
    for group in range(1, groups + 1):
        status = buses[0].group_status(group)
        assert (status.total, status.succeeded) == (6, 6)


def test_an_exactly_once_handler_completes_a_group_in_its_transaction(make_bus: MakeBus) -> None:
    bus, done = make_bus(), list[int]()

    def handle(order: Order, context: Any) -> None:
        if order.number == 1:
            bus.post(Order(2), group=group, connection=context.connection)
        done.append(order.number)

    bus.subscribe(Order, handle, name="orders", exactly_once=True)
    group = bus.open_group(on_finished=Order(FINISHED))
    bus.post(Order(1), group=group)
    bus.start()
    eventually(lambda: bus.group_status(group).succeeded == 2, "both have ended")
    bus.seal(group)
    eventually(lambda: len(done) == 3, "the callback has run")
    assert done == [1, 2, FINISHED]
