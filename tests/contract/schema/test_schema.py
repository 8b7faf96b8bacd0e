"""The schema that `create` makes, and plain INSERTs into it."""

from __future__ import annotations

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import (
    Column,
    Connection,
    Engine,
    Integer,
    MetaData,
    Table,
    event,
    inspect,
    text,
)

from sql import schema
from sql.families import metadata_for
from sql.names import DEFAULT_TABLES
from sql.schema import Fit
from stickybus import (
    BusConfig,
    ConfigurationError,
    PersistentBus,
    SchemaMissingError,
    State,
    create_schema,
)
from tests import requirements as needs
from tests.conftest import NewDatabase
from tests.contract.conftest import MakeBus, MakeService
from tests.contract.harness import Recorder, ended, engine_of, eventually
from tests.contract.schema.tables import TABLES, described, differences, reflecting, report, tables


def test_the_names_of_all_tables_that_the_schema_makes_beside_the_entries_are_taken(
    engine: Engine,
) -> None:
    entries = {f"{name}{end}" for name in DEFAULT_TABLES for end in ("", "_history")}
    own = sorted(set(inspect(engine).get_table_names()) - entries)
    for name in own:
        with pytest.raises(ConfigurationError, match=f"none of {', '.join(own)}, with or without"):
            BusConfig(table=name)
    page = (Path(__file__).parents[3] / "docs/reference/tables.md").read_text("utf-8")
    assert [name for name in own if f"`{name}`" not in page] == []


def test_the_migrations_end_where_the_table_definitions_stand(engine: Engine) -> None:
    with engine.connect() as connection:
        assert differences(connection, *DEFAULT_TABLES) == []


def test_migrated_columns_have_the_types_collations_and_defaults_of_the_definition(
    empty: Engine, engine: Engine
) -> None:
    """What Alembic's comparison does not look at."""
    metadata_for(*DEFAULT_TABLES).create_all(empty)

    assert described(engine) == described(empty)


def test_create_makes_all_tables_and_says_what_was_missing(empty: Engine) -> None:
    assert tables(empty) == set()

    before = create_schema(empty.url)

    assert (before.fit, before.found, set(before.missing_tables)) == (Fit.MISSING, None, TABLES)
    assert tables(empty) == TABLES
    assert report(empty).fit is Fit.CURRENT


def test_create_again_changes_nothing(engine: Engine) -> None:
    before = described(engine)

    assert create_schema(engine.url).fit is Fit.CURRENT

    assert described(engine) == before


def test_tables_of_further_names_are_added_at_any_time(engine: Engine) -> None:
    assert report(engine, "audit_events").missing_tables == (
        "audit_events",
        "audit_events_history",
    )

    create_schema(engine.url, tables=["audit_events"])

    assert tables(engine) == TABLES | {"audit_events", "audit_events_history"}
    assert report(engine, "audit_events", "bus_events").fit is Fit.CURRENT
    with engine.connect() as connection:
        assert differences(connection, "audit_events", *DEFAULT_TABLES) == []
        assert schema.main_tables(connection) == ("audit_events", "bus_events", "notifications")
        if connection.dialect.name == "postgresql":
            options = text(
                "SELECT array_to_string(reloptions, ' ') FROM pg_class WHERE relname = :name"
            )
            for suffix in ("", "_history"):
                added, migrated = (
                    connection.execute(options, {"name": f"{name}{suffix}"}).scalar_one()
                    for name in ("audit_events", "bus_events")
                )
                assert added
                assert sorted(added.split()) == sorted(migrated.split())


def test_many_that_create_at_once_take_turns(empty: Engine) -> None:
    together = threading.Barrier(4)

    def create(_number: int) -> Fit:
        together.wait(60)
        return create_schema(empty.url).fit

    with ThreadPoolExecutor(4) as pool:
        fits = list(pool.map(create, range(4)))

    assert sorted(fits) == [Fit.CURRENT] * 3 + [Fit.MISSING]
    assert tables(empty) == TABLES


@needs.administered
def test_a_bus_on_a_database_without_the_schema_says_which_command_makes_it(
    make_bus: MakeBus, empty: Engine
) -> None:
    with pytest.raises(SchemaMissingError, match="Run: stickybus schema create") as caught:
        make_bus(database=empty.url)

    assert str(empty.url.password) not in str(caught.value)
    assert tables(empty) == set()


@needs.makes_tables
def test_an_sqlite_file_gets_its_schema_on_first_use(make_bus: MakeBus, empty: Engine) -> None:
    make_bus(database=empty.url)
    assert {"bus_events", "bus_events_history", "queue_nodes"} <= tables(empty)


def test_the_ddl_for_an_administrator_makes_the_same_schema(empty: Engine, engine: Engine) -> None:
    script = schema.ddl(engine.dialect.name)
    lines = [line for line in script.splitlines() if not line.startswith("--")]
    with empty.connect() as connection:
        for statement in "\n".join(lines).split(";\n"):
            if statement.strip() and statement.strip() not in {"BEGIN", "COMMIT"}:
                connection.execution_options(no_parameters=True).exec_driver_sql(statement)
        connection.commit()

    assert described(empty) == described(engine)
    assert report(empty).fit is Fit.CURRENT


