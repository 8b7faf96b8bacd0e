"""Statements on their way to the database, and the faults of their plans."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, event

from sql.database import Database
from sql.doctor.base import Doctor, Fault, Step
from sql.registry import doctor_of


@dataclass(frozen=True)
class Caught:
    """A statement with its parameters: the first ones if it is sent with many."""

    text: str
    parameters: Any

    def faults(
        self, connection: Connection, doctor: Doctor, tables: Iterable[str]
    ) -> Iterator[Fault]:
        """What its plan does wrong with these tables."""
        plan = connection.exec_driver_sql(doctor.explain + self.text, self.parameters)
        steps = [dict(row) for row in plan.mappings()]
        for table in tables:
            yield from doctor.faults(steps, table)


@contextmanager
def catching(connection: Connection) -> Iterator[list[Caught]]:
    """The statements that the block sends."""
    caught = list[Caught]()

    def catch(
        _c: object, _cursor: object, text: str, parameters: Any, _context: object, many: object
    ) -> None:
        caught.append(Caught(text, parameters[0] if many else parameters))

    event.listen(connection, "before_cursor_execute", catch)
    try:
        yield caught
    finally:
        event.remove(connection, "before_cursor_execute", catch)


def faults_of(
    database: Database, work: Callable[[Connection], object], tables: Sequence[str]
) -> tuple[int, list[str]]:
    """How many statements `work` sends, and what their plans do wrong with these tables.

    A sort is no fault: what is sorted was sought. What `work` writes is rolled back.
    """
    doctor = doctor_of(database.dialect.name)
    with database.engine.connect() as connection:
        with catching(connection) as caught:
            work(connection)
        faults = [
            f"{fault.step} ({fault.detail}): {one.text}"
            for one in caught
            for fault in one.faults(connection, doctor, tables)
            if fault.step is not Step.SORT
        ]
        connection.rollback()
    return len(caught), faults
