"""Rows that a database refuses: those in which a column has a value."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Engine

_TRIGGERS = {
    "sqlite": (
        [
            """CREATE TRIGGER refusing BEFORE INSERT ON {table}
            WHEN NEW.{column} = '{value}' BEGIN SELECT RAISE(ABORT, 'refused connection'); END"""
        ],
        ["DROP TRIGGER refusing"],
    ),
    "postgresql": (
        [
            """CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
            'BEGIN RAISE EXCEPTION ''refused connection''; END'""",
            """CREATE TRIGGER refusing BEFORE INSERT ON {table} FOR EACH ROW
            WHEN (NEW.{column} = '{value}') EXECUTE FUNCTION refuse()""",
        ],
        ["DROP TRIGGER refusing ON {table}", "DROP FUNCTION refuse()"],
    ),
    "mysql": (
        [
            """CREATE TRIGGER refusing BEFORE INSERT ON {table} FOR EACH ROW
            IF NEW.{column} = '{value}' THEN
            SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'refused connection'; END IF"""
        ],
        ["DROP TRIGGER refusing"],
    ),
}
"""What lets a database refuse rows, and allow them again.

What it says sounds like a database that can't be reached, and isn't.
"""


@contextmanager
def refusing(engine: Engine, table: str, column: str, value: str) -> Iterator[None]:
    """The database inserts no row of a table whose column has a value."""
    refuse, allow = _TRIGGERS.get(engine.dialect.name, _TRIGGERS["mysql"])
    names = {"table": table, "column": column, "value": value}
    with engine.begin() as connection:
        for statement in refuse:
            connection.exec_driver_sql(statement.format(**names))
    try:
        yield
    finally:
        with engine.begin() as connection:
            for statement in allow:
                connection.exec_driver_sql(statement.format(**names))
