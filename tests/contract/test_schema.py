"""The schema: made by migrations, as the tables say, by several at once; and open to INSERTs written for Kill Bill."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import (
    URL,
    Column,
    Connection,
    Engine,
    Integer,
    MetaData,
    Table,
    create_engine,
    event,
    inspect,
    text,
)
from sqlalchemy.exc import DBAPIError

from sql import schema
from sql.database import Database
from sql.schema import Fit, SchemaReport
from sql.tables import metadata_for
from sql.types import DATE_GLOB, SECONDS_GLOB
from stickybus import (
    BusConfig,
    ConfigurationError,
    PersistentBus,
    SchemaMissingError,
    SchemaTooNewError,
    SchemaTooOldError,
    State,
    create_schema,
)
from tests import requirements as needs
from tests.conftest import NewDatabase
from tests.contract.conftest import MakeBus, MakeService
from tests.contract.harness import Recorder, ended, eventually

TABLES = {
    *("bus_events", "bus_events_history", "notifications", "notifications_history"),
    *(
        "queue_archives",
        "queue_nodes",
        "queue_posted_runs",
        "queue_replays",
        "queue_schedules",
        "queue_staged",
    ),
}


@pytest.fixture
def empty(empty_database_url: URL) -> Iterator[Engine]:
    """An engine on a database without tables."""
    engine = _reflecting(empty_database_url)
    yield engine
    engine.dispose()


@pytest.fixture
def engine(database_url: URL) -> Iterator[Engine]:
    """An engine on a database with the schema."""
    engine = _reflecting(database_url)
    yield engine
    engine.dispose()


def _reflecting(url: URL) -> Engine:
    """An engine of the dialect whose server is there, MySQL or MariaDB, without the settings of our own sessions."""
    database = Database(url)
    database.close()
    return create_engine(database.url)


def tables(engine: Engine) -> set[str]:
    return set(inspect(engine).get_table_names()) - {schema.VERSION_TABLE}


def report(engine: Engine, *names: str) -> SchemaReport:
    with engine.connect() as connection:
        return schema.check(connection, names or schema.DEFAULT_TABLES)


def differences(connection: Connection, *names: str) -> list[Any]:
    """What Alembic would still change to reach the tables' definition."""
    context = MigrationContext.configure(
        connection, opts={"version_table": schema.VERSION_TABLE, "compare_type": True}
    )
    return [
        difference
        for difference in compare_metadata(context, metadata_for(*names))
        if not (difference[0] == "remove_table" and difference[1].name == schema.VERSION_TABLE)
    ]


def test_the_names_of_all_tables_that_the_schema_makes_beside_the_entries_are_taken(
    engine: Engine,
) -> None:
    entries = {f"{name}{end}" for name in schema.DEFAULT_TABLES for end in ("", "_history")}
    own = sorted(set(inspect(engine).get_table_names()) - entries)
    for name in own:
        with pytest.raises(ConfigurationError, match=f"neither {', '.join(own)} nor a name"):
            BusConfig(table=name)
    page = Path(__file__).parents[2] / "docs/reference/configuration.md"
    assert f"not {', '.join(f'`{name}`' for name in own)}, and nothing" in page.read_text("utf-8")


def test_the_migrations_end_where_the_table_definitions_stand(engine: Engine) -> None:
    with engine.connect() as connection:
        assert differences(connection, *schema.DEFAULT_TABLES) == []


def test_migrated_columns_have_the_types_collations_and_defaults_of_the_definition(
    empty: Engine, engine: Engine
) -> None:
    """What Alembic's comparison does not look at."""
    metadata_for(*schema.DEFAULT_TABLES).create_all(empty)

    assert described(engine) == described(empty)


def described(engine: Engine) -> dict[str, Any]:
    inspector = inspect(engine)
    return {
        table: {
            "columns": {
                column["name"]: (
                    *(
                        str(column["type"]),
                        getattr(column["type"], "collation", None),
                        column["nullable"],
                    ),
                    str(column["default"]).replace(table, ""),
                )
                for column in inspector.get_columns(table)
            },
            "indexes": sorted(
                (
                    *(str(index["name"]), str(index["column_names"])),
                    *(
                        f"{option}={value}"
                        for option, value in index.get("dialect_options", {}).items()
                    ),
                )
                for index in inspector.get_indexes(table)
            ),
            "key": inspector.get_pk_constraint(table)["constrained_columns"],
            "checks": sorted(
                str(check["sqltext"]) for check in inspector.get_check_constraints(table)
            ),
        }
        for table in sorted(tables(engine))
    }


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
    assert report(engine, "audit_events").missing_tables == ("audit_events", "audit_events_history")

    create_schema(engine.url, tables=["audit_events"])

    assert tables(engine) == TABLES | {"audit_events", "audit_events_history"}
    assert report(engine, "audit_events", "bus_events").fit is Fit.CURRENT
    with engine.connect() as connection:
        assert differences(connection, "audit_events", *schema.DEFAULT_TABLES) == []
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
        together.wait(20)
        return create_schema(empty.url).fit

    with ThreadPoolExecutor(4) as pool:
        fits = list(pool.map(create, range(4)))

    assert sorted(fits) == [Fit.CURRENT] * 3 + [Fit.MISSING]
    assert tables(empty) == TABLES


