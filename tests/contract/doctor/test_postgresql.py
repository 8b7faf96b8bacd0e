"""What `stickybus doctor` finds in PostgreSQL alone."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import (
    URL,
    Engine,
    create_engine,
    text,
)
from sqlalchemy.pool import NullPool

from devtools import servers
from devtools.postgresql import PostgreSQLServer
from devtools.programs import find_program
from devtools.server import run_to_its_end
from devtools.servers import database_servers
from tests import requirements as needs
from tests.contract.doctor.answers import Doctor, Told
from tests.contract.doctor.rows import fill
from tests.contract.harness import eventually


class _Standby(PostgreSQLServer):
    """Follows the server of `primary`, through a slot or without one.

    It reports which rows its queries still see.
    """

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


# -- PostgreSQL ----------------------------------------------------------------------------------


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
        "ALTER TABLE bus_events RESET (autovacuum_vacuum_scale_factor, "
        "autovacuum_vacuum_threshold, autovacuum_vacuum_cost_delay)"
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
    # Those of others, of autovacuum's too, are counted.
    assert re.search(r"idle in transaction, \d+ transactions behind", found["what"])


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
                    "DO $$BEGIN FOR number IN 0..100000 LOOP PERFORM pg_current_xact_id(); COMMIT; "
                    "END LOOP; END$$"
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


# -- rights --------------------------------------------------------------------------------------


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
