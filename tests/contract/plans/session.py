"""A session that explains what it sends."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from sqlalchemy import Connection

from sql.database import Database
from sql.doctor.base import Step
from sql.registry import doctor_of
from sql.statements.entries import Statements
from tests.contract.plans.caught import Caught, catching
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
        with catching(self._connection) as caught, cost_of(self._connection) as cost:
            operation.work(tables)
        sent = [statement for statement in caught if "bus_events" in statement.text]
        assert sent or not size
        faults = [fault for one in sent for fault in self._explain(one, operation, size)]
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

    def _explain(self, statement: Caught, operation: Operation, size: int) -> Iterator[str]:
        for fault in statement.faults(self._connection, self._doctor, TABLES):
            if fault.step not in operation.right and not self._harmless(
                fault.step, statement.text, size
            ):
                yield (
                    f"{size} rows: {operation.name}: {fault.step} ({fault.detail}): "
                    f"{statement.text}"
                )

    def _harmless(self, step: Step, statement: str, size: int) -> bool:
        """Return whether it locks nothing, and walks an empty table or sorts a small one.

        Plans are made anew each time.
        """
        locks = self._connection.dialect.name != "postgresql" and (
            "FOR UPDATE" in statement or not statement.startswith("SELECT")
        )
        return not locks and (size == 0 if step is not Step.SORT else size < SIZES[-1])
