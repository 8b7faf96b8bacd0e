"""What `stickybus doctor` finds in MariaDB and MySQL alone."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import (
    URL,
    Engine,
    create_engine,
    text,
)

from tests import requirements as needs
from tests.contract.doctor.answers import Doctor, Told
from tests.contract.doctor.rows import enter
from tests.contract.harness import eventually


@needs.mysql
def test_a_statement_with_an_emoji_that_runs_meanwhile_hinders_no_answer(
    doctor: Doctor, run: Callable[..., None], engine: Engine
) -> None:
    enter(engine, "node-1", tables=["bus_events"])
    running = text(
        "SELECT count(*) FROM performance_schema.processlist WHERE id = :id AND state = 'User "
        "sleep'"
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
        r"stickybus@127.0.0.1:\d+ has had a transaction open for [\d.]+ m?s", found[0]["what"]
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
    eventually(lambda: not doctor().of("history-list"), "the server's other tests find it purged")


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