def test_the_tables_of_an_application_are_not_taken_for_ours(engine: Engine) -> None:
    metadata = MetaData()
    for name in ("orders", "orders_history"):
        Table(name, metadata, Column("number", Integer, primary_key=True))
    metadata.create_all(engine)

    with engine.connect() as connection:
        assert schema.main_tables(connection) == ("bus_events", "notifications")


NOW = {
    "sqlite": "CURRENT_TIMESTAMP",
    "postgresql": "now()",
    "mysql": "utc_timestamp(6)",
    "mariadb": "utc_timestamp(6)",
}
"""How each database writes this instant in UTC."""


def test_an_insert_written_for_kill_bills_bus_events_is_delivered(
    make_bus: MakeBus, engine: Engine
) -> None:
    recorder, bus = Recorder(), make_bus(poll_interval_seconds=0.1)
    bus.subscribe("org.killbill.Invoice", recorder)
    bus.start()
    with engine.begin() as connection:
        connection.execute(
            text(
                "INSERT INTO bus_events (class_name, event_json, user_token, created_date, "
                "creating_owner, processing_owner, processing_available_date, processing_state, "
                "error_count, search_key1, search_key2) VALUES ('org.killbill.Invoice', :json, "
                ":token, "
                + NOW[engine.dialect.name]
                + ", 'java-1', NULL, NULL, 'AVAILABLE', 0, 11, 22)"
            ),
            {"json": '{"amount":5}', "token": "0b9a2f2e-0000-4000-8000-000000000000"},
        )

    assert recorder.wait() == [{"amount": 5}]
    [context] = recorder.contexts
    assert (context.search_key1, context.search_key2) == (11, 22)
    [past] = ended(bus)
    assert (past.processing_state, past.creating_owner) == (State.PROCESSED, "java-1")
    assert past.user_token == "0b9a2f2e-0000-4000-8000-000000000000"


def test_an_insert_written_for_kill_bills_notifications_is_delivered(
    make_service: MakeService, engine: Engine
) -> None:
    recorder, service = Recorder(), make_service(poll_interval_seconds=0.1)
    queue = service.create_queue("billing", "dunning", recorder)
    service.start()
    now = NOW[engine.dialect.name]
    with engine.begin() as connection:
        connection.execute(
            text(
                "INSERT INTO notifications (class_name, event_json, user_token, "
                "future_user_token, created_date, creating_owner, processing_owner, "
                "processing_available_date, processing_state, error_count, search_key1, "
                "search_key2, queue_name, effective_date) VALUES ('org.killbill.Dunning', :json, "
                f"NULL, NULL, {now}, 'java-1', NULL, NULL, 'AVAILABLE', 0, 11, 22, "
                f"'billing:dunning', {now})"
            ),
            {"json": '{"step":1}'},
        )

    assert recorder.wait() == [{"step": 1}]
    assert [past.processing_state for past in ended(queue)] == [State.PROCESSED]


def test_the_shortest_insert_needs_only_a_name(bus: PersistentBus, engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("INSERT INTO bus_events (class_name) VALUES ('Ping')"))

    [entry] = eventually(bus.find)

    assert (entry.queue_name, entry.lane, entry.processing_state) == ("bus", "", State.AVAILABLE)
    assert abs((engine_of(bus).store.clock.now() - entry.effective_date).total_seconds()) < 60


@needs.ddl_commits
def test_a_creation_killed_after_any_change_of_a_table_ends_when_it_is_run_again(
    empty: Engine, engine: Engine
) -> None:
    """There such a change commits by itself, before the version that tells of it."""
    assert runs_until_created(empty, *DEFAULT_TABLES) > len(TABLES)

    assert report(empty).fit is Fit.CURRENT
    assert described(empty) == described(engine)


@needs.ddl_commits
def test_tables_of_further_names_are_whole_after_a_creation_killed_at_any_change(
    new_database: NewDatabase, engine: Engine
) -> None:
    create_schema(engine.url, tables=["audit_events"])
    other = reflecting(new_database("other"))

    assert runs_until_created(other, "audit_events") > len({"audit_events", "audit_events_history"})

    assert described(other) == described(engine)
    other.dispose()


def runs_until_created(engine: Engine, *names: str) -> int:
    """Create the tables, killed after the first change of each run; return the number of runs."""

    def kill(_connection: Connection, _cursor: Any, statement: str, *_rest: Any) -> None:
        if statement.lstrip().startswith(("CREATE", "ALTER", "DROP")):
            raise _KilledError

    event.listen(Engine, "after_cursor_execute", kill)
    try:
        for run in itertools.count(1):
            with suppress(_KilledError):
                create_schema(engine.url, tables=names)
                return run
    finally:
        event.remove(Engine, "after_cursor_execute", kill)
    raise AssertionError


class _KilledError(BaseException):
    """Nothing of the program runs on."""
