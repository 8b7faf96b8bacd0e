"""The command line: status and nodes."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import URL, Engine, text, update

from bus.persistent import PersistentBus
from notifications.service import NotificationService
from queue_core.model.config import BusConfig
from queue_core.model.lanes import limited_lane
from queue_core.model.posting import Posting
from sql.tables import entry_tables, queue_nodes
from stickybus.testing import drain
from tests.acceptance.cli.running import Cli
from tests.contract.harness import engine_of


def test_status_counts_entries_by_where_they_stand(
    cli: Cli, bus: PersistentBus, engine: Engine
) -> None:
    bus.subscribe("Good", lambda event: event, name="good")
    bus.subscribe("Bad", lambda event: event["missing"], name="bad")
    bus.post_many(
        [Posting(event={}, event_name=name) for name in ("Good", "Good", "Bad", "New", "New")]
    )
    drain(bus)
    bus.post_many([Posting(event={}, event_name="Good"), Posting(event={}, event_name="Good")])
    bus.post_many([Posting(event={}, event_name="Good", at=datetime.now(UTC) + timedelta(days=1))])
    with engine.begin() as connection:
        connection.execute(text("UPDATE bus_events SET lane = '!suspect' WHERE record_id = 7"))
    found = cli("status", "--json").json
    (queue,) = found["queues"]
    standing = {
        name: queue[name] for name in ("ready", "scheduled", "running", "parked", "suspect")
    }
    assert standing == {"ready": 1, "scheduled": 1, "running": 0, "parked": 2, "suspect": 1}
    assert 0 <= queue["oldest_ready_seconds"] < 60
    assert queue["posted_per_second"] == pytest.approx(8 / 60)
    assert queue["processed_per_second"] == pytest.approx(2 / 60)
    assert queue["failed_per_second"] == pytest.approx(1 / 60)
    assert [node["state"] for node in found["nodes"]] == ["STOPPED"]
    table = cli("status").out
    for heading in ("READY", "SCHEDULED", "PARKED", "OLDEST READY", "PROCESSED/S", "LEASE"):
        assert heading in table


def test_status_fits_the_columns_of_the_terminal(
    cli: Cli, bus: PersistentBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    bus.post({}, event_name="New")
    wide = cli("status").out.splitlines()[1].split()
    monkeypatch.setenv("COLUMNS", "80")
    lines = cli("status").out.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[1].split() == ["TABLE", "QUEUE", "READY", "OLDEST", "READY", "POSTED/S"]
    assert {"LIMITED", "PROCESSED/S"} < set(wide)
    assert lines[2].split()[-1] == "0.017"


def test_status_shows_for_how_long_the_oldest_has_been_ready(
    cli: Cli, bus: PersistentBus, engine: Engine
) -> None:
    bus.post({}, event_name="New")
    due = datetime.now(UTC) - timedelta(hours=36)
    with engine.begin() as connection:
        entries = entry_tables("bus_events").main
        connection.execute(update(entries).values(created_date=due, effective_date=due))
    assert " 1.5 d " in cli("status").out


def test_status_and_recurring_tell_that_there_is_a_work_queue(cli: Cli, bus: PersistentBus) -> None:
    tasks = "2 tasks in 1 queue of the work queue. See: stickybus tasks stats"
    schedules = "1 recurring schedule of the work queue. See: stickybus tasks recurring"
    assert "work queue" not in cli("status").out + cli("recurring").out
    cli("tasks", "ins", "-q", "mail", "-v", "1", "-v", "2")
    cli("tasks", "recur", "-q", "health", "--name", "ping", "--every", "1h")
    assert tasks in cli("status").out
    for command in ("status", "recurring"):
        assert schedules in cli(command).out
        assert "work queue" not in cli(command, "--table", "bus_events").out


def test_status_shows_running_entries_and_a_live_lease(cli: Cli, bus: PersistentBus) -> None:
    found: list[Any] = []
    bus.subscribe(
        "Look", lambda event: found.append((event, cli("status", "--json").json)), name="look"
    )
    bus.post({}, event_name="Look")
    drain(bus)
    ((_, seen),) = found
    assert [queue["running"] for queue in seen["queues"]] == [1]
    (node,) = seen["nodes"]
    assert node["state"] == "LIVE"
    assert 0 < node["lease_left_seconds"] <= node["lease_seconds"] == 15
    assert node["serves"][0]["queues"] == ["bus"]


def test_status_tells_in_a_line_that_nodes_have_different_subscribers(
    cli: Cli, bus: PersistentBus, database_url: URL
) -> None:
    other = PersistentBus(database_url, BusConfig(node_name="billing"))
    for name in ("Order", "A", "B", "C"):
        bus.subscribe(name, print, name="mail")
        other.subscribe(name, print, name="book")
    with bus:
        assert "Subscribers differ" not in cli("status").out
        assert cli("status", "--json").json["differing_subscribers"] == []
        with other:
            [*_, order] = cli("status", "--json").json["differing_subscribers"]
            assert order == {
                "table": "bus_events",
                "queue_name": "bus",
                "class_name": "Order",
                "nodes_by_subscribers": {
                    "mail": [engine_of(bus).lifecycle.name],
                    "book": ["billing"],
                },
            }
            assert (
                "Subscribers differ between nodes, of A, B, C and 1 more: each" in cli("status").out
            )
            assert "Subscribers differ" not in cli("status", "--table", "notifications").out


def test_status_counts_dead_letters_and_tells_the_newest(cli: Cli, bus: PersistentBus) -> None:
    bus.subscribe("Bad", lambda event: event["missing"], name="bad")
    for _ in range(2):
        bus.post({}, event_name="Bad")
    drain(bus)
    (queue,) = cli("status", "--json").json["queues"]
    (newest, _) = cli("history", "list", "--json").json
    assert (queue["dead_letters"], queue["failed_per_second"]) == (2, pytest.approx(2 / 60))
    assert datetime.fromisoformat(queue["newest_dead_letter"]) == datetime.fromisoformat(
        newest["finished_date"]
    )
    assert "2 dead letters. See: stickybus failed list" in cli("status").out
    cli("entries", "retry", str(newest["record_id"]))
    (left,) = cli("history", "list", "--dead-letters", "--json").json
    assert left["record_id"] < newest["record_id"]
    assert len(cli("history", "list", "--state", "FAILED", "--json").json) == 2


def test_status_shows_limits_and_counts_what_they_hold(
    cli: Cli, bus: PersistentBus, engine: Engine
) -> None:
    assert cli("status", "--json").json["limits"] == []
    assert "LIMITED BY" not in cli("status").out
    bus.limit(concurrency=7, rate=100, by="ann")
    bus.post_many([Posting(event={}, event_name="Good") for _ in range(3)])
    with engine.begin() as connection:
        lane = {"lane": limited_lane("bus")}
        connection.execute(text("UPDATE bus_events SET lane = :lane WHERE record_id < 3"), lane)
        connection.execute(
            text("UPDATE bus_events SET processing_state = 'IN_PROCESSING' WHERE record_id = 3")
        )
    found = cli("status", "--json").json
    (queue,), (limit,) = found["queues"], found["limits"]
    assert (queue["limited"], queue["ready"], queue["running"]) == (2, 0, 1)
    assert limit == {**cli("limits", "--json").json[0], "running": 1}
    assert (limit["concurrency"], limit["rate"]) == (7, 100)
    for heading in ("LIMITED", "CONCURRENCY", "LIMITED BY"):
        assert heading in cli("status").out
    assert "RUNNING" not in cli("limits").out
    assert cli("status", "--table", "notifications", "--json").json["limits"] == []


def test_status_counts_held_order_keys(cli: Cli, bus: PersistentBus) -> None:
    bus.subscribe("Bad", lambda event: event["missing"], name="bad")
    first, _ = [bus.post({}, event_name="Bad", order_key="account-7") for _ in range(2)]
    drain(bus)
    assert [queue["held_keys"] for queue in cli("status", "--json").json["queues"]] == [1]
    assert "1 held order key. See: stickybus order held" in cli("status").out
    bus.discard(first)
    assert "held order key" not in cli("status").out


def test_recurring_and_status_show_schedules_with_their_next_date(
    cli: Cli, database_url: URL
) -> None:
    assert "There are no recurring schedules" in cli("recurring").out
    with closing(NotificationService(database_url)) as service:
        queue = service.create_queue("shop", "summaries", print)
        queue.recur("daily", {}, cron="0 9 * * *", timezone="Europe/Berlin")
        queue.recur("often", {}, every=30)
    (daily, often) = cli("recurring", "--json").json
    assert (daily["queue_name"], daily["rule"]["expression"]) == ("shop:summaries", "0 9 * * *")
    assert datetime.fromisoformat(often["next_due"]) > datetime.now(UTC) - timedelta(minutes=1)
    assert cli("status", "--json").json["schedules"] == [daily, often]
    for shown in (cli("recurring").out, cli("status").out):
        assert "0 9 * * * (Europe/Berlin)" in shown
        assert "every 30 s" in shown
    assert cli("recurring", "--table", "bus_events", "--json").json == []


def test_lists_read_all_tables_or_the_one_that_is_named(
    cli: Cli, bus: PersistentBus, database_url: URL
) -> None:
    with closing(NotificationService(database_url)) as service:
        queue = service.create_queue("shop", "reminders", print)
        queue.schedule({}, delay=3_600, search_key2=9)
        queue.remove(queue.schedule({}, delay=3_600))
    bus.post({}, event_name="New", search_key2=9)
    found = cli("entries", "list", "--key2", "9", "--json").json
    assert [(entry["table"], entry["class_name"]) for entry in found] == [
        ("bus_events", "New"),
        ("notifications", "reminders"),
    ]
    assert len(cli("entries", "list", "--table", "bus_events", "--json").json) == 1
    assert [entry["table"] for entry in cli("history", "list", "--json").json] == ["notifications"]
    assert cli("history", "list", "--table", "bus_events", "--json").json == []
    assert "notifications" in cli("history", "list").out


def test_nodes_shows_who_serves_what(cli: Cli, bus: PersistentBus) -> None:
    assert "No node has ever run here" in cli("nodes").out
    with bus:
        assert [node["state"] for node in cli("nodes", "--json").json] == ["LIVE"]
        assert "15 s" in cli("nodes").out


@pytest.mark.parametrize(
    "serves", ["{", "null", "[1]", '[{"queues":7}]', '[{"queues":[7]}]', "[" * 5_000]
)
def test_nodes_shows_a_node_whatever_it_says_that_it_serves(
    cli: Cli, bus: PersistentBus, serves: str
) -> None:
    with bus:
        name = engine_of(bus).lifecycle.name
        change = update(queue_nodes).values(serves=serves)
        engine_of(bus).database.write(lambda connection: connection.execute(change))
        assert [(node["name"], node["serves"]) for node in cli("nodes", "--json").json] == [
            (name, [])
        ]
        assert name[:8] in cli("nodes").out


def test_status_of_an_unknown_table_tells_what_is_missing(cli: Cli) -> None:
    assert "lacks the table 'orders'" in cli("status", "--table", "orders", expect=3).err
