"""`stickybus doctor`: each thing that it finds is provoked for real, and a healthy database has nothing to be found.

The servers are of this module's own, with settings as durable as in production.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import (
    URL,
    ColumnElement,
    Engine,
    create_engine,
    insert,
    literal,
    literal_column,
    make_url,
    select,
    text,
    update,
)
from sqlalchemy.pool import NullPool

from devtools import servers
from devtools.folders import data_folder
from devtools.innodb import MariaDBServer
from devtools.postgresql import PostgreSQLServer
from devtools.programs import find_program
from devtools.server import DatabaseServer, run_to_its_end
from devtools.servers import database_servers
from queue_core.doctor.examination import examine
from queue_core.runtime.clock import SystemClock
from sql import schema
from sql.database import Database
from sql.doctor.finding import Finding, Severity
from sql.sqlite import doctor as sqlite
from sql.tables import entry_tables, queue_nodes, queue_schedules
from stickybus.cli import main
from tests import requirements as needs
from tests.conftest import _CLONERS
from tests.contract.harness import eventually, statements_of

ROOT = Path(__file__).parents[2]
LONG_AGO = datetime.now(UTC) - timedelta(days=200)


class _LoggingServer(MariaDBServer):
    """With a binary log, as a server that has replicas, and in a zone in which InnoDB tells some dates."""

    def _command(self) -> list[str]:
        log = ["--log-bin=binlog", "--binlog-format=MIXED", "--sync-binlog=1"]
        return ["env", "TZ=JST-9", *super()._command(), *log]


class _Standby(PostgreSQLServer):
    """Follows the server of `primary` through a slot, or without one, and tells it what its queries still see."""

    def __init__(self, folder: Path, *, durable: bool, primary: URL, slot: str | None) -> None:
        self._primary, self._slot = primary, slot
        super().__init__(folder, durable=durable)
        self._password = str(primary.password)  # roles were copied

    def _create_data(self) -> None:
        of_primary = self._primary.set(drivername="postgresql", database=None)
        command = [find_program("pg_basebackup"), "--pgdata=data", "--checkpoint=fast"]
        command += [
            f"--dbname={of_primary.render_as_string(hide_password=False)}",
            "--write-recovery-conf",
        ]
        if self._slot is not None:
            command += ["--create-slot", f"--slot={self._slot}"]
        run_to_its_end(command, cwd=self.folder)

    def _command(self) -> list[str]:
        return [
            *super()._command(),
            "--hot_standby_feedback=on",
            "--wal_receiver_status_interval=1",
        ]


class _Servers:
    """Durable servers, each started when first asked for."""

    def __init__(self) -> None:
        self._running = ExitStack()
        self._cloners: dict[str, Any] = {}

    def cloner(self, name: str) -> Any:
        """Makes and drops databases on the server of this name."""
        if name not in self._cloners:
            # In memory, where to be durable costs nothing.
            folder = data_folder(durable=False)
            started = self._running.enter_context(
                database_servers(durable=True, which=[name], folder=folder)
            )
            self._cloners[name] = _CLONERS[name](make_url(started[name]))
            self._running.callback(self._cloners[name].close)
        return self._cloners[name]

    def close(self) -> None:
        self._running.close()


@pytest.fixture(scope="module")
def durable_servers() -> Iterator[_Servers]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(servers.SERVERS, "mariadb", _LoggingServer)
        running = _Servers()
        yield running
        running.close()


@pytest.fixture
def database_url(database_name: str, durable_servers: _Servers, tmp_path: Path) -> Iterator[URL]:
    """In place of the suite's: a fresh database on a server that a crash costs nothing."""
    if database_name == "sqlite":
        url = URL.create("sqlite", database=str(tmp_path / "stickybus.db"))
        schema.create(url)
        yield url
        return
    cloner = durable_servers.cloner(database_name)
    url = cloner.migrated()
    yield url
    cloner.drop(url.database)


