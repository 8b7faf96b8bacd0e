"""What `stickybus doctor` finds in entries, nodes and sessions."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import (
    URL,
    Engine,
    insert,
    update,
)

from queue_core.doctor.examination import examine
from queue_core.runtime.clock import SystemClock
from sql.database import Database
from sql.doctor.finding import Severity
from sql.tables import entry_tables, queue_nodes, queue_schedules
from tests import requirements as needs
from tests.contract.doctor.answers import Doctor, Told
from tests.contract.doctor.rows import LONG_AGO, enter, fill


def test_entries_that_have_been_due_for_long_are_found(doctor: Doctor, engine: Engine) -> None:
    fill(engine, "bus_events", rows=3)

    told = doctor()

    assert told.code == 1
    found = told.one("waiting-entries")
    assert found["what"].startswith(
        "at least 3 entries of 'bus' in bus_events are due and wait, the oldest for 200 d"
    )


def test_entries_posted_just_now_for_a_date_long_past_are_not_found(
    doctor: Doctor, engine: Engine
) -> None:
    fill(engine, "bus_events", rows=3, created=datetime.now(UTC))

    assert doctor() == Told(0, [])


def test_entries_that_no_node_has_known_for_long_are_found(doctor: Doctor, engine: Engine) -> None:
    fill(engine, "notifications", rows=2, lane="!parked")

    told = doctor()

    assert told.code == 1
    assert told.one("parked-entries")["what"].startswith(
        "at least 2 entries of 'bus' in notifications are parked"
    )


@pytest.mark.parametrize("state", ["LIVE", "STOPPED", "DEAD", None])
def test_entries_in_the_lane_of_a_node_that_is_gone_are_found_unless_a_live_node_serves_their_table(
    doctor: Doctor, engine: Engine, state: str | None
) -> None:
    fill(engine, "bus_events", rows=1, lane="gone", due=datetime.now(UTC) + timedelta(days=1))
    if state is not None:
        enter(engine, "gone", state=state, beat=LONG_AGO)
    enter(engine, "elsewhere", tables=["notifications"])

    told = doctor()

    assert told.code == 1
    assert told.one("stranded-lane")["subject"] == "gone"
    enter(engine, "here", tables=["bus_events"])
    assert doctor().of("stranded-lane") == []


def test_a_live_node_that_no_longer_beats_is_found(doctor: Doctor, engine: Engine) -> None:
    enter(engine, "silent", beat=datetime.now(UTC) - timedelta(seconds=120))
    enter(engine, "stopped", state="STOPPED", beat=LONG_AGO)

    told = doctor()

    assert told.code == 1
    assert told.one("silent-node")["subject"] == "silent"
    assert "No node is alive" in told.one("silent-node")["what"]


def test_nodes_with_different_subscribers_are_found_and_endanger_delivery_unless_a_deploy_may_go_on(
    doctor: Doctor, engine: Engine
) -> None:
    book, mail = {"Order": ["shop.book", "shop.mail"]}, {"Order": ["billing.mail"]}
    for name in ("a", "b", "c", "d"):
        enter(engine, name, tables=["bus_events"], subscribers=book)
    enter(engine, "old", tables=["bus_events"])
    enter(engine, "stopped", state="STOPPED", tables=["bus_events"], subscribers=mail)
    enter(
        engine,
        "silent",
        beat=datetime.now(UTC) - timedelta(seconds=20),
        tables=["bus_events"],
        subscribers=mail,
    )
    assert doctor().of("differing-subscribers") == []

    enter(engine, "new", tables=["bus_events"], subscribers=mail, started=datetime.now(UTC))

    told = doctor()
    found = told.one("differing-subscribers")
    assert (told.code, found["severity"], found["subject"]) == (0, "note", "Order")
    assert "shop.book, shop.mail (on a, b, c and 1 more); billing.mail (on new)" in found["what"]
    assert "deploy" in found["cure"]
    with engine.begin() as connection:
        connection.execute(update(queue_nodes).values(started_date=LONG_AGO))
    told = doctor()
    found = told.one("differing-subscribers")
    assert (told.code, found["severity"]) == (1, "danger")
    assert "deploy" not in found["cure"]


def test_a_schedule_whose_date_has_passed_is_found(doctor: Doctor, engine: Engine) -> None:
    columns = {
        "table_name": "notifications",
        "queue_name": "shop:nightly",
        "rule": "{}",
        "class_name": "Due",
    }
    rows = [
        {**columns, "codec": "json", "name": name, "next_due": due}
        for name, due in (
            ("late", LONG_AGO),
            ("coming", datetime.now(UTC) + timedelta(1)),
            ("over", None),
        )
    ]
    with engine.begin() as connection:
        connection.execute(insert(queue_schedules), rows)

    told = doctor()

    assert told.code == 1
    assert told.one("overdue-schedule")["subject"] == "late"


def test_history_that_is_old_and_long_is_noted(doctor: Doctor, engine: Engine) -> None:
    fill(engine, "bus_events_history", rows=1)
    assert doctor() == Told(0, [])

    fill(engine, "bus_events_history", rows=100_001)

    told = doctor()
    assert told.code == 0
    assert (told.one("retention")["severity"], told.one("retention")["subject"]) == (
        "note",
        "bus_events_history",
    )


@needs.server
def test_a_clock_that_differs_from_the_databases_is_noted(database_url: URL) -> None:
    database = Database(database_url)
    for ahead, way in ((90.0, "90.0 s ahead of"), (-90.0, "90.0 s behind")):
        (found,) = examine(database, clock=SystemClock(ahead))
        assert (found.check, found.severity) == ("clock-skew", Severity.NOTE)
        assert way in found.what
    database.close()


@needs.server
def test_connections_that_are_nearly_used_up_are_found(
    database_name: str, doctor: Doctor, run: Callable[..., None], engine: Engine, database_url: URL
) -> None:
    if database_name == "postgresql":
        run(f"ALTER DATABASE {database_url.database} CONNECTION LIMIT 10")
    else:
        run("SET GLOBAL max_connections = 10")
    sessions = [engine.connect() for _ in range(8)]
    try:
        told = doctor()
    finally:
        for session in sessions:
            session.close()
        if database_name != "postgresql":
            run("SET GLOBAL max_connections = 300")
    assert told.code == 1
    assert "of the 10 connections" in told.one("connections")["what"]


@needs.server
def test_live_nodes_that_need_more_connections_than_there_are_are_found(
    doctor: Doctor, engine: Engine
) -> None:
    for number in range(60):
        enter(engine, f"node-{number}", tables=["bus_events"])

    told = doctor()

    assert told.code == 0
    assert told.one("connections")["severity"] == "slow"


def test_cures_name_queues_as_a_shell_takes_them(doctor: Doctor, engine: Engine) -> None:
    queue_name = "my shop:night run; echo pwned #"
    fill(engine, "notifications", rows=1, lane="!parked")
    fill(engine, "notifications_history", rows=1)
    pair = entry_tables("notifications")
    with engine.begin() as connection:
        connection.execute(update(pair.main).values(queue_name=queue_name))
        failed = {"queue_name": queue_name, "processing_state": "FAILED"}
        connection.execute(update(pair.history).values(failed))

    told = doctor()

    for check in ("parked-entries", "dead-letters"):
        assert "--queue 'my shop:night run; echo pwned #'" in told.one(check)["cure"]
