"""A look at a database from outside: it tells what is there, and leaves everything as it was."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import URL, Engine, func, select

import stickybus
from queue_core.model.retry_policies import ImmediateRetries
from sql.tables import queue_nodes
from stickybus import (
    KEYLESS,
    DatabaseUnreachableError,
    Inspector,
    InvalidPostError,
    NotificationService,
    PersistentBus,
    SchemaMissingError,
    State,
)
from stickybus.testing import drain
from tests import requirements as needs
from tests.contract.conftest import MakeBus, MakeService

FAR = timedelta(hours=1)


@pytest.fixture
def failing(make_bus: MakeBus) -> PersistentBus:
    """A bus whose events Good end PROCESSED and whose events Bad end FAILED."""
    bus = make_bus(retry=ImmediateRetries(0))
    bus.subscribe("Good", lambda _event, _context: None, name="good")
    bus.subscribe("Bad", lambda event, _context: event["missing"], name="bad")
    return bus


@pytest.fixture
def reminders(make_service: MakeService) -> NotificationService:
    return make_service()


def test_it_knows_the_tables_and_registers_no_node(inspector: Inspector, engine: Engine) -> None:
    assert inspector.tables() == ("bus_events", "notifications")
    assert inspector.queues() == []
    assert inspector.nodes() == []
    with engine.connect() as connection:
        assert connection.scalar(select(func.count()).select_from(queue_nodes)) == 0


def test_it_looks_through_an_engine_as_through_a_url(engine: Engine, bus: PersistentBus) -> None:
    bus.post({}, event_name="Good")
    with stickybus.inspect(engine) as inspector:
        assert [located.entry.class_name for located in inspector.entries()] == ["Good"]


def test_it_counts_the_entries_of_all_tables_by_queue(
    inspector: Inspector, bus: PersistentBus, reminders: NotificationService
) -> None:
    queue = reminders.create_queue("shop", "reminders", print)
    bus.post({}, event_name="Good")
    queue.schedule({}, delay=FAR)

    standings = {(queue.table, queue.queue_name): queue for queue in inspector.queues()}

    assert standings["bus_events", "bus"].ready == 1
    assert standings["notifications", "shop:reminders"].scheduled == 1
    assert [queue.table for queue in inspector.queues(table="bus_events")] == ["bus_events"]


def test_live_entries_are_found_in_all_tables_or_in_one(
    inspector: Inspector, bus: PersistentBus, reminders: NotificationService
) -> None:
    queue = reminders.create_queue("shop", "reminders", print)
    bus.post({}, event_name="Good", search_key2=7)
    bus.post({}, event_name="Other")
    queue.schedule({}, delay=FAR, search_key2=7)

    def found(**wanted: Any) -> list[tuple[str, str]]:
        return [(one.table, one.entry.class_name) for one in inspector.entries(**wanted)]

    assert found(search_key2=7) == [("bus_events", "Good"), ("notifications", "reminders")]
    assert found(search_key2=KEYLESS) == [("bus_events", "Other")]
    assert found(table="notifications") == [("notifications", "reminders")]
    assert found(queue_name="bus", event_name="Other") == [("bus_events", "Other")]
    assert found(limit=2) == [("bus_events", "Good"), ("bus_events", "Other")]
    with pytest.raises(InvalidPostError, match="KEYLESS"):
        found(search_key2=None)


def test_history_of_all_tables_comes_newest_first(
    inspector: Inspector, failing: PersistentBus, reminders: NotificationService
) -> None:
    queue = reminders.create_queue("shop", "reminders", print)
    failing.post({}, event_name="Good")
    drain(failing)
    queue.remove(queue.schedule({}, delay=FAR))
    failing.post({}, event_name="Bad")
    drain(failing)

    def found(**wanted: Any) -> list[tuple[str, str]]:
        return [(one.table, one.entry.class_name) for one in inspector.history(**wanted)]

    everything = [("bus_events", "Bad"), ("notifications", "reminders"), ("bus_events", "Good")]
    assert found() == everything
    assert found(limit=2) == everything[:2]
    assert found(states=[State.FAILED]) == everything[:1]
    assert found(table="bus_events") == [everything[0], everything[2]]


def test_dead_letters_count_until_they_are_tried_again(
    inspector: Inspector, failing: PersistentBus
) -> None:
    for _ in range(3):
        failing.post({}, event_name="Bad")
    failing.post({}, event_name="Good")
    drain(failing)
    first, second, third = (one.entry for one in reversed(inspector.history(states=["FAILED"])))

    [queue] = inspector.queues()
    assert queue.dead_letters == 3
    assert queue.newest_dead_letter == max(
        date for one in (first, second, third) if (date := one.finished_date)
    )

    failing.retry(first.record_id)
    assert inspector.queues()[0].dead_letters == 2
    letters = inspector.history(dead_letters=True)
    assert [one.entry.record_id for one in letters] == [third.record_id, second.record_id]
    [letter] = inspector.history(dead_letters=True, record_ids=[first.record_id, second.record_id])
    assert letter.entry.record_id == second.record_id
    assert inspector.history(dead_letters=True, search_key1=1) == []
    drain(failing)  # the second try fails, too: one dead letter, not two
    assert inspector.queues()[0].dead_letters == 3


def test_a_dead_letter_whose_retry_succeeds_counts_no_more(
    inspector: Inspector, make_bus: MakeBus
) -> None:
    bus = make_bus(retry=ImmediateRetries(0))
    broken = True

    def handle(_event: object) -> None:
        if broken:
            raise RuntimeError("not yet")

    bus.subscribe("Bad", handle)
    record_id = bus.post({}, event_name="Bad")
    drain(bus)
    assert inspector.queues()[0].dead_letters == 1
    broken = False
    bus.retry(record_id)
    drain(bus)

    [queue] = inspector.queues()
    assert (queue.dead_letters, queue.newest_dead_letter) == (0, None)


def test_nodes_tell_their_lease_and_what_they_serve(
    inspector: Inspector, bus: PersistentBus
) -> None:
    with bus:
        [node] = inspector.nodes()
    assert (node.state, node.serves[0]["queues"]) == ("LIVE", ["bus"])
    assert node.lease_left_seconds is not None
    assert 0 < node.lease_left_seconds <= node.lease_seconds
    [node] = inspector.nodes()
    assert (node.state, node.lease_left_seconds) == ("STOPPED", None)


def test_schedules_tell_their_rule_and_the_next_date(
    inspector: Inspector, reminders: NotificationService
) -> None:
    queue = reminders.create_queue("shop", "summaries", print)
    declared = queue.recur("daily", {}, cron="0 9 * * *", timezone="Europe/Berlin")

    [schedule] = inspector.schedules()

    assert (schedule.table, schedule.queue_name, schedule.name) == (
        "notifications",
        "shop:summaries",
        "daily",
    )
    assert (schedule.rule["expression"], schedule.rule["timezone"]) == (
        "0 9 * * *",
        "Europe/Berlin",
    )
    assert schedule.next_due == declared.next_due
    assert inspector.schedules(table="bus_events") == []


def test_its_doctor_tells_of_dead_letters(inspector: Inspector, failing: PersistentBus) -> None:
    assert [finding for finding in inspector.doctor() if finding.check == "dead-letters"] == []
    failing.post({}, event_name="Bad")
    drain(failing)

    [finding] = [finding for finding in inspector.doctor() if finding.check == "dead-letters"]

    assert finding.severity == "danger"
    assert finding.what.startswith("1 entry of 'bus' in bus_events ended FAILED")


def test_a_table_that_is_not_there_is_told_with_those_that_are(inspector: Inspector) -> None:
    for read in (inspector.queues, inspector.entries, inspector.history):
        with pytest.raises(
            SchemaMissingError, match=r"lacks the table 'orders'\. It has bus_events, notif"
        ):
            read(table="orders")


@needs.sqlite
def test_a_file_that_is_not_there_is_unreachable_and_not_made(
    database_url: URL, tmp_path: Path
) -> None:
    path = tmp_path / "none.db"
    with pytest.raises(DatabaseUnreachableError, match="there is no SQLite database"):
        stickybus.inspect(f"sqlite:///{path}")
    assert not path.exists()


@needs.sqlite
def test_a_database_without_tables_has_none_and_gets_none(
    database_url: URL, tmp_path: Path
) -> None:
    path = tmp_path / "empty.db"
    path.touch()
    with stickybus.inspect(f"sqlite:///{path}") as inspector:
        assert inspector.tables() == ()
        for read in (inspector.queues, inspector.nodes, inspector.schedules):
            with pytest.raises(SchemaMissingError, match="stickybus schema create"):
                read()
        assert inspector.tables() == ()
