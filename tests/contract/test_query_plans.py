"""How each database runs the engine's statements, from an empty table to a long backlog: by index, never by a scan.

The statements are those that the engine sends, caught on their way and explained in the session that sent them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Connection, event, text

from queue_core.entry import State
from sql.database import Database
from sql.statements import Statements
from stickybus import PersistentBus
from tests.contract.harness import on_postgresql

ROWS = (0, 1_000, 50_000)
BATCH = 100

_DIGITS = " UNION ALL ".join(f"SELECT {digit} AS d" for digit in range(10))


def fill(database: Database, rows: int) -> None:
    """Raise the table to `rows` due entries, half in lane `a`, half unowned, with statistics as old as they were."""
    with database.begin() as connection:
        present = connection.execute(text("SELECT count(*) FROM bus_events")).scalar_one()
        if rows > present:
            digits = ", ".join(f"({_DIGITS}) d{place}" for place in range(5))
            connection.execute(
                text(
                    "INSERT INTO bus_events (class_name, event_json, lane, effective_date, created_date) "
                    "SELECT 'Order', '{}', CASE WHEN d0.d < 5 THEN 'a' ELSE '' END, "
                    "'2025-01-01 00:00:00.000000', '2025-01-01 00:00:00.000000' "
                    f"FROM {digits} LIMIT :missing"
                ),
                {"missing": rows - present},
            )


@pytest.fixture
def statements(bus: PersistentBus) -> Statements:
    return bus.engine.store.statements


@pytest.fixture
def database(bus: PersistentBus) -> Database:
    """Our own connections to a table that was vacuumed and analysed while it was empty, as a drained queue is."""
    database = bus.engine.database
    if database.dialect.name == "postgresql":
        with database.engine.connect() as connection:
            autocommit = connection.execution_options(isolation_level="AUTOCOMMIT")
            # Autovacuum would cure the statistics some time later, in production as here.
            for history in ("", "_history"):
                table = f"bus_events{history}"
                autocommit.exec_driver_sql(f"ALTER TABLE {table} SET (autovacuum_enabled = false)")
                autocommit.exec_driver_sql(f"VACUUM ANALYZE {table}")
    else:
        words = "ANALYZE" if database.dialect.name == "sqlite" else "ANALYZE TABLE"
        with database.engine.connect() as connection:
            connection.exec_driver_sql(f"{words} bus_events")
            connection.commit()
    return database


_WALK = "reads all:"


class Explained:
    """One statement; `faults` are what none on a queue may do.

    `harmless` ones are walks over an empty table which lock nothing: plans are made anew for each run.
    """

    def __init__(self, connection: Connection, statement: str, parameters: Any) -> None:
        self.statement = statement
        explain = {"sqlite": "EXPLAIN QUERY PLAN ", "postgresql": "EXPLAIN (FORMAT JSON) "}
        prefix = explain.get(connection.dialect.name, "EXPLAIN ")
        rows = connection.exec_driver_sql(prefix + statement, parameters).mappings().all()
        faults = {"sqlite": _sqlite_faults, "postgresql": _postgresql_faults}.get(
            connection.dialect.name, _mariadb_faults
        )
        self.faults = list(faults([dict(row) for row in rows]))
        locks = connection.dialect.name != "postgresql" and (
            "FOR UPDATE" in statement or not statement.startswith("SELECT")
        )
        self.harmless = [] if locks else [fault for fault in self.faults if fault.startswith(_WALK)]


def _sqlite_faults(rows: list[dict[str, Any]]) -> Iterator[str]:
    for row in rows:
        detail = str(row["detail"])
        # The lowest lane is the first entry of the index, for which SQLite says scan.
        if detail.startswith("SCAN bus_events") and "COVERING INDEX" not in detail:
            yield detail
        if "TEMP B-TREE" in detail:
            yield detail


def _postgresql_faults(rows: list[dict[str, Any]]) -> Iterator[str]:
    [document] = rows[0].values()
    tree = json.loads(document) if isinstance(document, str) else document
    nodes = [tree[0]["Plan"]]
    while nodes:
        node = nodes.pop()
        nodes += node.get("Plans", [])
        kind, table = str(node["Node Type"]), node.get("Relation Name")
        if kind == "Sort" or (table == "bus_events" and kind in {"Seq Scan", "Bitmap Heap Scan"}):
            yield f"{kind} {table}"
        elif table == "bus_events" and "Scan" in kind and "Index Cond" not in node:
            yield f"{_WALK} {kind} {table}"


def _mariadb_faults(rows: list[dict[str, Any]]) -> Iterator[str]:
    for row in rows:
        if row["table"] == "bus_events" and row["type"] in {"ALL", "index"}:
            yield f"{_WALK} {row['type']} {row['key']}"
        if "filesort" in str(row["Extra"]):
            yield str(row["Extra"])


def explained(database: Database, work: Callable[[Connection], object]) -> list[Explained]:
    """Run `work`, explain the statements that it sent to the main table, and undo it all."""
    caught = list[tuple[str, Any]]()

    def catch(
        _connection: object, _cursor: object, statement: str, parameters: Any, _context: object, many: object
    ) -> None:
        if "bus_events" in statement:
            assert not many
            caught.append((statement, parameters))

    with database.engine.connect() as connection:
        event.listen(connection, "before_cursor_execute", catch)
        work(connection)
        event.remove(connection, "before_cursor_execute", catch)
        assert caught
        found = [Explained(connection, statement, parameters) for statement, parameters in caught]
        connection.rollback()
    return found


def claim(statements: Statements, bus: PersistentBus, connection: Connection) -> list[Any]:
    now = bus.engine.store.clock.now()
    until = now + timedelta(minutes=5)
    return statements.claim(connection, lane="a", owner="a", now=now, until=until, limit=BATCH)


def finish(statements: Statements, bus: PersistentBus, connection: Connection) -> None:
    """Claim, and finish what was claimed; on an empty table ids that are gone."""
    now = bus.engine.store.clock.now()
    claimed = claim(statements, bus, connection)
    raised = {row.record_id: (1, row.created_date) for row in claimed} or dict.fromkeys(
        range(1, 11), (1, now)
    )
    outcomes = [
        (record_id, count, created, State.PROCESSED.value, now, now, 0, None, None)
        for record_id, (count, created) in sorted(raised.items())
    ]
    moved = statements.finish(connection, owner="a", outcomes=outcomes)
    assert len(moved) == len(claimed)


def read(statements: Statements, bus: PersistentBus, connection: Connection) -> None:
    """What the loops ask besides: rows seen after a commit, the next date, the sweep, the parked and dead lanes."""
    now = bus.engine.store.clock.now()
    statements.owned(connection, ids=range(1, BATCH), owner="a")
    statements.next_due(connection, lane="a", now=now)
    statements.in_processing(connection, lane="b")
    statements.page(connection, lane="!parked", after=(now, 1), limit=BATCH)
    statements.locked_page(connection, lane="a", state="AVAILABLE", due_by=now, limit=10)
    statements.locked_page(connection, lane="a", state="AVAILABLE", due_after=now, limit=10)
    statements.locked_page(connection, lane="a", state="IN_PROCESSING", limit=10)


@pytest.mark.parametrize("operation", [claim, finish, read])
def test_statements_read_by_index_at_every_size_of_the_backlog(
    bus: PersistentBus,
    statements: Statements,
    database: Database,
    operation: Callable[[Statements, PersistentBus, Connection], object],
) -> None:
    for rows in ROWS:
        fill(database, rows)

        found = explained(database, lambda connection: operation(statements, bus, connection))

        for plan in found:
            assert plan.faults == (plan.harmless if rows == 0 else []), (rows, plan.statement)


def test_a_claim_takes_what_is_due_in_its_lane_and_no_more(
    bus: PersistentBus, statements: Statements, database: Database
) -> None:
    """So that the plans above are those of statements which find something."""
    fill(database, 1_000)
    with database.engine.connect() as connection:
        assert len(claim(statements, bus, connection)) == BATCH
        connection.rollback()


@on_postgresql
def test_a_session_that_prepared_its_statements_on_the_empty_table_plans_them_anew(
    bus: PersistentBus, statements: Statements, database: Database
) -> None:
    with database.engine.connect() as connection:
        for _ in range(15):  # psycopg prepares after 5 runs, the server may keep a plan after 5 more
            finish(statements, bus, connection)
        connection.commit()
        fill(database, 50_000)

        for _ in range(3):
            finish(statements, bus, connection)

        used = connection.exec_driver_sql(
            "SELECT count(*), sum(generic_plans) FROM pg_prepared_statements WHERE statement LIKE '%%bus_events%%'"
        ).one()
        scans = connection.exec_driver_sql(
            "SELECT seq_scan FROM pg_stat_xact_user_tables WHERE relname = 'bus_events'"
        ).scalar_one()
        connection.rollback()
    prepared, generic = used
    assert prepared >= 2
    assert generic == 0
    assert scans == 0