@pytest.fixture
def engine(database_url: URL) -> Iterator[Engine]:
    """Sessions of another program."""
    engine = create_engine(database_url, poolclass=NullPool)
    yield engine
    engine.dispose()


@pytest.fixture
def run(engine: Engine) -> Callable[..., None]:
    """Runs statements of an administrator, each in a transaction of its own."""

    def run(*statements: str) -> None:
        with engine.connect() as connection:
            autocommit = connection.execution_options(isolation_level="AUTOCOMMIT")
            for statement in statements:
                autocommit.exec_driver_sql(statement)

    return run


@dataclass(frozen=True)
class Told:
    """What the command told."""

    code: int
    findings: list[dict[str, str]]

    def of(self, check: str) -> list[dict[str, str]]:
        return [finding for finding in self.findings if finding["check"] == check]

    def one(self, check: str) -> dict[str, str]:
        (finding,) = self.of(check)
        return finding


Doctor = Callable[..., Told]


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Callable[..., Told]:
    """The doctor of any database."""

    def ask(url: URL, *options: str) -> Told:
        shown = url.render_as_string(hide_password=False)
        code = main(["doctor", "--json", "--url", shown, *options])
        written = capsys.readouterr()
        assert written.out, written.err
        return Told(code, json.loads(written.out)["findings"])

    return ask


@pytest.fixture
def doctor(database_url: URL, ask: Callable[..., Told]) -> Doctor:
    """The doctor of the test's database."""
    return partial(ask, database_url)


# -- all databases ------------------------------------------------------------------------------------------------------


