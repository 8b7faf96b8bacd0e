"""A session that explains what it sends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, event

from sql.database import Database
from sql.doctor.base import Step
from sql.registry import doctor_of
from sql.statements.entries import Statements
from tests.contract.plans.cost import cost_of
from tests.contract.plans.operations import Operation
from tests.contract.plans.statements import Tables
from tests.contract.plans.tables import BATCH, SIZES, TABLES


class Session:
    """One session that stays open while the tables grow."""

    def __init__(self, database: Database, statements: Statements, connection: Connection) -> None:
        self._statements = statements
        self._connection = connection
        self._doctor = doctor_of(database.dialect.name)
        self._caught: list[tuple[str, Any]] = []

    def prepare(self, operation: Operation) -> None:
        """Run an operation until psycopg prepares it (5 times) and its plan is kept (5 more)."""
        for _ in range(11):
            operation.work(self._tables())
            self._connection.commit()  # after a ROLLBACK psycopg prepares anew

    def run(self, operation: Operation, size: int) -> tuple[list[str], int]:
        """Run and explain an operation.

        Returns the faults of its plans, and its reads in the database's measure.
        """
        tables = self._tables()
        with self._catching(), cost_of(self._connection) as cost:
            operation.work(tables)
        assert self._caught or not size
        faults = [
            fault for caught in self._caught for fault in self._explain(*caught, operation, size)
        ]
        self._connection.commit()
        return faults, cost[0]

    def _tables(self) -> Tables:
        connection = self._connection
        ids, past_ids = (
            connection.exec_driver_sql(
                f"SELECT record_id FROM {table} ORDER BY record_id LIMIT {BATCH}"
            )
            .scalars()
            .all()
            for table in TABLES
        )
        return Tables(self._statements, connection, datetime(2026, 1, 1, tzinfo=UTC), ids, past_ids)

    @contextmanager
    def _catching(self) -> Iterator[None]:
        def catch(
            _c: object, _cursor: object, statement: str, parameters: Any, _x: object, many: object
        ) -> None:
            if "bus_events" in statement:
                self._caught.append((statement, parameters[0] if many else parameters))

        self._caught = []
        event.listen(self._connection, "before_cursor_execute", catch)
        try:
            yield
        finally:
            event.remove(self._connection, "before_cursor_execute", catch)

    def _explain(
        self, statement: str, parameters: Any, operation: Operation, size: int
    ) -> Iterator[str]:
        plan = (
            self._connection.exec_driver_sql(self._doctor.explain + statement, parameters)
            .mappings()
            .all()
        )
        for table in TABLES:
            for fault in self._doctor.faults([dict(row) for row in plan], table):
                if fault.step not in operation.right and not self._harmless(
                    fault.step, statement, size
                ):
                    yield (
                        f"{size} rows: {operation.name}: {fault.step} ({fault.detail}): {statement}"
                    )

    def _harmless(self, step: Step, statement: str, size: int) -> bool:
        """Return whether it locks nothing, and walks an empty table or sorts a small one.

        Plans are made anew each time.
        """
        locks = self._connection.dialect.name != "postgresql" and (
            "FOR UPDATE" in statement or not statement.startswith("SELECT")
        )
        return not locks and (size == 0 if step is not Step.SORT else size < SIZES[-1])
