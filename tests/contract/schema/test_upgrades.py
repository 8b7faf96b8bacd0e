"""Schemas of other versions, and upgrades."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import DBAPIError

from sql import schema
from sql.database import Database
from sql.families import VERSION_TABLE
from sql.names import DEFAULT_TABLES
from sql.schema import Fit
from sql.types import DATE_GLOB, SECONDS_GLOB
from stickybus import SchemaTooNewError, SchemaTooOldError, create_schema
from tests import requirements as needs
from tests.contract.conftest import MakeBus
from tests.contract.harness import Recorder, eventually
from tests.contract.schema.tables import (
    TABLES,
    described,
    differences,
    make_schema_of,
    report,
    tables,
)


def set_revision(engine: Engine, revision: str, *, works_since: str | None = None) -> None:
    """Give the schema a revision that only code from `works_since` on works with.

    The default of `works_since` is the revision.
    """
    values = {"revision": revision, "works_since": works_since or revision}
    with engine.begin() as connection:
        connection.execute(
            text(f"UPDATE {VERSION_TABLE} SET version_num = :revision, works_since = :works_since"),
            values,
        )


def test_a_schema_newer_than_the_library_is_refused_and_left_alone(
    make_bus: MakeBus, engine: Engine
) -> None:
    set_revision(engine, "9999")

    assert report(engine).fit is Fit.TOO_NEW
    with pytest.raises(SchemaTooNewError, match="has schema 9999") as caught:
        make_bus()
    assert caught.value.found == "9999"
    create_schema(engine.url)
    assert report(engine).found == "9999"


def test_a_newer_schema_that_only_has_more_is_worked_with_and_left_alone(
    make_bus: MakeBus, engine: Engine
) -> None:
    set_revision(engine, "9999", works_since="0005")
    recorder, bus = Recorder(), make_bus()
    bus.subscribe("Ping", recorder)
    bus.start()

    assert bus.post({"number": 1}, event_name="Ping")
    assert recorder.wait() == [{"number": 1}]
    before = create_schema(engine.url)
    assert (before.fit, before.found) == (Fit.NEWER, "9999")
    assert report(engine).found == "9999"


def test_tables_for_further_names_in_a_newer_schema_are_left_to_the_newer_version(
    make_bus: MakeBus, engine: Engine
) -> None:
    set_revision(engine, "9999", works_since="0005")

    with pytest.raises(
        SchemaTooNewError, match="lacks the tables audit_events, audit_events_history"
    ):
        make_bus(table="audit_events")
    create_schema(engine.url, tables=["audit_events"])

    assert tables(engine) == TABLES


def test_a_schema_older_than_the_library_is_refused_with_the_command_that_upgrades_it(
    make_bus: MakeBus, engine: Engine
) -> None:
    current = report(engine)
    set_revision(engine, "0001")
    with pytest.raises(SchemaTooOldError, match="Run: stickybus schema upgrade") as caught:
        make_bus()
    assert (caught.value.found, caught.value.expected) == ("0001", current.expected)


def test_a_schema_of_the_first_version_is_upgraded_with_its_entries(
    make_bus: MakeBus, empty: Engine, engine: Engine
) -> None:
    create_schema(engine.url, tables=["audit_events"])
    make_schema_of(empty, "0001", "audit_events", *DEFAULT_TABLES)
    with empty.begin() as connection:
        connection.execute(text("INSERT INTO bus_events (class_name) VALUES ('Ping')"))

    before = create_schema(empty.url)

    assert (before.fit, before.found) == (Fit.TOO_OLD, "0001")
    assert report(empty).fit is Fit.CURRENT
    assert described(empty) == described(engine)
    assert [entry.class_name for entry in make_bus(database=empty.url).find()] == ["Ping"]


@needs.sqlite
def test_an_upgrade_lets_tables_take_dates_to_the_second_and_keeps_ids(
    make_bus: MakeBus, empty: Engine
) -> None:
    make_schema_of(empty, "0006", *DEFAULT_TABLES)
    with empty.begin() as connection:  # the constraints as they were
        connection.exec_driver_sql("PRAGMA writable_schema=ON")
        for date in ("created_date", "effective_date", "processing_available_date"):
            connection.exec_driver_sql(
                "UPDATE sqlite_master SET sql = replace(sql, ?, ?)",
                (
                    f"({date} GLOB '{DATE_GLOB}' OR {date} GLOB '{SECONDS_GLOB}')",
                    f"{date} GLOB '{DATE_GLOB}'",
                ),
            )
    empty.dispose()
    row = (
        "INSERT INTO bus_events (class_name, created_date, effective_date) VALUES ('Ping', {0}, "
        "{0})"
    )
    with empty.begin() as connection:
        for _ in range(3):
            connection.exec_driver_sql(row.format("'2026-01-01 00:00:00.000000'"))
        connection.exec_driver_sql("DELETE FROM bus_events WHERE record_id > 1")
    with pytest.raises(DBAPIError, match="bus_events_readable"), empty.begin() as connection:
        connection.exec_driver_sql(row.format("CURRENT_TIMESTAMP"))

    create_schema(empty.url)

    with empty.begin() as connection:
        connection.exec_driver_sql(row.format("CURRENT_TIMESTAMP"))
        assert differences(connection, *DEFAULT_TABLES) == []
    assert sorted(entry.record_id for entry in make_bus(database=empty.url).find()) == [1, 4]


@needs.postgresql
def test_an_upgrade_makes_an_index_anew_while_others_write_and_a_transaction_stays_open(
    empty: Engine, engine: Engine
) -> None:
    add = text("INSERT INTO bus_events (class_name) VALUES ('Ping')")
    waiting = text(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND "
        "wait_event_type = 'Lock'"
    )
    make_schema_of(empty, "0003")
    with empty.begin() as connection:
        # As an upgrade leaves it that was killed.
        connection.execute(text("CREATE INDEX bus_events_claim_new ON bus_events (lane)"))
    with ThreadPoolExecutor(1) as pool:
        with empty.begin() as open_one, empty.connect() as observer:
            open_one.execute(add)
            upgrade = pool.submit(create_schema, empty.url)

            def blocked() -> bool:
                observer.rollback()
                return bool(observer.execute(waiting).scalar_one())

            eventually(blocked, "the upgrade waits for the open transaction")
            with empty.begin() as other:
                other.execute(text("SET LOCAL lock_timeout = '1s'"))
                other.execute(add)
        assert upgrade.result(60).found == "0003"

    assert described(empty) == described(engine)
    assert report(empty).fit is Fit.CURRENT


@needs.administered
def test_an_upgrade_tells_of_its_steps(empty: Engine) -> None:
    make_schema_of(empty, "0003")
    told = list[tuple[str, int, int]]()
    database = Database(empty.url)
    try:
        schema.ensure(
            database,
            DEFAULT_TABLES,
            progress=lambda step, done, total: told.append((step, done, total)),
        )
    finally:
        database.close()

    assert [done for _, done, _ in told] == list(range(1, len(told) + 1))
    assert {total for *_, total in told} == {len(told)}
    assert told[0][0] == (
        "PostgreSQL: the index of claims answers searches that name a lane, and nothing else."
    )
