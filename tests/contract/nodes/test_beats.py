"""Beats: they renew a node's lease, read the database's clock, and watch over others."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import URL

from queue_core.cluster.node import Node
from queue_core.model.outcome import Released
from queue_core.runtime.clock import SystemClock
from sql.statements import nodes
from stickybus import (
    BusConfig,
    PersistentBus,
    State,
)
from tests import requirements as needs
from tests.contract.cluster import Cluster, QuietNode, sample
from tests.contract.conftest import MakeBus
from tests.contract.harness import (
    Machine,
    Order,
    database_of,
    eventually,
    lifecycle_of,
    listening,
    node_of,
)


def test_each_beat_raises_the_counter_in_the_nodes_row_and_renews_its_lease(
    cluster: Cluster,
) -> None:
    peer = cluster.join("a")
    assert cluster.row("a").beat == 0

    for beat in (1, 2):
        cluster.clock.advance(seconds=3)
        assert peer.beat() == 3.0  # a fifth of the lease
        row = cluster.row("a")
        assert (row.beat, row.state, row.beat_date) == (beat, nodes.LIVE, cluster.clock.now())

    assert peer.node.lease.left_seconds == pytest.approx(15 * 0.9)


def test_a_started_bus_beats_by_itself(make_bus: MakeBus) -> None:
    bus = make_bus(node_name="beating", lease_seconds=1.0, beat_interval_seconds=0.05).start()
    database = database_of(bus)

    def beat() -> int:
        row = database.fetch(lambda connection: nodes.Nodes().node(connection, "beating"))
        return 0 if row is None else int(row.beat)

    eventually(lambda: beat() >= 3, "three beats")


def test_a_beat_that_fails_is_tried_again_within_the_beat_interval_however_long_an_outage_lasts(
    cluster: Cluster,
) -> None:
    node = cluster.join("a", lease_seconds=1.0, beat_interval_seconds=0.2).node

    pauses = [
        node.beats.pause_after(RuntimeError("no answer"), failures) for failures in range(2_000)
    ]

    assert max(pauses) <= 0.2


def test_a_process_that_froze_for_its_lease_starts_nothing_when_it_wakes(cluster: Cluster) -> None:
    peer = cluster.join("a")
    peer.bus.post(Order(1))  # born claimed, waiting for a thread
    cluster.clock.advance(seconds=14)

    peer.lifecycle.pool.run_submitted()
    [outcome] = peer.lifecycle.finisher.write_all()

    assert isinstance(outcome, Released)
    assert peer.handler.calls == 0
    assert [entry.processing_state for entry in peer.bus.find()] == [State.AVAILABLE]
    peer.beat()  # its lease holds again: nobody had taken it over
    peer.run()
    assert peer.handler.numbers() == [1]


def test_a_node_that_was_declared_dead_learns_it_from_its_next_beat_and_registers_anew(
    cluster: Cluster,
) -> None:
    frozen, other = cluster.join("a"), cluster.join("b")
    lost = sample("leases_lost_total", {"table": "bus_events"})
    epoch = frozen.node.epoch
    cluster.bury("a", other)

    frozen.beat()

    assert frozen.node.epoch == epoch + 1
    assert frozen.node.lease.holds()
    assert cluster.row("a").state == nodes.LIVE
    assert sample("leases_lost_total", {"table": "bus_events"}) == lost + 1


@needs.server
def test_dates_follow_the_clock_of_the_database(make_bus: MakeBus, database_url: URL) -> None:
    clock = SystemClock(offset_seconds=7200)
    bus = PersistentBus(database_url, BusConfig(node_name="skewed"), clock=clock)
    try:
        lifecycle_of(bus).membership.join(QuietNode)
        node = node_of(bus)
        node.beat_turn()

        assert abs(clock.now() - datetime.now(UTC)) < timedelta(minutes=1)
        assert abs(node.skew_seconds) < 60
    finally:
        lifecycle_of(bus).membership.leave()
        bus.close()


@pytest.fixture
def following(make_bus: MakeBus) -> Iterator[Node]:
    """A node that follows the database's clock, without loops."""
    bus = make_bus(clock=SystemClock())
    lifecycle_of(bus).membership.join(QuietNode)
    yield node_of(bus)
    lifecycle_of(bus).membership.leave()


@needs.server
def test_a_slow_commit_of_a_beat_is_no_skew(following: Node, machine: Machine) -> None:
    with listening(following.database, commit=lambda _connection: machine.suspend(3.0)):
        following.beat_turn()

    assert abs(following.skew_seconds) < 1


@needs.server
def test_a_clock_that_was_slow_to_answer_is_no_skew_and_is_read_again_with_the_next_beat(
    following: Node, machine: Machine
) -> None:
    read, slow = list[str](), [3.0, 0.0]

    def note(_connection: Any, _cursor: Any, text: str, *_rest: Any) -> None:
        if "_timestamp(" in text:
            read.append(text)
            machine.suspend(slow[len(read) - 1])

    with listening(following.database, after_cursor_execute=note):
        following.beat_turn()
        assert (len(read), round(following.skew_seconds)) == (1, 0)
        following.beat_turn()
        assert len(read) == 2


def test_an_outage_is_no_silence_of_a_node_with_a_shorter_lease(cluster: Cluster) -> None:
    short = cluster.join("short", lease_seconds=15)
    witness = cluster.join("witness", lease_seconds=60, beat_interval_seconds=3)
    cluster.live(6, short, witness, step=3.0)

    cluster.clock.advance(seconds=20)  # nobody beats; half of the witness's lease is longer
    for peer in (witness, short):
        peer.beat()
        peer.reap()

    assert cluster.row("short").state == nodes.LIVE


def test_a_dead_node_with_a_shorter_lease_is_found_by_one_that_beats_rarely(
    cluster: Cluster,
) -> None:
    cluster.join("short", lease_seconds=3)
    witness = cluster.join("witness", lease_seconds=60, beat_interval_seconds=12)

    assert cluster.bury("short", witness, step=12.0) <= 48


def test_a_failed_beat_discards_what_was_seen_of_others(cluster: Cluster) -> None:
    silent, witness = cluster.join("silent"), cluster.join("witness")
    cluster.live(12, witness, step=3.0)

    def fail(_connection: object, _cursor: object, text: str, *_rest: object) -> None:
        if "queue_nodes" in text:
            raise RuntimeError("no answer")

    cluster.clock.advance(seconds=2)
    with listening(witness.store.database, before_cursor_execute=fail), pytest.raises(RuntimeError):
        witness.beat()
    cluster.clock.advance(seconds=2)
    witness.beat()
    witness.reap()

    assert cluster.row("silent").state == nodes.LIVE
    assert cluster.bury(silent.node.name, witness) >= 13
