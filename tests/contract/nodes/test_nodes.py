"""A process as a node: its name, its epochs, its beats and its lease."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import URL

from queue_core.cluster import host, process_nodes
from queue_core.cluster.node import Node
from queue_core.model.outcome import Released
from queue_core.runtime.clock import SystemClock
from sql.statements import nodes
from stickybus import (
    BusConfig,
    ConfigurationError,
    LifecycleError,
    NodeConfig,
    NodeNameTakenError,
    NotificationConfig,
    NotificationService,
    PersistentBus,
    State,
    create_schema,
)
from tests import requirements as needs
from tests.contract.cluster import Cluster, QuietNode, sample
from tests.contract.conftest import MakeBus, MakeService
from tests.contract.harness import (
    Machine,
    Order,
    database_of,
    eventually,
    lifecycle_of,
    listening,
    node_of,
    nodes_here,
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


def test_the_epoch_rises_with_each_registration(cluster: Cluster) -> None:
    peer = cluster.join("a")
    epochs = [peer.node.epoch]
    for _ in range(2):
        peer.lifecycle.membership.leave()
        peer.join()
        epochs.append(peer.node.epoch)

    assert epochs == sorted(set(epochs))
    assert cluster.row("a").epoch == epochs[-1]


def test_a_name_that_a_live_node_holds_is_refused_with_an_error_that_says_who_holds_it(
    cluster: Cluster,
) -> None:
    holder = cluster.join("a")
    cluster.vanish(holder)
    cluster.change_row("a", hostname="other-host", host_identity="other-host", pid=4711)
    second = cluster.peer("a")

    refused = cluster.while_waiting(second.join, holder.beat).exception()

    assert isinstance(refused, NodeNameTakenError)
    assert (refused.node_name, refused.hostname, refused.pid) == ("a", "other-host", 4711)
    assert "host other-host, pid 4711" in str(refused)
    assert "Nothing was started" in str(refused)
    assert cluster.clock.monotonic() <= 15  # it knew at the next beat
    assert holder.beat() == 3.0


def test_two_nodes_of_one_name_never_run_side_by_side(cluster: Cluster) -> None:
    first = cluster.join("a")
    first.bus.post(Order(1))
    cluster.vanish(first)
    second = cluster.peer("a")

    assert isinstance(
        cluster.while_waiting(second.join, first.beat).exception(), NodeNameTakenError
    )

    assert second.lifecycle.node is None
    first.run()
    second.bus.post(Order(2))  # no node: for anybody
    assert second.handler.calls == 0
    first.run()
    assert first.handler.numbers() == [1, 2]


def test_a_silent_name_is_taken_over_after_one_lease_and_not_before(cluster: Cluster) -> None:
    silent = cluster.join("a")
    cluster.vanish(silent)
    cluster.change_row("a", hostname="other-host", host_identity="other-host")
    heir = cluster.peer("a")

    cluster.while_waiting(heir.join).result()

    assert cluster.clock.monotonic() >= 15
    assert cluster.clock.monotonic() <= 17
    assert heir.node.epoch == silent.node.epoch + 1
    assert not silent.node.lease.holds()


def test_a_name_is_not_taken_because_its_holder_could_not_beat_during_an_outage(
    cluster: Cluster,
) -> None:
    """Nor after the machine was suspended: a node that watched nothing knows nothing."""
    holder = cluster.join("a")
    cluster.vanish(holder)
    cluster.change_row("a", hostname="other-host", host_identity="other-host")
    outages = iter([20.0])

    def outage_then_beats() -> None:
        if (seconds := next(outages, None)) is not None:
            cluster.clock.advance(seconds=seconds)
        else:
            holder.beat()

    refused = cluster.while_waiting(cluster.peer("a").join, outage_then_beats).exception()

    assert isinstance(refused, NodeNameTakenError)
    assert holder.node.lease.holds()


def test_the_lease_of_the_silent_holder_counts_if_it_is_the_longer_one(cluster: Cluster) -> None:
    silent = cluster.join("a", lease_seconds=40)
    cluster.vanish(silent)

    cluster.while_waiting(cluster.peer("a").join).result()

    assert cluster.clock.monotonic() >= 40


def test_the_name_of_a_dead_process_of_this_machine_is_taken_at_once(cluster: Cluster) -> None:
    dead = cluster.join("a")
    cluster.vanish(dead)
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    cluster.change_row("a", pid=process.pid)

    heir = cluster.join("a")

    assert cluster.clock.monotonic() == 0
    assert heir.node.epoch == dead.node.epoch + 1


def test_a_process_that_died_but_was_not_waited_for_counts_as_dead(cluster: Cluster) -> None:
    cluster.vanish(cluster.join("a"))
    with subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.read()  # ends with the process
        cluster.change_row("a", pid=process.pid)
        eventually(lambda: host.is_zombie(process.pid), "the child is a zombie")

        cluster.join("a")

    assert cluster.clock.monotonic() == 0


def test_a_stopped_name_is_free_at_once(cluster: Cluster) -> None:
    first = cluster.join("a")
    first.lifecycle.membership.leave()
    assert cluster.row("a").state == nodes.STOPPED

    cluster.join("a")

    assert cluster.clock.monotonic() == 0
    assert cluster.row("a").state == nodes.LIVE


def test_names_that_differ_in_case_accent_or_trailing_space_are_different_nodes(
    cluster: Cluster,
) -> None:
    names = ["node", "Node", "nóde", "node "]

    for name in names:
        cluster.join(name)

    assert cluster.clock.monotonic() == 0
    assert [cluster.row(name).name for name in names] == names


def test_a_node_name_is_the_configured_one_or_else_made_of_host_process_and_chance() -> None:
    assert process_nodes.name_of(BusConfig(node_name="billing-1")) == "billing-1"

    default = process_nodes.name_of(BusConfig())

    assert default.startswith(socket.gethostname()[:20])
    assert default == process_nodes.name_of(NotificationConfig())  # one per process
    assert len(default) <= 64
    assert len({host.default_name() for _ in range(100)}) == 100


def test_a_bus_and_a_service_of_one_process_share_a_node_until_the_last_one_stops(
    make_bus: MakeBus, make_service: MakeService
) -> None:
    bus, service = make_bus(node_name="shared").start(), make_service(node_name="shared")
    service.create_queue("billing", "dunning", print)
    service.start()
    assert lifecycle_of(bus).node is lifecycle_of(service).node
    database = database_of(service)

    def row() -> tuple[str, str]:
        found = database.fetch(lambda connection: nodes.Nodes().node(connection, "shared"))
        assert found is not None
        return found.state, found.serves

    assert "bus_events" in row()[1]
    assert "notifications" in row()[1]

    bus.stop()
    assert row()[0] == nodes.LIVE
    assert "bus_events" not in row()[1]
    service.stop()
    assert row()[0] == nodes.STOPPED


def test_a_second_bus_on_the_same_table_and_node_is_refused(make_bus: MakeBus) -> None:
    make_bus(node_name="a").start()

    with pytest.raises(
        LifecycleError, match="already runs a bus or service on the table 'bus_events'"
    ):
        make_bus(node_name="a").start()


@pytest.mark.parametrize(
    ("key", "here", "there"),
    [
        ("lease_seconds", 20.0, 10.0),
        ("beat_interval_seconds", 2.0, 3.0),
        ("reap_period_seconds", 4.0, 5.0),
        ("reap_batch_size", 20, 200),
        ("statement_timeout_seconds", 10.0, 30.0),
    ],
)
def test_members_of_a_node_with_other_settings_are_refused(
    make_bus: MakeBus, make_service: MakeService, key: str, here: float, there: float
) -> None:
    beats: dict[str, Any] = {"beat_interval_seconds": 3.0}
    make_bus(node_name="shared", **{**beats, key: there}).start()
    service = make_service(node_name="shared", **{**beats, key: here})

    said = f"{key}={here!r} of the member on notifications differs from {key}={there!r} of the members on bus_events"
    with pytest.raises(ConfigurationError, match=re.escape(said)) as refused:
        service.start()

    assert (refused.value.key, refused.value.value, refused.value.node_name) == (
        key,
        here,
        "shared",
    )
    assert lifecycle_of(service).node is None


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


def test_posting_before_the_start_waits_for_no_node_that_fights_for_its_name(
    cluster: Cluster, database_url: URL
) -> None:
    silent = cluster.join("a")
    cluster.vanish(silent)
    heir, poster = cluster.peer("a"), cluster.peer("b")
    ids = list[int]()

    cluster.while_waiting(heir.join, lambda: ids.append(poster.bus.post(Order(len(ids))))).result()

    assert ids
    assert cluster.clock.monotonic() >= 15


def test_a_service_refuses_to_start_under_a_name_that_beats(database_url: URL) -> None:
    settings: dict[str, Any] = {
        "node_name": "a",
        "node": NodeConfig(beat_interval_seconds=0.05),
    }
    with PersistentBus(database_url, BusConfig(**settings)) as bus:
        node = node_of(bus)
        held = nodes_here.pop((node.database.key, "a"))
        service = NotificationService(database_url, NotificationConfig(**settings))
        try:
            with pytest.raises(NodeNameTakenError):
                service.start()
        finally:
            nodes_here[node.database.key, "a"] = held
            service.close()


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


def test_two_spellings_of_one_database_are_one_node(
    make_bus: MakeBus, make_service: MakeService, database_url: URL, tmp_path: Path
) -> None:
    bus = make_bus(node_name="one").start()
    other = database_url.set(host="localhost") if database_url.host else database_url
    if database_url.database and not database_url.host:
        (tmp_path / "link.db").symlink_to(database_url.database)
        other = database_url.set(database=str(tmp_path / "link.db"))
    assert other != database_url

    service = make_service(database=other, node_name="one").start()

    assert lifecycle_of(service).node is lifecycle_of(bus).node


@needs.schemas
def test_two_schemas_of_one_database_are_two_nodes(make_bus: MakeBus, database_url: URL) -> None:
    here = make_bus(node_name="one").start()
    with database_of(here).begin() as connection:
        connection.exec_driver_sql("CREATE SCHEMA elsewhere")
    url = database_url.update_query_dict({"options": "-csearch_path=elsewhere"})
    create_schema(url)

    there = make_bus(node_name="one", database=url).start()

    assert lifecycle_of(there).node is not lifecycle_of(here).node
    read = database_of(there).fetch
    assert read(lambda connection: nodes.Nodes().node(connection, "one")) is not None
