"""A process as a node: its name, whoever else has it, and its epochs."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import URL

from queue_core.cluster import host, process_nodes
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
    create_schema,
)
from tests import requirements as needs
from tests.contract.cluster import Cluster
from tests.contract.conftest import MakeBus, MakeService
from tests.contract.harness import (
    Order,
    database_of,
    eventually,
    lifecycle_of,
    node_of,
    nodes_here,
)


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

    said = (
        f"{key}={here!r} of the member on notifications differs from {key}={there!r} of the "
        "members on bus_events"
    )
    with pytest.raises(ConfigurationError, match=re.escape(said)) as refused:
        service.start()

    assert (refused.value.key, refused.value.value, refused.value.node_name) == (
        key,
        here,
        "shared",
    )
    assert lifecycle_of(service).node is None


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