def make_schema_of(engine: Engine, revision: str, *names: str) -> None:
    """Make the tables as they were at a revision."""
    config = schema._config(names or schema.DEFAULT_TABLES)
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, revision)


def set_revision(engine: Engine, revision: str, *, works_since: str | None = None) -> None:
    """Make the schema one of `revision`, which only code from `works_since` on (default: of the same one) works with."""
    values = {"revision": revision, "works_since": works_since or revision}
    with engine.begin() as connection:
        connection.execute(
            text(
                f"UPDATE {schema.VERSION_TABLE} SET version_num = :revision, works_since = :works_since"
            ),
            values,
        )


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
    make_schema_of(empty, "0001", "audit_events", *schema.DEFAULT_TABLES)
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
    make_schema_of(empty, "0006", *schema.DEFAULT_TABLES)
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
    row = "INSERT INTO bus_events (class_name, created_date, effective_date) VALUES ('Ping', {0}, {0})"
    with empty.begin() as connection:
        for _ in range(3):
            connection.exec_driver_sql(row.format("'2026-01-01 00:00:00.000000'"))
        connection.exec_driver_sql("DELETE FROM bus_events WHERE record_id > 1")
    with pytest.raises(DBAPIError, match="bus_events_readable"), empty.begin() as connection:
        connection.exec_driver_sql(row.format("CURRENT_TIMESTAMP"))

    create_schema(empty.url)

    with empty.begin() as connection:
        connection.exec_driver_sql(row.format("CURRENT_TIMESTAMP"))
        assert differences(connection, *schema.DEFAULT_TABLES) == []
    assert sorted(entry.record_id for entry in make_bus(database=empty.url).find()) == [1, 4]


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
                "INSERT INTO bus_events (class_name, event_json, user_token, created_date, creating_owner, "
                "processing_owner, processing_available_date, processing_state, error_count, search_key1, search_key2) "
                "VALUES ('org.killbill.Invoice', :json, :token, "
                + NOW[engine.dialect.name]
                + ", 'java-1', "
                "NULL, NULL, 'AVAILABLE', 0, 11, 22)"
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
                "INSERT INTO notifications (class_name, event_json, user_token, future_user_token, created_date, "
                "creating_owner, processing_owner, processing_available_date, processing_state, error_count, "
                "search_key1, search_key2, queue_name, effective_date) "
                f"VALUES ('org.killbill.Dunning', :json, NULL, NULL, {now}, 'java-1', NULL, NULL, 'AVAILABLE', 0, 11, "
                f"22, 'billing:dunning', {now})"
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
    assert abs((bus._engine.store.clock.now() - entry.effective_date).total_seconds()) < 60


@needs.postgresql
def test_an_upgrade_makes_an_index_anew_while_others_write_and_a_transaction_stays_open(
    empty: Engine, engine: Engine
) -> None:
    add = text("INSERT INTO bus_events (class_name) VALUES ('Ping')")
    waiting = text(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
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


@needs.ddl_commits
def test_a_creation_killed_after_any_change_of_a_table_ends_when_it_is_run_again(
    empty: Engine, engine: Engine
) -> None:
    """There such a change commits by itself, before the version that tells of it."""
    assert runs_until_created(empty, *schema.DEFAULT_TABLES) > len(TABLES)

    assert report(empty).fit is Fit.CURRENT
    assert described(empty) == described(engine)


@needs.ddl_commits
def test_tables_of_further_names_are_whole_after_a_creation_killed_at_any_change(
    new_database: NewDatabase, engine: Engine
) -> None:
    create_schema(engine.url, tables=["audit_events"])
    other = _reflecting(new_database("other"))

    assert runs_until_created(other, "audit_events") > len({"audit_events", "audit_events_history"})

    assert described(other) == described(engine)
    other.dispose()


def runs_until_created(engine: Engine, *names: str) -> int:
    """Create the tables, killed after the first change that each run makes; returns how many runs that took."""

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


@needs.administered
def test_an_upgrade_tells_of_its_steps(empty: Engine) -> None:
    make_schema_of(empty, "0003")
    told = list[tuple[str, int, int]]()
    database = Database(empty.url)
    try:
        schema.ensure(
            database,
            schema.DEFAULT_TABLES,
            progress=lambda step, done, total: told.append((step, done, total)),
        )
    finally:
        database.close()

    assert [done for _, done, _ in told] == list(range(1, len(told) + 1))
    assert {total for *_, total in told} == {len(told)}
    assert (
        told[0][0] == "PostgreSQL: the index of claims answers what names a lane, and nothing else."
    )