def test_a_healthy_database_has_nothing_to_be_found(
    database_url: URL, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["doctor", "--url", database_url.render_as_string(hide_password=False), "--integrity"]
    if database_url.get_backend_name() != "sqlite":
        options.pop()
    assert main(options) == 0
    assert capsys.readouterr().out.endswith(": all is well.\n")


def test_an_examination_sends_nothing_but_questions(database_url: URL) -> None:
    database = Database(database_url)
    with database.read():  # opens the connection, with its settings
        pass
    with statements_of(database) as statements:
        assert examine(database) == []
    database.close()
    assert len(statements.texts) > 10
    assert (
        statements.starting_with("SELECT", "WITH", "SHOW", "DESCRIBE", "EXPLAIN", "PRAGMA", "BEGIN")
        == statements.texts
    )
    assert not any(
        "FOR UPDATE" in text for text in statements.texts if not text.startswith("EXPLAIN")
    )


def test_a_database_that_lacks_a_table_is_found(doctor: Doctor, run: Callable[..., None]) -> None:
    run("DROP TABLE queue_schedules")

    told = doctor()

    assert told.code == 1
    assert told.one("schema")["cure"].startswith("stickybus schema create # makes queue_schedules")


@pytest.mark.parametrize(
    ("revision", "cure"),
    [
        ("0001", "stickybus schema upgrade"),
        ("9999", "Install the newer stickybus that upgraded it"),
    ],
)
def test_a_schema_of_another_version_is_found(
    doctor: Doctor, run: Callable[..., None], revision: str, cure: str
) -> None:
    run(f"UPDATE stickybus_schema SET version_num = '{revision}', works_since = '{revision}'")

    told = doctor()

    assert told.code == 1
    assert told.one("schema")["cure"] == cure


def test_an_index_that_was_dropped_is_found_and_its_cure_builds_it(
    database_name: str, doctor: Doctor, run: Callable[..., None]
) -> None:
    of_table = " ON bus_events" if database_name in {"mariadb", "mysql"} else ""
    run(f"DROP INDEX bus_events_claim{of_table}")

    told = doctor()

    found = told.one("missing-index")
    assert told.code == 1
    assert (found["severity"], found["subject"]) == ("danger", "bus_events")
    run(found["cure"])
    assert doctor() == Told(0, [])


def test_an_index_of_history_that_was_dropped_costs_speed_only(
    database_name: str, doctor: Doctor, run: Callable[..., None]
) -> None:
    of_table = " ON notifications_history" if database_name in {"mariadb", "mysql"} else ""
    run(f"DROP INDEX notifications_history_origin{of_table}")

    told = doctor()

    assert told.code == 0
    assert told.one("missing-index")["severity"] == "slow"
    run(told.one("missing-index")["cure"])
    assert doctor() == Told(0, [])


def test_an_index_of_the_right_name_on_other_columns_is_found(
    database_name: str, doctor: Doctor, run: Callable[..., None]
) -> None:
    of_table = " ON bus_events" if database_name in {"mariadb", "mysql"} else ""
    run(
        f"DROP INDEX bus_events_claim{of_table}",
        "CREATE INDEX bus_events_claim ON bus_events (effective_date, lane)",
    )

    found = doctor().one("missing-index")

    assert "has another index of the name bus_events_claim" in found["what"]


def test_a_plan_that_reads_a_whole_table_is_found_once_the_table_has_rows(
    database_name: str, doctor: Doctor, run: Callable[..., None], engine: Engine
) -> None:
    broken = {
        "sqlite": ["DROP INDEX bus_events_claim"],
        "postgresql": [
            "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'bus_events_claim'::regclass"
        ],
        # The claim's index is forced, that of the keys is chosen.
        "mariadb": ["ALTER TABLE bus_events ALTER INDEX bus_events_keys IGNORED"],
        "mysql": ["ALTER TABLE bus_events ALTER INDEX bus_events_keys INVISIBLE"],
    }
    run(*broken[database_name])
    fill(engine, "bus_events", rows=1_000)
    assert doctor().of("bad-plan") == []

    fill(engine, "bus_events", rows=1)

    purpose = "a search by keys" if database_name in {"mariadb", "mysql"} else "the claim"
    found = [finding for finding in doctor().of("bad-plan") if finding["what"].startswith(purpose)]
    assert [(finding["severity"], finding["subject"]) for finding in found] == [
        ("slow", "bus_events")
    ]


def test_entries_that_have_been_due_for_long_are_found(doctor: Doctor, engine: Engine) -> None:
    fill(engine, "bus_events", rows=3)

    told = doctor()

    assert told.code == 1
    found = told.one("waiting-entries")
    assert found["what"].startswith(
        "3 entries or more of 'bus' in bus_events wait, due for up to 200 d"
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
        "2 entries or more of 'bus' in notifications are parked"
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


def test_settings_that_lose_data_in_a_crash_are_found(
    own_server: DatabaseServer, own_server_url: URL, ask: Callable[..., Told]
) -> None:
    """On a server that is set up as for tests, where nobody misses what a crash takes."""
    told = ask(own_server_url)

    costly = {
        "postgresql": {"fsync", "full_page_writes"},
        "mariadb": {"innodb_flush_log_at_trx_commit", "innodb_doublewrite"},
        "mysql": {"innodb_flush_log_at_trx_commit", "innodb_doublewrite", "sync_binlog"},
    }
    assert told.code == 1
    assert {finding["subject"] for finding in told.of("settings")} == costly[own_server.name]
    assert {finding["severity"] for finding in told.findings} == {"danger"}


@needs.server
def test_an_index_that_no_statement_uses_is_found(
    database_name: str, doctor: Doctor, run: Callable[..., None]
) -> None:
    hide = {
        "postgresql": "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'bus_events_keys'::regclass",
        "mariadb": "ALTER TABLE bus_events ALTER INDEX bus_events_keys IGNORED",
        "mysql": "ALTER TABLE bus_events ALTER INDEX bus_events_keys INVISIBLE",
    }
    run(hide[database_name])

    (found,) = doctor().findings

    assert (found["check"], found["severity"]) == ("invalid-index", "slow")
    run(found["cure"])
    assert doctor() == Told(0, [])


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


@needs.mysql
def test_a_statement_with_an_emoji_that_runs_meanwhile_hinders_no_answer(
    doctor: Doctor, run: Callable[..., None], engine: Engine
) -> None:
    enter(engine, "node-1", tables=["bus_events"])
    running = text(
        "SELECT count(*) FROM performance_schema.processlist WHERE id = :id AND state = 'User sleep'"
    )
    with ThreadPoolExecutor(1) as pool, engine.connect() as other, engine.connect() as observer:
        session = {"id": other.execute(text("SELECT connection_id()")).scalar_one()}
        sleeping = pool.submit(other.execute, text("SELECT SLEEP(60), '🚚'"))
        try:
            eventually(
                lambda: observer.execute(running, session).scalar_one(), "the statement runs"
            )
            told = doctor()
        finally:
            run(f"KILL QUERY {session['id']}")
        sleeping.result()
    assert "unchecked" not in {found["severity"] for found in told.findings}


# -- PostgreSQL -----------------------------------------------------------------------------------------------------------


@needs.postgresql
@pytest.mark.parametrize(
    ("setting", "value", "severity"),
    [
        ("synchronous_commit", "off", "danger"),
        ("default_transaction_read_only", "on", "danger"),
    ],
)
def test_a_setting_of_the_database_that_costs_data_or_time_is_found(
    *,
    doctor: Doctor,
    run: Callable[..., None],
    database_url: URL,
    setting: str,
    value: str,
    severity: str,
) -> None:
    run(f"ALTER DATABASE {database_url.database} SET {setting} = '{value}'")

    told = doctor()

    assert told.code == (1 if severity == "danger" else 0)
    assert told.one("settings")["severity"] == severity


@needs.postgresql
@pytest.mark.parametrize("setting", ["autovacuum", "track_counts"])
def test_a_server_without_autovacuum_is_found(
    doctor: Doctor, run: Callable[..., None], setting: str
) -> None:
    run(f"ALTER SYSTEM SET {setting} = off", "SELECT pg_reload_conf()")
    try:
        found = eventually(lambda: doctor().of("settings"), "the server has read its settings")
    finally:
        run(f"ALTER SYSTEM RESET {setting}", "SELECT pg_reload_conf()")
    assert [(finding["subject"], finding["severity"]) for finding in found] == [(setting, "slow")]
    eventually(lambda: doctor() == Told(0, []), "the server has read its settings")


@needs.postgresql
def test_a_table_that_autovacuum_passes_over_is_found(
    doctor: Doctor, run: Callable[..., None]
) -> None:
    run("ALTER TABLE bus_events SET (autovacuum_enabled = false)")

    found = doctor().one("autovacuum")

    assert found["severity"] == "slow"
    run(found["cure"])
    assert doctor() == Told(0, [])


@needs.postgresql
def test_a_table_without_the_settings_of_a_queue_is_found(
    doctor: Doctor, run: Callable[..., None]
) -> None:
    run(
        "ALTER TABLE bus_events RESET (autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold, "
        "autovacuum_vacuum_cost_delay)"
    )

    found = doctor().one("autovacuum")

    assert "lacks the settings" in found["what"]
    run(found["cure"])
    assert doctor() == Told(0, [])


@needs.postgresql
def test_dead_rows_that_nobody_removes_are_found(
    doctor: Doctor, run: Callable[..., None], engine: Engine
) -> None:
    run("ALTER TABLE bus_events SET (autovacuum_enabled = false)")
    fill(engine, "bus_events", rows=10_000, created=datetime.now(UTC))
    run("ANALYZE bus_events", "DELETE FROM bus_events")

    found = eventually(lambda: doctor().of("dead-rows"), "the server has counted them")

    assert "10,000 dead rows; it was vacuumed never" in found[0]["what"]
    run(found[0]["cure"])
    eventually(lambda: not doctor().of("dead-rows"), "the server has counted again")


@needs.postgresql
def test_a_table_that_was_never_analysed_is_found(
    doctor: Doctor, run: Callable[..., None], engine: Engine
) -> None:
    run("ALTER TABLE bus_events SET (autovacuum_enabled = false)")
    fill(engine, "bus_events", rows=10_000, created=datetime.now(UTC))

    found = eventually(lambda: doctor().of("never-analysed"), "the server has counted them")

    run(found[0]["cure"])
    eventually(lambda: not doctor().of("never-analysed"), "the server has noted it")


@needs.postgresql
def test_who_holds_a_snapshot_is_found_with_its_program_and_state(
    doctor: Doctor, engine: Engine
) -> None:
    with engine.connect() as connection:
        connection.execution_options(isolation_level="REPEATABLE READ")
        connection.execute(text("SET application_name = 'nightly report'"))
        pid = connection.execute(text("SELECT pg_backend_pid()")).scalar_one()
        assert doctor().of("old-snapshot") == []  # it is not open for a minute yet

        found = doctor("--transaction-age", "1ms").one("old-snapshot")

    assert found["subject"] == f"pid {pid}"
    assert "nightly report (stickybus) has had a transaction open for" in found["what"]
    assert "idle in transaction, 0 transactions behind" in found["what"]


@needs.postgresql
def test_a_prepared_transaction_that_nobody_ends_is_found(
    doctor: Doctor, run: Callable[..., None]
) -> None:
    run(
        "BEGIN",
        "INSERT INTO bus_events (class_name) VALUES ('Order')",
        "PREPARE TRANSACTION 'forgotten'",
    )
    try:
        found = doctor("--transaction-age", "1ms").one("prepared-transaction")
    finally:
        run("ROLLBACK PREPARED 'forgotten'")
    assert found["subject"] == "forgotten"


@needs.postgresql
def test_a_replication_slot_that_nobody_reads_is_found(
    doctor: Doctor, run: Callable[..., None]
) -> None:
    run("SELECT pg_create_physical_replication_slot('abandoned', true)")

    found = doctor().one("slot")

    assert "nobody reads the replication slot abandoned" in found["what"]
    run(found["cure"].partition(": ")[2])
    assert doctor() == Told(0, [])


@needs.postgresql
@pytest.mark.parametrize("slot", [None, "of_standby"])
def test_a_query_on_a_standby_that_holds_a_snapshot_is_found(
    doctor: Doctor,
    run: Callable[..., None],
    database_url: URL,
    slot: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(
        servers.SERVERS, "postgresql", partial(_Standby, primary=database_url, slot=slot)
    )
    try:
        with database_servers(durable=False, which=["postgresql"]) as standby:
            query = create_engine(
                standby["postgresql"], isolation_level="REPEATABLE READ", poolclass=NullPool
            )
            with query.connect() as connection:
                connection.execute(text("SELECT count(*) FROM pg_class"))
                assert doctor().findings == []
                run(
                    "DO $$BEGIN FOR number IN 0..100000 LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END$$"
                )

                found = eventually(
                    lambda: doctor().of("standby"), "the standby has told of its snapshot"
                )

            assert [one["subject"] for one in found] == [slot or "walreceiver"]
            eventually(lambda: doctor() == Told(0, []), "the standby has told of the query's end")
    finally:
        if slot is not None:
            run(f"SELECT pg_drop_replication_slot('{slot}')")


@needs.postgresql
def test_a_table_that_a_crash_empties_is_found(doctor: Doctor, run: Callable[..., None]) -> None:
    run("ALTER TABLE bus_events_history SET UNLOGGED")

    told = doctor()

    assert told.code == 1
    run(told.one("storage")["cure"])
    assert doctor() == Told(0, [])


@needs.postgresql
def test_a_primary_key_that_was_dropped_is_found(doctor: Doctor, run: Callable[..., None]) -> None:
    run("ALTER TABLE bus_events DROP CONSTRAINT bus_events_pkey")

    told = doctor()

    assert told.code == 1
    run(told.one("missing-index")["cure"])
    assert doctor() == Told(0, [])


# -- MariaDB --------------------------------------------------------------------------------------------------------------


@needs.mariadb
@pytest.mark.parametrize(
    ("setting", "value", "healthy", "severity"),
    [
        ("innodb_flush_log_at_trx_commit", "2", "1", "danger"),
        ("read_only", "ON", "OFF", "danger"),
        ("binlog_format", "'STATEMENT'", "'MIXED'", "danger"),
        ("sync_binlog", "0", "1", "danger"),
        ("tx_isolation", "'SERIALIZABLE'", "'REPEATABLE-READ'", "slow"),
        ("innodb_lock_wait_timeout", "3600", "50", "note"),
    ],
)
def test_a_setting_of_a_mariadb_server_that_costs_data_or_time_is_found(
    *,
    doctor: Doctor,
    run: Callable[..., None],
    setting: str,
    value: str,
    healthy: str,
    severity: str,
) -> None:
    run(f"SET GLOBAL {setting} = {value}")
    try:
        told = doctor()
    finally:
        run(f"SET GLOBAL {setting} = {healthy}")
    assert told.code == (1 if severity == "danger" else 0)
    assert told.one("settings")["severity"] == severity
    assert doctor() == Told(0, [])


@needs.mariadb
def test_a_table_of_another_engine_is_found(doctor: Doctor, run: Callable[..., None]) -> None:
    run("ALTER TABLE bus_events_history ENGINE = Aria")

    told = doctor()

    assert told.code == 1
    run(told.one("storage")["cure"])
    assert doctor() == Told(0, [])


@needs.mariadb
def test_a_transaction_that_stays_open_is_found_with_its_age_in_any_time_zone(
    doctor: Doctor, engine: Engine
) -> None:
    with engine.connect() as connection:
        connection.exec_driver_sql("START TRANSACTION WITH CONSISTENT SNAPSHOT")
        thread = connection.exec_driver_sql("SELECT CONNECTION_ID()").scalar_one()
        assert doctor().of("long-transaction") == []  # it is not open for a minute yet

        found = eventually(
            lambda: doctor("--transaction-age", "1ms").of("long-transaction"),
            "InnoDB counts in seconds",
        )

    assert found[0]["subject"] == f"thread {thread}"
    assert re.search(
        r"stickybus@127.0.0.1:\d+ has had a transaction open for \d{1,2}\.\d s", found[0]["what"]
    )


@needs.mariadb
def test_a_purge_that_is_held_up_is_found(
    doctor: Doctor, run: Callable[..., None], engine: Engine
) -> None:
    with engine.connect() as holder:
        holder.exec_driver_sql("START TRANSACTION WITH CONSISTENT SNAPSHOT")
        run(
            "CREATE TABLE counters (id INTEGER PRIMARY KEY, number INTEGER)",
            "INSERT INTO counters VALUES (1, 0)",
            "SET GLOBAL innodb_flush_log_at_trx_commit = 0",
            "SET SESSION sql_log_bin = OFF",
            "BEGIN NOT ATOMIC FOR i IN 1..100001 DO UPDATE counters SET number = i; END FOR; END",
        )
        try:
            found = doctor().of("history-list")
        finally:
            run("SET GLOBAL innodb_flush_log_at_trx_commit = 1")
    assert found[0]["severity"] == "slow"


# -- SQLite ---------------------------------------------------------------------------------------------------------------


@needs.sqlite
def test_a_file_in_another_journal_mode_is_found(doctor: Doctor, database_url: URL) -> None:
    with closing(sqlite3.connect(str(database_url.database))) as file:
        file.execute("PRAGMA journal_mode = DELETE")

    assert "journal mode is delete" in doctor().one("journal-mode")["what"]


@pytest.mark.slow
@needs.sqlite
def test_a_file_that_can_not_be_opened_is_looked_at_from_outside(
    database_url: URL, capsys: pytest.CaptureFixture[str]
) -> None:
    with closing(sqlite3.connect(str(database_url.database), isolation_level=None)) as file:
        file.execute("PRAGMA journal_mode = DELETE")
        file.execute("BEGIN")
        file.execute(
            "SELECT count(*) FROM bus_events"
        ).fetchall()  # holds a lock that a switch to WAL waits for

        code = main(["doctor", "--url", database_url.render_as_string()])

    written = capsys.readouterr()
    assert code == 3
    assert "its journal mode is delete" in written.out
    assert "can't be reached: database is locked" in written.err


@needs.sqlite
def test_a_write_ahead_log_that_a_reader_keeps_from_being_emptied_is_found(
    doctor: Doctor, database_url: URL, run: Callable[..., None]
) -> None:
    with closing(sqlite3.connect(str(database_url.database), isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM bus_events").fetchall()
        run(
            "PRAGMA synchronous = OFF",
            "CREATE TABLE blobs (content BLOB)",
            "INSERT INTO blobs SELECT zeroblob(1000000) FROM "
            "(WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 140) SELECT i FROM n)",
        )

        assert doctor().one("wal-size")["severity"] == "slow"


@needs.sqlite
def test_a_file_on_a_network_file_system_is_found(
    doctor: Doctor, database_url: URL, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(str(database_url.database)).resolve().parent
    mounts = tmp_path / "mounts"
    mounts.write_text(
        f"/dev/sda1 / ext4 rw 0 0\nfiler:/share {folder} nfs4 rw,hard 0 0\n", encoding="utf-8"
    )
    monkeypatch.setattr(sqlite, "MOUNTS", mounts)

    told = doctor()

    assert told.code == 1
    assert told.one("network-file-system")["what"].startswith("the file lies on nfs4")


@needs.sqlite
def test_a_disk_that_is_nearly_full_is_found(
    doctor: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "FREE_BYTES", 2**62)

    told = doctor()

    assert told.code == 1
    assert told.one("free-disk")["severity"] == "danger"


@needs.sqlite
def test_a_damaged_file_is_found_when_it_is_asked_for(
    doctor: Doctor, database_url: URL, engine: Engine
) -> None:
    fill(engine, "bus_events_history", rows=2_000)
    path = Path(str(database_url.database))
    with closing(sqlite3.connect(path)) as file:
        file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    size = path.stat().st_size
    with path.open("r+b") as damaged:
        damaged.seek(size // 2)
        damaged.write(b"\xff" * 8192)

    told = doctor("--integrity")

    assert told.code == 1
    assert told.one("integrity")["severity"] == "danger"


# -- rights ---------------------------------------------------------------------------------------------------------------


@needs.postgresql
def test_what_a_user_of_postgresql_may_not_see_is_said_in_one_line(
    ask: Callable[..., Told], run: Callable[..., None], database_url: URL
) -> None:
    run(
        "CREATE ROLE clerk LOGIN PASSWORD 'clerk'",
        "GRANT SELECT ON ALL TABLES IN SCHEMA public TO clerk",
    )
    try:
        told = ask(database_url.set(username="clerk", password="clerk"))
    finally:
        run("DROP OWNED BY clerk", "DROP ROLE clerk")

    assert told.code == 0
    (hidden,) = told.findings
    assert (hidden["check"], hidden["severity"]) == ("old-snapshot", "unchecked")
    assert hidden["what"] == "sessions of other users are hidden from clerk"


@needs.mariadb
def test_what_a_user_of_mariadb_may_not_see_is_said_in_one_line(
    ask: Callable[..., Told], run: Callable[..., None], database_url: URL
) -> None:
    run(
        "CREATE USER clerk IDENTIFIED BY 'clerk'",
        f"GRANT SELECT ON {database_url.database}.* TO clerk",
    )
    try:
        told = ask(database_url.set(username="clerk", password="clerk"))
    finally:
        run("DROP USER clerk")

    assert told.code == 0
    assert {(found["check"], found["severity"]) for found in told.findings} == {
        ("long-transaction", "unchecked"),
        ("history-list", "unchecked"),
    }
    assert all("PROCESS privilege" in found["what"] for found in told.findings)


@needs.mariadb
def test_the_limit_of_an_account_of_mariadb_counts_as_the_servers_does(
    ask: Callable[..., Told], run: Callable[..., None], database_url: URL
) -> None:
    run(
        "CREATE USER teller IDENTIFIED BY 'teller' WITH MAX_USER_CONNECTIONS 10",
        f"GRANT SELECT ON {database_url.database}.* TO teller",
    )
    own = database_url.set(username="teller", password="teller")
    engine = create_engine(own)
    try:
        assert ask(own).of("connections") == []
        sessions = [engine.connect() for _ in range(8)]
        told = ask(own)
        for session in sessions:
            session.close()
    finally:
        engine.dispose()
        run("DROP USER teller")

    assert "of the 10 connections of the user teller" in told.one("connections")["what"]


# -- the page -------------------------------------------------------------------------------------------------------------


def test_each_check_has_a_section_in_the_documentation() -> None:
    modules = [
        *ROOT.glob("sql/*/*.py"),
        *ROOT.glob("queue_core/doctor/*.py"),
    ]
    checks = {
        check
        for module in modules
        for check in re.findall(
            r'(?:Finding|unchecked|broken)\(\s*"([a-z-]+)"', module.read_text("utf-8")
        )
    }
    page = (ROOT / Finding("settings", Severity.NOTE, "", "", "").page.partition("#")[0]).read_text(
        "utf-8"
    )
    assert len(checks) > 20
    assert set(re.findall(r"^### (\S+)$", page, re.MULTILINE)) == checks


# -- rows -----------------------------------------------------------------------------------------------------------------


def fill(
    engine: Engine,
    table: str,
    *,
    rows: int,
    lane: str = "",
    due: datetime = LONG_AGO,
    created: datetime = LONG_AGO,
) -> None:
    """Insert so many rows by one statement."""
    pair = entry_tables(table.removesuffix("_history"))
    history = table.endswith("_history")
    places = len(str(rows))
    digits = "(" + " UNION ALL ".join(f"SELECT {digit} AS d" for digit in range(10)) + ")"
    number = " + ".join(f"{10**place} * d{place}.d" for place in range(places))
    target = pair.history if history else pair.main
    values: dict[str, Any] = {
        "class_name": "Order",
        "event_json": "{}",
        "lane": lane,
        "effective_date": due,
        "created_date": created,
    }
    if history:
        values |= {"finished_date": LONG_AGO, "processing_state": "PROCESSED"}
    columns: dict[str, ColumnElement[Any]] = {
        name: literal(value, target.c[name].type) for name, value in values.items()
    }
    if history:
        columns["record_id"] = literal_column(f"-{10 * rows} - ({number})")
    source = text(", ".join(f"{digits} d{place}" for place in range(places)))
    chosen = select(*columns.values()).select_from(source).where(text(f"{number} < {rows}"))
    with engine.begin() as connection:
        connection.execute(insert(target).from_select(list(columns), chosen))


def enter(
    engine: Engine,
    name: str,
    *,
    state: str = "LIVE",
    beat: datetime | None = None,
    started: datetime = LONG_AGO,
    tables: list[str] | None = None,
    subscribers: dict[str, list[str]] | None = None,
) -> None:
    """The row of a node; without `subscribers`, as the version before wrote it."""
    now = datetime.now(UTC)
    own = {} if subscribers is None else {"subscribers": subscribers}
    serves = [
        {"table": table, "mode": "POLLING", "queues": ["bus"], "types": [], **own}
        for table in tables or []
    ]
    with engine.begin() as connection:
        connection.execute(
            insert(queue_nodes).values(
                name=name,
                epoch=1,
                beat=1,
                state=state,
                hostname="host",
                host_identity="host",
                pid=os.getpid(),
                lease_seconds=15.0,
                started_date=started,
                beat_date=beat or now,
                serves=json.dumps(serves),
            )
        )
