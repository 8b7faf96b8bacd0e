"""History in partitions: what ends goes into the current one, and old ones are dropped."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy
from alembic.config import Config
from alembic.operations import Operations
from alembic.runtime.environment import EnvironmentContext
from alembic.script import ScriptDirectory
from sqlalchemy import URL, Engine, text

from queue_core.cluster.reaper import LANE_TURNS
from queue_core.doctor.entries import missing_partitions
from sql import partitioning
from sql.doctor.base import Scope
from sql.doctor.finding import Finding
from sql.migrations import indices
from sql.registry import doctor_of
from stickybus import (
    ConfigurationError,
    LifecycleError,
    Partition,
    Period,
    PersistentBus,
    SchemaMissingError,
    State,
    inspect,
    partition_history,
)
from tests import requirements as needs
from tests.contract.cluster import Cluster
from tests.contract.conftest import MakeBus
from tests.contract.harness import Order, Recorder, database_of, engine_of, eventually, listening

HISTORY = "bus_events_history"


def ended_on(bus: PersistentBus, *dates: datetime) -> None:
    """Put an entry into history for each date, which tells when it ended."""
    rows = [
        {
            "record_id": -number,
            "finished_date": date,
            "class_name": "Order",
            "processing_state": "PROCESSED",
        }
        for number, date in enumerate(dates, 1)
    ]
    past = engine_of(bus).store.statements.past
    with database_of(bus).begin() as connection:
        connection.execute(past.insert(), rows)


def advance_to(cluster: Cluster, date: datetime) -> None:
    """Let it be that date."""
    cluster.clock.advance(seconds=(date - cluster.clock.now()).total_seconds())


def names(found: list[Partition]) -> list[str]:
    return [one.name.rpartition("_")[2] for one in found]


def rows_of(bus: PersistentBus, partition: Partition) -> int:
    database, past = database_of(bus), engine_of(bus).store.statements.past
    return database.fetch(
        lambda connection: database.dialect.partitions.count(
            connection, past, partition, most=1_000
        )
    )


def divided(bus: PersistentBus) -> list[Partition]:
    return partitioning.partitions(database_of(bus), engine_of(bus).store.statements.past)


@needs.server
@pytest.mark.parametrize("by", list(Period))
def test_what_was_there_stays_in_the_first_partition_and_the_next_are_made_ahead(
    bus: PersistentBus, engine: Engine, by: Period
) -> None:
    now = datetime.now(UTC)
    ended_on(bus, now, now - timedelta(days=500))

    found = partition_history(engine.url, by=by)

    assert names(found)[0] == "before"
    assert names(found)[-1] == "later"
    assert [one.period for one in found[1:-1]] == [by] * (len(found) - 2)
    ends = [one.until for one in found if one.until is not None]
    assert ends == sorted(ends)
    assert ends[0] >= now + timedelta(days=1)
    assert ends[-1] > by.end(by.end(now))
    assert rows_of(bus, found[0]) == 2
    assert len(bus.history()) == 2


@needs.server
def test_entries_end_in_the_partition_of_their_time(bus: PersistentBus, engine: Engine) -> None:
    found = partition_history(engine.url, by="day")
    _, second, *_, newest, _later = found
    assert second.until is not None
    assert newest.until is not None
    ended_on(
        bus, second.until - timedelta(hours=1), newest.until, newest.until - timedelta.resolution
    )

    assert [rows_of(bus, one) for one in divided(bus)] == [0, 1, *[0] * (len(found) - 4), 1, 1]


@needs.server
def test_a_bus_works_on_a_divided_history(cluster: Cluster, engine: Engine) -> None:
    peer = cluster.join("a")
    peer.handler = Recorder(failures=9)
    peer.bus.post(Order(1))
    peer.run()
    partition_history(engine.url, by="month")
    peer.bus.post(Order(2))
    peer.run()
    failed = peer.bus.history(states=State.FAILED)
    assert len(failed) == 2

    peer.handler = Recorder()
    peer.bus.retry(failed[0].record_id)
    peer.run()

    assert [entry.processing_state for entry in peer.bus.history()] == [
        State.FAILED,
        State.FAILED,
        State.PROCESSED,
    ]
    cluster.clock.advance(seconds=1)
    assert peer.bus.truncate_history() == 3
    assert peer.bus.history() == []
    assert len(divided(peer.bus)) > 3


@needs.server
def test_old_partitions_are_dropped_and_what_is_old_in_others_is_deleted(
    cluster: Cluster, engine: Engine
) -> None:
    bus = cluster.join("a").bus
    first, second, third, *others = partition_history(engine.url, by="day")
    assert first.until is not None
    assert second.until is not None
    assert third.until is not None
    day = timedelta(days=1)
    ended_on(bus, first.until - day, first.until, second.until - day / 2, second.until, third.until)
    told = list[tuple[int, int]]()
    advance_to(cluster, third.until + day)

    deleted = bus.truncate_history(
        before=second.until + day / 2, progress=lambda *done: told.append(done)
    )

    assert deleted == 4
    assert [one.name for one in divided(bus)] == [one.name for one in (third, *others)]
    assert [entry.record_id for entry in bus.history()] == [-5]
    assert told == [(3, 4), (4, 4)]


@needs.server
def test_a_day_of_many_rows_is_dropped_by_one_statement(cluster: Cluster, engine: Engine) -> None:
    bus = cluster.join("a").bus
    first, second, *_ = partition_history(engine.url, by="day")
    assert first.until is not None
    assert second.until is not None
    advance_to(cluster, second.until)
    bus.truncate_history(before=first.until)
    ended_on(bus, *[first.until] * 5_000)
    changes = list[str]()

    def note(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        if statement.lstrip().startswith(("DELETE", "DROP", "ALTER", "TRUNCATE", "UPDATE")):
            changes.append(statement)

    with listening(database_of(bus), before_cursor_execute=note):
        assert bus.truncate_history(before=second.until) == 5_000

    assert [one for one in changes if HISTORY in one] == changes
    assert len(changes) == 1, changes
    assert "DROP" in changes[0]
    assert bus.history() == []


@needs.server
def test_rows_of_one_state_are_deleted_from_partitions_that_stay(
    bus: PersistentBus, engine: Engine
) -> None:
    found = partition_history(engine.url, by="day")
    assert found[0].until is not None
    ended_on(bus, found[0].until - timedelta(days=1))

    assert bus.truncate_history(before=found[0].until, states=State.FAILED) == 0

    assert len(divided(bus)) == len(found)


@needs.server
def test_the_newest_partition_is_not_dropped_however_old_it_is(
    cluster: Cluster, engine: Engine
) -> None:
    bus = cluster.join("a").bus
    found = partition_history(engine.url, by="day")
    newest = found[-2]
    assert newest.until is not None
    ended_on(bus, newest.until - timedelta(hours=1))

    advance_to(cluster, newest.until + timedelta(days=9))
    assert bus.truncate_history(before=cluster.clock.now()) == 1

    assert [one.name for one in divided(bus)] == [newest.name, found[-1].name]
    assert names(partition_history(engine.url, by="month"))[-2].startswith("m")


@needs.server
def test_a_node_makes_the_next_partitions_and_nothing_was_lost_meanwhile(
    cluster: Cluster, engine: Engine
) -> None:
    peer = cluster.join("a")
    before = partition_history(engine.url, by="day")
    newest = before[-2].until
    assert newest is not None
    ended_on(peer.bus, newest, newest + timedelta(hours=30), newest + timedelta(days=900))

    advance_to(cluster, newest + timedelta(minutes=1))
    peer.beat()
    peer.reap()

    after = divided(peer.bus)
    assert names(after)[: len(before) - 1] == names(before)[:-1]
    assert after[-2].until == newest + timedelta(days=4)
    assert [rows_of(peer.bus, one) for one in after[-5:]] == [1, 1, 0, 0, 1]
    assert len(peer.bus.history()) == 3


@needs.any_database
def test_a_database_without_partitions_says_so(bus: PersistentBus, engine: Engine) -> None:
    with pytest.raises(ConfigurationError, match="sqlite has no partitions"):
        partition_history(engine.url, by="day")


@needs.server
def test_wrong_arguments_are_refused(bus: PersistentBus, engine: Engine) -> None:
    with pytest.raises(ConfigurationError, match="day, month, year"):
        partition_history(engine.url, by="week")
    with pytest.raises(ConfigurationError, match="table"):
        partition_history(engine.url, by="day", table="1; DROP")
    with pytest.raises(SchemaMissingError, match="orders"):
        partition_history(engine.url, by="day", table="orders")


@needs.server
def test_a_history_that_is_being_truncated_is_not_divided(
    bus: PersistentBus, engine: Engine
) -> None:
    with (
        database_of(bus).holding(HISTORY),
        pytest.raises(LifecycleError, match="Nothing was changed"),
    ):
        partition_history(engine.url, by="day")
    assert divided(bus) == []


@needs.server
def test_the_doctor_finds_nothing_wrong_with_partitions(bus: PersistentBus, engine: Engine) -> None:
    partition_history(engine.url, by="month")

    assert [one for one in _about_history(engine) if one.check != "retention"] == []


@needs.server
def test_the_doctor_tells_of_missing_partitions(bus: PersistentBus, engine: Engine) -> None:
    newest = partition_history(engine.url, by="day")[-2].until
    assert newest is not None
    database = database_of(bus)

    def look(now: datetime) -> list[Finding]:
        scope = Scope(database.dialect, ("bus_events",), now, 60.0)
        return database.fetch(lambda connection: list(missing_partitions(connection, scope)))

    assert look(newest - timedelta.resolution) == []
    [finding] = look(newest)
    assert finding.cure == "stickybus history partition --table bus_events --by day"


def _about_history(engine: Engine) -> list[Finding]:
    with inspect(engine.url) as inspector:
        return [one for one in inspector.doctor() if one.subject == HISTORY]


@needs.server
def test_outcomes_are_written_while_a_history_is_divided(make_bus: MakeBus, engine: Engine) -> None:
    bus = make_bus()
    handler = Recorder()
    bus.subscribe(Order, handler, name="orders")
    with bus:
        with ThreadPoolExecutor(1) as pool:
            dividing = pool.submit(partition_history, engine.url, by="day")
            posted = 0
            while not dividing.done() or posted < 50:
                bus.post(Order(posted))
                posted += 1
            dividing.result()
        eventually(lambda: len(bus.history()) == posted, "all have ended")
    assert len(handler.events) == posted


@needs.postgresql
def test_rights_are_kept(bus: PersistentBus, engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text(f"GRANT SELECT, DELETE ON {HISTORY} TO PUBLIC"))
        connection.execute(text("CREATE ROLE giver"))
        connection.execute(text(f"GRANT SELECT ON {HISTORY} TO giver WITH GRANT OPTION"))

    partition_history(engine.url, by="year")

    rights = text(
        "SELECT privilege_type FROM information_schema.role_table_grants "
        "WHERE table_name = :name AND grantee = 'PUBLIC'"
    )
    with engine.connect() as connection:
        found = connection.execute(rights, {"name": HISTORY}).scalars()
        assert sorted(found) == ["DELETE", "SELECT"]
        passed_on = text("SELECT has_table_privilege('giver', :name, 'SELECT WITH GRANT OPTION')")
        assert connection.execute(passed_on, {"name": HISTORY}).scalar_one()
        connection.execute(text("DROP OWNED BY giver"))
        connection.execute(text("DROP ROLE giver"))
        connection.commit()


CUT_OFF = """
import os, signal, sys
from sqlalchemy import Engine, event
from stickybus import partition_history

