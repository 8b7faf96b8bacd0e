"""The statements on the log of archives. What Spark does is in `tests/pipeline`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import IntegrityError

from sql.database import Database
from sql.statements.archives import DELETED, PUBLISHED, Archives, Logged
from tests.contract.conftest import MakeBus
from tests.contract.harness import database_of
from tests.contract.plans.cost import cost_of

NOW = datetime(2026, 1, 2, tzinfo=UTC)
LARGE = bytes(range(256)) * 8_192
"""Two megabytes: the manifest of some thousand files."""
ROWS = 2_000
MOST_READ = 60
"""What a statement on one run reads at most: rows, or hundreds of instructions on SQLite."""


def logged(number: int, **changes: Any) -> Logged:
    """The row of a run that is named by its number."""
    row = Logged(
        run=f"run-{number}",
        table_name="bus_events",
        target="/archive/bus_events",
        first_id=1,
        last_id=9,
        before_date=NOW,
        entries=9,
        deleted_date=NOW,
        manifest_number=number,
        manifest_sha256="0" * 64,
        archive="run-1",
        kind="archive",
        manifest=b"{}",
    )
    return row._replace(**changes)


@pytest.fixture
def database(make_bus: MakeBus) -> Database:
    return database_of(make_bus())


def enter(database: Database, *rows: Logged) -> None:
    for row in rows:
        database.write(partial(Archives().enter_published, logged=row))


def states(database: Database) -> dict[str, str | None]:
    rows = database.fetch(partial(Archives().entered, table_name="bus_events"))
    return {row.run: row.state for row in rows}


def test_of_two_runs_only_one_gets_a_number_of_an_archive(database: Database) -> None:
    enter(database, logged(1))
    with pytest.raises(IntegrityError):
        enter(database, logged(1, run="other"))
    enter(database, logged(1, run="of another archive", archive="other"))
    enter(database, logged(1, run="of another table", table_name="notifications"))

    assert states(database) == {"run-1": PUBLISHED, "of another archive": PUBLISHED}
    at = partial(Archives().at, table_name="bus_events", archive="run-1")
    assert database.fetch(partial(at, number=1)) == ("archive", b"{}")
    assert database.fetch(partial(at, number=2)) is None


def test_a_run_is_deleted_when_its_rows_are_and_a_manifest_keeps_its_bytes(
    database: Database,
) -> None:
    enter(database, logged(1, manifest=LARGE), logged(2))
    archives = Archives()
    deleted = partial(archives.deleted_runs, table_name="bus_events")
    after = partial(archives.deleted_after, table_name="bus_events", finished=NOW.replace(day=1))
    assert (database.fetch(deleted), database.fetch(after)) == (set(), None)

    database.write(
        partial(archives.enter_deleted, run="run-1", entries=8, newest_date=NOW, now=NOW)
    )

    assert database.fetch(deleted) == {"run-1"}
    lost = database.fetch(after)
    assert lost is not None
    assert (lost.run, lost.target) == ("run-1", "/archive/bus_events")
    assert states(database) == {"run-1": DELETED, "run-2": PUBLISHED}
    assert database.fetch(partial(archives.manifest, run="run-1")) == LARGE


def test_only_a_run_whose_rows_are_not_deleted_is_withdrawn(database: Database) -> None:
    enter(database, logged(1), logged(2))
    database.write(
        partial(Archives().enter_deleted, run="run-1", entries=9, newest_date=None, now=NOW)
    )
    for run in ("run-1", "run-2"):
        database.write(partial(Archives().withdraw, run=run))
    assert states(database) == {"run-1": DELETED}


def test_rows_of_an_earlier_version_are_of_deleted_runs_and_are_completed(
    database: Database, engine: Engine
) -> None:
    rows = (
        "INSERT INTO queue_archives (run, table_name, target, first_id, last_id, before_date, "
        "entries, deleted_date)"
    )
    date = "'2026-01-02 00:00:00.000000'"
    with engine.begin() as connection:
        for run in ("run-1", "run-2"):
            connection.exec_driver_sql(
                f"{rows} VALUES ('{run}', 'bus_events', '/archive', 1, 9, {date}, 9, {date})"
            )
    deleted = partial(Archives().deleted_runs, table_name="bus_events")
    assert database.fetch(deleted) == {"run-1", "run-2"}
    assert states(database) == {"run-1": None, "run-2": None}

    for number in (1, 3):
        database.write(partial(Archives().adopt, logged=logged(number, manifest=LARGE)))

    assert states(database) == {"run-1": DELETED, "run-2": None, "run-3": PUBLISHED}
    assert database.fetch(partial(Archives().manifest, run="run-1")) == LARGE
    assert database.fetch(deleted) == {"run-1", "run-2"}


def test_the_statements_on_one_run_read_a_bounded_number_of_rows(database: Database) -> None:
    archives = Archives()

    def fill(connection: Connection) -> None:
        for number in range(ROWS):
            archives.enter_published(connection, logged(number))

    database.write(fill)
    seven = logged(7)
    statements: dict[str, Callable[..., object]] = {
        "at": partial(archives.at, table_name="bus_events", archive="run-1", number=7),
        "manifest": partial(archives.manifest, run="run-7"),
        "adopt": partial(archives.adopt, logged=seven),
        "enter_deleted": partial(
            archives.enter_deleted, run="run-7", entries=9, newest_date=NOW, now=NOW
        ),
        "withdraw": partial(archives.withdraw, run="run-9"),
        "enter_published": partial(archives.enter_published, logged=logged(ROWS)),
    }
    costs = dict[str, int]()
    with database.engine.connect() as connection:
        for name, statement in statements.items():
            with cost_of(connection) as cost:
                statement(connection)
            costs[name] = cost[0]
        connection.rollback()
    assert {name: cost for name, cost in costs.items() if cost > MOST_READ} == {}
