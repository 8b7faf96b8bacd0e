"""`stickybus doctor`: tables, indices and plans, and the page that explains each check."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import (
    URL,
    Engine,
    make_url,
)

from devtools import servers
from devtools.server import DatabaseServer
from queue_core.doctor.examination import examine
from sql.database import Database
from sql.doctor.finding import Finding, Severity
from stickybus.cli import main
from tests import requirements as needs
from tests.cloners import CLONERS
from tests.contract.doctor.answers import Doctor, Told
from tests.contract.doctor.rows import fill
from tests.contract.doctor.servers import TearingServer
from tests.contract.harness import statements_of

ROOT = Path(__file__).parents[3]


# -- all databases -------------------------------------------------------------------------------


def test_a_healthy_database_has_nothing_to_be_found(
    database_url: URL, capsys: pytest.CaptureFixture[str]
) -> None:
    options = [
        "doctor",
        "--url",
        database_url.render_as_string(hide_password=False),
        "--integrity",
    ]
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


def test_settings_that_lose_data_in_a_crash_are_found(
    own_server: DatabaseServer, own_server_url: URL, ask: Callable[..., Told]
) -> None:
    """On a server that is set up as for tests, where nobody misses what a crash takes."""
    told = ask(own_server_url)

    costly = {
        "postgresql": {"fsync", "full_page_writes"},
        "mariadb": {"innodb_flush_log_at_trx_commit"},
        "mysql": {"innodb_flush_log_at_trx_commit", "sync_binlog"},
    }
    assert told.code == 1
    assert {finding["subject"] for finding in told.of("settings")} == costly[own_server.name]
    assert {finding["severity"] for finding in told.findings} == {"danger"}


@pytest.mark.mariadb
def test_pages_that_a_crash_may_tear_are_found(
    monkeypatch: pytest.MonkeyPatch, ask: Callable[..., Told]
) -> None:
    monkeypatch.setitem(servers.SERVERS, "mariadb", TearingServer)
    with servers.database_servers(which=["mariadb"]) as started:
        cloner = CLONERS["mariadb"](make_url(started["mariadb"]))
        told = ask(cloner.migrated())
        cloner.close()
    assert "innodb_doublewrite" in {finding["subject"] for finding in told.of("settings")}


@needs.server
def test_an_index_that_no_statement_uses_is_found(
    database_name: str, doctor: Doctor, run: Callable[..., None]
) -> None:
    hide = {
        "postgresql": (
            "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'bus_events_keys'::regclass"
        ),
        "mariadb": "ALTER TABLE bus_events ALTER INDEX bus_events_keys IGNORED",
        "mysql": "ALTER TABLE bus_events ALTER INDEX bus_events_keys INVISIBLE",
    }
    run(hide[database_name])

    (found,) = doctor().findings

    assert (found["check"], found["severity"]) == ("invalid-index", "slow")
    run(found["cure"])
    assert doctor() == Told(0, [])


# -- the page ------------------------------------------------------------------------------------


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
