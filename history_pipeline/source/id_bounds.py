"""The bounds of the ids in the tables of a database."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import Connection, Table, func, select


def id_bounds(connection: Connection, table: Table) -> tuple[int, int]:
    """The lowest and the highest id; 1 and 0 if there is no row."""
    statement = select(func.min(table.c.record_id), func.max(table.c.record_id))
    lowest, highest = connection.execute(statement).one()
    return (1, 0) if lowest is None else (lowest, highest)


def last_id(connection: Connection, tables: Iterable[Table]) -> int:
    """The largest id that anybody can see; 0 if there is none."""
    return max(0, *(id_bounds(connection, table)[1] for table in tables))