@event.listens_for(Engine, "before_cursor_execute")
def cut_off(_connection, _cursor, statement, *_):
    if "VALIDATE" in statement:
        os.kill(os.getpid(), signal.Signals[sys.argv[2]])

partition_history(sys.argv[1], by="day")
"""
"""Divides a history, and gets a signal when the constraint of the division is set."""


def cut_off(engine: Engine, by: signal.Signals) -> None:
    """Let a process that divides the history end by a signal in the middle."""
    url = engine.url.render_as_string(hide_password=False)
    process = subprocess.run([sys.executable, "-c", CUT_OFF, url, by.name], check=False)
    assert process.returncode == -by


def constraints(engine: Engine) -> list[str | None]:
    """The names of the check constraints of the history."""
    return [one["name"] for one in sqlalchemy.inspect(engine).get_check_constraints(HISTORY)]


@needs.postgresql
def test_a_division_that_was_interrupted_leaves_nothing(bus: PersistentBus, engine: Engine) -> None:
    cut_off(engine, signal.SIGINT)

    assert constraints(engine) == []
    assert divided(bus) == []


@needs.postgresql
def test_a_history_with_rows_of_later_is_not_divided(bus: PersistentBus, engine: Engine) -> None:
    ended_on(bus, datetime.now(UTC) + timedelta(days=3))

    with pytest.raises(ConfigurationError, match=r"yet to come.*Nothing was changed"):
        partition_history(engine.url, by="day")

    assert constraints(engine) == []
    assert divided(bus) == []


@needs.postgresql
def test_the_doctor_tells_of_a_division_that_was_killed(bus: PersistentBus, engine: Engine) -> None:
    cut_off(engine, signal.SIGKILL)

    with database_of(bus).holding(HISTORY):  # as if it were at work
        assert [one.check for one in _about_history(engine)] == []
    [finding] = _about_history(engine)

    assert finding.check == "cut-off-division"
    with engine.begin() as connection:
        connection.execute(text(finding.cure))
    assert constraints(engine) == []
    assert _about_history(engine) == []


@needs.postgresql
def test_a_node_undoes_a_division_that_was_killed_unless_one_is_at_work(
    cluster: Cluster, engine: Engine
) -> None:
    cut_off(engine, signal.SIGKILL)
    peer = cluster.join("a")

    with database_of(peer.bus).holding(HISTORY):
        cluster.tick(1.0, peer)
    assert len(constraints(engine)) == 1
    cluster.clock.advance(seconds=3_600)
    peer.beat()
    for _ in range(LANE_TURNS):
        peer.reap()

    assert constraints(engine) == []


@needs.postgresql
@pytest.mark.parametrize("arguments", [{}, {"states": State.FAILED}])
def test_a_truncation_undoes_a_division_that_was_killed(
    bus: PersistentBus, engine: Engine, arguments: dict[str, Any]
) -> None:
    cut_off(engine, signal.SIGKILL)

    assert bus.truncate_history(**arguments) == 0

    assert constraints(engine) == []


@needs.postgresql
@pytest.mark.parametrize(
    ("statement", "what"),
    [
        ("ALTER TABLE {} ENABLE ROW LEVEL SECURITY", "row policies"),
        ("GRANT SELECT (record_id) ON {} TO PUBLIC", "rights on single columns"),
    ],
)
def test_what_a_division_would_lose_keeps_it_from_being_made(
    bus: PersistentBus, engine: Engine, statement: str, what: str
) -> None:
    with engine.begin() as connection:
        connection.execute(text(statement.format(HISTORY)))

    with pytest.raises(ConfigurationError, match=f"has {what}.*Nothing was changed"):
        partition_history(engine.url, by="day")

    assert divided(bus) == []


@contextmanager
def clerk(engine: Engine) -> Iterator[URL]:
    """The URL of a role that may read and change rows, and no tables."""
    rows = "SELECT, INSERT, UPDATE, DELETE"
    if engine.dialect.name == "postgresql":
        made = [
            "CREATE ROLE clerk LOGIN PASSWORD 'clerk'",
            f"GRANT {rows} ON ALL TABLES IN SCHEMA public TO clerk",
            "GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO clerk",
        ]
        ended = ["DROP OWNED BY clerk", "DROP ROLE clerk"]
    else:
        made = [
            "CREATE USER clerk IDENTIFIED BY 'clerk'",
            f"GRANT {rows} ON `{engine.url.database}`.* TO clerk",
        ]
        ended = ["DROP USER clerk"]

    def run(statements: list[str]) -> None:
        with engine.begin() as connection:
            for statement in statements:
                connection.execute(text(statement))

    run(made)
    try:
        yield engine.url.set(username="clerk", password="clerk")
    finally:
        run(ended)


@needs.server
def test_who_may_not_change_tables_deletes_old_partitions_in_batches(
    cluster: Cluster, make_bus: MakeBus, engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    found = partition_history(engine.url, by="day")
    assert found[0].until is not None
    assert found[1].until is not None
    bus = cluster.join("a").bus
    ended_on(bus, found[0].until - timedelta(hours=1), found[0].until, found[1].until)
    advance_to(cluster, found[1].until + timedelta(days=1))

    with clerk(engine) as url:
        own = make_bus(database=url, clock=cluster.clock)
        assert own.truncate_history(before=found[1].until) == 2
        assert [entry.record_id for entry in own.history()] == [-3]
        assert own.truncate_history() == 1
        own.close()

    assert "partition_not_dropped" in caplog.text
    assert len(divided(bus)) == len(found)


@needs.server
def test_beside_a_reader_old_partitions_are_deleted_in_batches_and_outcomes_get_on(
    cluster: Cluster, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitioning, "DROP", replace(partitioning.DROP, seconds=3.0))
    bus = cluster.join("a").bus
    found = partition_history(engine.url, by="day")
    assert found[0].until is not None
    ended_on(bus, found[0].until - timedelta(hours=1), found[0].until)
    advance_to(cluster, found[0].until + timedelta(days=1))
    past, took = engine_of(bus).store.statements.past, list[float]()

    with engine.connect() as reader, ThreadPoolExecutor(1) as pool:
        reader.execute(text(f"SELECT count(*) FROM {HISTORY}")).scalar_one()
        began = time.monotonic()
        truncation = pool.submit(bus.truncate_history, before=found[0].until)
        while not truncation.done():
            sent = time.monotonic()
            row = {"record_id": -100 - len(took), "class_name": "Order"}
            row |= {"finished_date": cluster.clock.now(), "processing_state": "PROCESSED"}
            with engine.begin() as connection:
                connection.execute(past.insert(), [row])
            took.append(time.monotonic() - sent)
        lasted = time.monotonic() - began
        assert truncation.result() == 1
        reader.rollback()

    assert sum(seconds for seconds in took if seconds > 0.04) < 0.4 * lasted
    assert len(divided(bus)) == len(found)


@needs.postgresql
def test_a_division_that_was_cut_off_goes_through_the_next_time(
    bus: PersistentBus, engine: Engine
) -> None:
    with engine.begin() as connection:
        connection.execute(
            text(
                f"ALTER TABLE {HISTORY} ADD CONSTRAINT {HISTORY}_divided "
                "CHECK (finished_date < '2030-01-01') NOT VALID"
            )
        )

    assert len(partition_history(engine.url, by="year")) > 3


@needs.postgresql
def test_a_migration_makes_an_index_of_a_divided_history(
    bus: PersistentBus, engine: Engine
) -> None:
    found = partition_history(engine.url, by="year")
    with _upgrading(engine):
        indices.create(f"{HISTORY}_state", HISTORY, ["processing_state"])

    keys = doctor_of("postgresql").keys
    with engine.connect() as connection:
        there = keys(connection, [HISTORY, *(one.name for one in found)])
    assert there[HISTORY].indices[f"{HISTORY}_state"] == ["processing_state"]
    assert all(["processing_state"] in one.indices.values() for one in there.values())


@needs.postgresql
def test_a_migration_replaces_an_index_of_a_divided_history_once(
    bus: PersistentBus, engine: Engine
) -> None:
    found = partition_history(engine.url, by="year")
    failed = text("processing_state = 'FAILED'")
    name, columns = f"{HISTORY}_state", ["processing_state"]
    with _upgrading(engine):
        indices.create(name, HISTORY, columns)

    for _ in range(2):  # as if the first upgrade was killed before it entered its version
        with _upgrading(engine):
            indices.replace(name, HISTORY, columns, postgresql_where=failed)

    for table in (HISTORY, *(one.name for one in found)):
        [made] = [
            index
            for index in sqlalchemy.inspect(engine).get_indexes(table)
            if index["column_names"] == columns
        ]
        assert "FAILED" in made["dialect_options"]["postgresql_where"]


@contextmanager
def _upgrading(engine: Engine) -> Iterator[None]:
    """What a migration does in the block is done beside traffic."""
    config = Config()
    config.set_main_option("script_location", "sql:migrations")
    config.attributes.update(in_use=True)
    with (
        engine.connect() as connection,
        EnvironmentContext(config, ScriptDirectory.from_config(config)) as environment,
    ):
        environment.configure(connection=connection, transaction_per_migration=True)
        context = environment.get_context()
        with context.begin_transaction(_per_migration=True), Operations.context(context):
            yield
