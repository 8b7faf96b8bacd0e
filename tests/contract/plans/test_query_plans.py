"""Each database runs the engine's statements by index, at a flat cost up to a million rows.

The statements are those that the engine sends, caught on their way and explained in the session
that sent them. The session is one that ran them all, and so prepared them, while the tables were
empty.
"""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from sqlalchemy import Engine

from bus.persistent import PersistentBus
from queue_core.model.lanes import ANY_NODE, PARKED, SUSPECT
from sql.database import Database
from sql.statements.entries import Statements
from tests import requirements as needs
from tests.contract.conftest import MakeBus
from tests.contract.harness import database_of, engine_of
from tests.contract.plans.operations import OPERATIONS
from tests.contract.plans.session import Session
from tests.contract.plans.tables import BATCH, NODE, SIZES, SNAPSHOT, TABLES, analyse, fill


@pytest.fixture
def bus(make_bus: MakeBus) -> PersistentBus:
    """A bus whose sessions may be silent while the tables are filled.

    MySQL ends sessions that are silent for too long.
    """
    return make_bus(statement_timeout_seconds=300.0)


@pytest.fixture
def statements(bus: PersistentBus) -> Statements:
    return engine_of(bus).store.statements


@pytest.fixture
def database(bus: PersistentBus) -> Database:
    """The engine's connections to tables that were vacuumed and analysed while they were empty.

    The tables of a drained queue are.
    """
    database = database_of(bus)
    if database.dialect.name == "postgresql":
        with database.engine.begin() as connection:
            for table in TABLES:
                # Autovacuum would cure the statistics some time later, in production as here.
                connection.exec_driver_sql(f"ALTER TABLE {table} SET (autovacuum_enabled = false)")
                # To be filled faster.
                connection.exec_driver_sql(f"ALTER TABLE {table} SET UNLOGGED")
    analyse(database.engine)
    return database


@pytest.mark.timeout(300)
@pytest.mark.slow
def test_every_statement_reads_by_index_and_with_a_million_rows_no_more_than_with_a_thousand(
    statements: Statements, database: Database, engine: Engine
) -> None:
    costs = dict[tuple[str, int], int]()
    faults = list[str]()
    with database.engine.connect() as connection:
        session = Session(database, statements, connection)
        for operation in OPERATIONS:
            session.prepare(operation)
        for size in SIZES:
            fill(engine, size)
            for operation in OPERATIONS:
                found, costs[operation.name, size] = session.run(operation, size)
                faults += found

        if database.dialect.name == "postgresql":
            prepared, generic = connection.exec_driver_sql(
                "SELECT count(*), sum(generic_plans) FROM pg_prepared_statements "
                "WHERE statement LIKE '%%bus_events%%' AND parameter_types <> '{}'"
            ).one()
            assert prepared >= len(OPERATIONS)
            assert generic == 0
    assert not faults, "\n\n".join(faults)
    _, small, large = SIZES
    grown = {
        operation.name: (costs[operation.name, small], costs[operation.name, large])
        for operation in OPERATIONS
        if costs[operation.name, large] > 2 * costs[operation.name, small] + BATCH
    }
    assert grown == {}


@pytest.mark.timeout(300)
def test_every_statement_reads_by_index_in_tables_drained_under_a_snapshot_of_another_session(
    statements: Statements, database: Database, engine: Engine
) -> None:
    faults = list[str]()
    with engine.connect() as holder, database.engine.connect() as connection:
        session = Session(database, statements, connection)
        fill(engine, SIZES[1])
        holder.exec_driver_sql(SNAPSHOT[engine.dialect.name])
        holder.exec_driver_sql("SELECT count(*) FROM bus_events")
        for table in TABLES:
            with engine.begin() as drain:
                drain.exec_driver_sql(f"DELETE FROM {table}")
        # What is gone still fills pages, and the database knows that none of it is there.
        analyse(engine)
        for size in SIZES[:2]:
            fill(engine, size)
            for operation in OPERATIONS:
                found, _cost = session.run(operation, size)
                faults += found
    assert not faults, "\n\n".join(faults)


@needs.many_writers
def test_what_names_entries_by_id_waits_for_no_other_entry_that_somebody_has_locked(
    make_bus: MakeBus, engine: Engine
) -> None:
    """Although the server takes the table for an empty one."""
    bus = make_bus(statement_timeout_seconds=15.0)
    statements, connecting = engine_of(bus).store.statements, database_of(bus).engine
    analyse(connecting)
    ids = [bus.post({"number": number}, event_name="Ping") for number in range(20)]
    for _ in range(2):
        with engine.connect() as connection:
            connection.exec_driver_sql("DELETE FROM bus_events")
            connection.rollback()  # for MySQL's count they are gone
    removed, kept = ids[::2], ids[1::2]
    ended = {"processing_state": "REMOVED", "finished_date": datetime(2025, 1, 1, tzinfo=UTC)}
    lanes = {"from_lane": ANY_NODE, "to_lane": PARKED, "suspect_lane": SUSPECT}
    claims = [(record_id, 1) for record_id in kept]
    with engine.begin() as other, connecting.connect() as connection:
        other.exec_driver_sql("INSERT INTO bus_events (class_name) VALUES ('Ping')")
        assert statements.lock_available(connection, ids=removed) == removed
        assert statements.to_history(connection, ids=removed, values=ended) == len(removed)
        assert statements.change_lane(connection, ids=kept, **lanes) == len(kept)
        assert not statements.release(
            connection, owner=NODE, lane=ANY_NODE, suspect_lane=SUSPECT, claims=claims
        )
