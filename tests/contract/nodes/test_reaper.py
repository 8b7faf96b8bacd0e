"""The reaper: who is dead, and who may say so."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import delete
from sqlalchemy.exc import DBAPIError

from sql.statements import nodes
from sql.tables import queue_nodes
from stickybus import State
from tests.contract.cluster import Cluster, Peer, born_claimed
from tests.contract.harness import Order, engine_of, lost_answers
from tests.contract.nodes.reaped import reaped


def test_a_killed_nodes_entries_run_elsewhere_within_the_lease_and_one_reaper_period(
    cluster: Cluster,
) -> None:
    killed, other = cluster.join("a"), cluster.join("b")
    cluster.live(3, killed, other)
    killed.bus.post_many([Order(1), Order(2)])

    seconds = cluster.bury("a", other, step=1.0)
    other.run()

    assert 15 <= seconds <= 15 + 5
    assert other.handler.numbers() == [1, 2]
    assert killed.handler.calls == 0


def test_the_reaper_wakes_when_the_lease_of_a_silent_node_ends_and_not_a_period_later(
    cluster: Cluster,
) -> None:
    cluster.join("a")
    other = cluster.join("b")
    other.reap()
    for _ in range(4):
        cluster.clock.advance(seconds=3)
        other.beat()
    cluster.clock.advance(seconds=1)
    other.beat()

    assert other.reap() == pytest.approx(2)  # 13 of 15 seconds have passed, its period is 5


def test_a_living_node_is_never_declared_dead(cluster: Cluster) -> None:
    one, two = cluster.join("a"), cluster.join("b")

    cluster.live(60, one, two, step=3.0)

    assert {cluster.row(name).state for name in "ab"} == {nodes.LIVE}


def test_a_slow_handler_of_a_living_node_keeps_its_entry_however_long_it_takes(
    cluster: Cluster,
) -> None:
    slow, other = cluster.join("a"), cluster.join("b")
    slow.bus.post(Order(1))
    [held] = slow.claim()

    cluster.live(900, slow, other, step=6.0)  # past every age threshold

    assert reaped(other) == []
    assert other.run() == []
    assert [entry.record_id for entry in slow.bus.find(states=[State.IN_PROCESSING])] == [held]
    slow.run()
    assert [entry.processing_state for entry in slow.bus.history()] == [State.PROCESSED]


def test_after_an_outage_longer_than_the_lease_nobody_is_reaped_whoever_acts_first(
    cluster: Cluster,
) -> None:
    one, two = cluster.join("a"), cluster.join("b")
    one.bus.post(Order(1))
    cluster.live(9, one, two)

    cluster.clock.advance(seconds=60)  # no beat of anybody reached the database
    two.reap()
    two.beat()
    two.reap()
    cluster.clock.advance(seconds=5)
    two.beat()
    two.reap()
    one.beat()
    cluster.live(30, one, two)

    assert {cluster.row(name).state for name in "ab"} == {nodes.LIVE}
    assert reaped(one) == []


@pytest.mark.parametrize("beats", [True, False])
@pytest.mark.parametrize("reading", range(1, 9))
def test_after_a_halt_of_all_nodes_in_the_midst_of_a_look_nobody_is_reaped(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, reading: int, *, beats: bool
) -> None:
    """As of a host whose machines stand still. The looker's own beat may come first after it."""
    cluster.join("a")
    looks = cluster.join("b")
    looks.reap()
    for _ in range(4):
        cluster.clock.advance(seconds=3)
        looks.beat()
    tells, read = cluster.clock.monotonic, list[float]()

    def halting() -> float:
        now = tells()
        read.append(now)
        if len(read) == reading:
            cluster.clock.advance(seconds=20)
            if beats:
                looks.beat()
        return now

    monkeypatch.setattr(cluster.clock, "monotonic", halting)
    looks.reap()
    assert cluster.row("a").state == nodes.LIVE


def test_a_node_that_died_in_an_outage_is_found_a_lease_after_it(cluster: Cluster) -> None:
    killed, other = cluster.join("a"), cluster.join("b")
    killed.bus.post(Order(1))
    cluster.live(9, killed, other)
    cluster.clock.advance(seconds=60)

    seconds = cluster.bury("a", other, step=1.0)

    assert 15 <= seconds <= 15 + 5 + 1
    other.run()
    assert other.handler.numbers() == [1]


def test_a_reaper_that_has_just_begun_to_watch_waits_calmly_for_a_full_lease(
    cluster: Cluster,
) -> None:
    cluster.join("a")
    other = cluster.join("b")
    cluster.tick(3, other)

    cluster.clock.advance(seconds=60)
    other.beat()

    assert other.reap() >= 1  # it has seen that node silent for 63 seconds, itself steady for none
    assert cluster.row("a").state == nodes.LIVE


