"""Groups as those who look see them: the inspector, the doctor, the command line and metrics."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry
from sqlalchemy import URL, update
from typer.testing import CliRunner

from sql.tables import queue_groups
from stickybus import (
    GroupNotFoundError,
    InvalidPostError,
    PersistentBus,
    SchemaMissingError,
    inspect,
)
from stickybus.cli import app
from tests.contract.cluster import Cluster, Peer
from tests.contract.groups.looks import callbacks, open_group
from tests.contract.harness import Order


def change(peer: Peer, group: int, **values: Any) -> None:
    """Write columns of a group by hand."""
    statement = update(queue_groups).where(queue_groups.c.group_id == group).values(**values)
    peer.store.database.write(lambda connection: connection.execute(statement))


def test_the_inspector_lists_groups(cluster: Cluster) -> None:
    peer = cluster.join("a")
    first, second, third = (open_group(peer, name=name) for name in ("x", "y", None))
    peer.bus.post(Order(1), group=second, delay=60)
    peer.bus.seal(first)
    with inspect(cluster.url) as inspector:
        assert [one.group_id for one in inspector.groups()] == [third, second, first]
        assert [one.group_id for one in inspector.groups(incomplete=True)] == [third, second]
        assert [one.group_id for one in inspector.groups(limit=1)] == [third]
        assert inspector.groups(queue_name="other") == []
        assert inspector.groups(table="notifications") == []
        assert inspector.group_status(second) == peer.bus.group_status(second)
        with pytest.raises(GroupNotFoundError):
            inspector.group_status(second, table="notifications")
        with pytest.raises(GroupNotFoundError, match="in bus_events and notifications"):
            inspector.group_status(third + 1)
        with pytest.raises(SchemaMissingError):
            inspector.groups(table="nowhere")
        for wrong in ({"limit": -1}, {"queue_name": ""}):
            with pytest.raises(InvalidPostError):
                inspector.groups(**wrong)


def test_the_doctor_finds_groups_that_would_never_be_complete(cluster: Cluster) -> None:
    peer = cluster.join("a")
    sealed, miscounted, unsealed = (open_group(peer) for _ in range(3))
    for group in (sealed, miscounted, unsealed):
        peer.bus.post(Order(1), group=group)
    living = open_group(peer)
    peer.bus.post(Order(1), group=living, delay=600)
    peer.run()
    past = datetime(2020, 1, 1, tzinfo=UTC)
    for group in (sealed, miscounted, unsealed, living):  # whatever the manual clock shows
        change(peer, group, created_date=datetime.now(UTC))

    def found() -> dict[str, str]:
        with inspect(cluster.url) as inspector:
            return {one.check: one.cure for one in inspector.doctor() if "groups" in one.check}

    assert found() == {}
    change(peer, unsealed, created_date=past)
    change(peer, living, created_date=past)
    change(peer, sealed, sealed_date=past)
    change(peer, miscounted, total=0)
    cures = found()
    assert {check: int(cure.split()[3]) for check, cure in cures.items()} == {
        "unfinished-groups": sealed,
        "miscounted-groups": miscounted,
        "unsealed-groups": unsealed,
    }
    runner = CliRunner()
    for cure in cures.values():
        words = cure.partition(" #")[0].split()[1:]
        url = cluster.url.render_as_string(hide_password=False)
        assert runner.invoke(app, [*words, "--url", url]).exit_code == 0
    assert found() == {}
    assert len(callbacks(peer)) == 6


def test_the_command_line_shows_groups(cluster: Cluster) -> None:
    peer = cluster.join("a")
    group = open_group(peer, name="nightly")
    peer.bus.post_many([Order(1)])
    peer.bus.post(Order(2), group=group)
    url, runner = cluster.url.render_as_string(hide_password=False), CliRunner()

    def run(*words: str) -> str:
        result = runner.invoke(app, ["groups", *words, "--url", url])
        assert result.exit_code == 0, result.output
        return result.stdout

    [shown] = msgspec.json.decode(run("list", "--incomplete", "--json"))
    assert (shown["group_id"], shown["name"], shown["live"]) == (group, "nightly", 1)
    assert msgspec.json.decode(run("show", str(group), "--json")) == [shown]
    assert "nightly" in run("list")
    assert run("seal", str(group)) == f"group {group} is sealed\n"
    assert msgspec.json.decode(run("seal", str(group), "--json")) == {"sealed": False}
    peer.run()
    assert "There is no group." in run("list", "--incomplete")


def test_a_metric_counts_groups_that_are_not_complete(database_url: URL) -> None:
    registry = CollectorRegistry()
    with PersistentBus(database_url, metrics_registry=registry) as bus:
        bus.seal(bus.open_group())
        bus.open_group()
        labels = {"table": bus.config.table}
        assert registry.get_sample_value("stickybus_groups_incomplete", labels) == 1