def test_a_reaper_whose_own_lease_is_over_moves_nothing(cluster: Cluster) -> None:
    killed, other = cluster.join("a"), cluster.join("b")
    killed.bus.post(Order(1))
    cluster.bury("a", other)
    killed.bus.post(Order(2))  # of a frozen process that does not know yet
    born_claimed(engine_of(killed.bus), "a", 3)

    cluster.clock.advance(seconds=14)
    other.reap()

    assert len(reaped(other)) == 1


def test_a_node_with_the_fewest_beats_allowed_still_finds_the_dead(cluster: Cluster) -> None:
    cluster.join("a")
    other = cluster.join("b", beat_interval_seconds=5)

    assert cluster.bury("a", other, step=5.0) <= 20


def test_a_beat_between_the_look_and_the_verdict_saves_the_node(cluster: Cluster) -> None:
    late, other = cluster.join("a"), cluster.join("b")
    cluster.live(12, other, step=3.0)
    seen = cluster.row("a")
    late.beat()

    fenced = other.store.database.write(
        lambda connection: nodes.Nodes().fence(connection, "a", epoch=seen.epoch, beat=seen.beat)
    )

    assert not fenced
    assert cluster.row("a").state == nodes.LIVE


def test_a_beat_after_one_whose_answer_was_lost_is_a_sign_of_life_of_its_own(
    cluster: Cluster,
) -> None:
    node, other = cluster.join("a"), cluster.join("b")
    cluster.live(3, node, other)
    with (
        lost_answers(node.node.database, "UPDATE queue_nodes", committed=True) as cut,
        pytest.raises(DBAPIError),
    ):
        node.beat()
    assert cut
    cluster.live(8, other)
    node.beat()

    cluster.live(12, other)  # 20 s after the one, and 12 of 15 after the other

    assert cluster.row("a").state == nodes.LIVE


def test_two_reapers_at_once_make_one_copy_of_each_entry(cluster: Cluster) -> None:
    killed, *reapers = (cluster.join(name) for name in ("a", "b", "c"))
    killed.bus.post_many([Order(number) for number in range(45)])
    for peer in reapers:
        peer.reap()
    for _ in range(6):
        cluster.clock.advance(seconds=3)
        for peer in reapers:
            peer.beat()
    together = threading.Barrier(2)

    def reap(peer: Peer) -> None:
        together.wait(10)
        peer.reap()

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(reap, reapers))
    reapers[0].reap()

    assert len(reaped(killed)) == 45
    copies = killed.bus.find()
    assert sorted(entry.origin_id or 0 for entry in copies) == [
        entry.record_id for entry in reaped(killed)
    ]
    for peer in reapers:
        peer.run()
    assert sorted(reapers[0].handler.numbers() + reapers[1].handler.numbers()) == list(range(45))


def test_the_row_of_a_dead_node_is_forgotten_after_a_day(cluster: Cluster) -> None:
    cluster.join("a")
    other = cluster.join("b")
    cluster.bury("a", other)

    cluster.clock.advance(seconds=86_400)
    other.beat()
    other.reap()

    known = other.store.database.fetch(nodes.Nodes().all_nodes)
    assert [row.name for row in known] == ["b"]


def test_a_reaper_that_meets_a_broken_connection_goes_on_at_its_next_turn(cluster: Cluster) -> None:
    killed, other = cluster.join("a"), cluster.join("b")
    killed.bus.post(Order(1))
    cluster.live(15, other, step=3.0)
    table = other.store.statements.past.name
    rename = "ALTER TABLE {} RENAME TO {}"

    def run(statement: str) -> None:
        other.store.database.write(lambda connection: connection.exec_driver_sql(statement))

    run(rename.format(table, "moved_away"))
    try:
        with pytest.raises(Exception, match=table):
            cluster.tick(3, other)
    finally:
        run(rename.format("moved_away", table))
    assert len(other.bus.find()) == 1  # neither lost nor doubled

    cluster.tick(3, other)

    other.run()
    assert other.handler.numbers() == [1]


def test_a_live_node_whose_row_was_deleted_keeps_its_entries_and_enters_it_anew(
    cluster: Cluster,
) -> None:
    owner, other, dead = cluster.join("a"), cluster.join("b"), cluster.join("c")
    cluster.bury("c", owner, other)
    del dead  # its row stays for a day, and lanes are looked at in each turn
    owner.bus.post(Order(1))
    owner.store.database.write(
        lambda connection: connection.execute(delete(queue_nodes).where(queue_nodes.c.name == "a"))
    )

    cluster.tick(2.9, other)
    cluster.tick(2.9, other)
    assert other.bus.find()[0].processing_owner == "a"
    owner.beat()

    cluster.live(30, owner, other)
    assert cluster.row("a").state == nodes.LIVE
    owner.run()
    other.run()
    assert (owner.handler.numbers(), other.handler.numbers()) == ([1], [])
