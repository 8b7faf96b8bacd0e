"""The schema of a database: create it, bring it up to date, check it, print it as DDL.

Migrations (Alembic, in `sql/migrations`) are package data. Two processes that start together on an empty database
take turns. Tables for further names are added at any time by `create`.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import URL, Connection, Select, column, false, inspect, literal_column, select, table

from sql.database import Database
from sql.dialects import DRIVERS
from sql.tables import ENTRY_COLUMNS, metadata_for

VERSION_TABLE = "stickybus_schema"
DEFAULT_TABLES = ("bus_events", "notifications")

_upgrading = threading.Lock()
"""Alembic keeps what it works on in globals of its modules: one upgrade at a time in a process."""


class Fit(StrEnum):
    """How a database's schema stands to this version of the library."""

    CURRENT = "current"
    MISSING = "missing"
    TOO_OLD = "too old"
    NEWER = "newer, and compatible"
    TOO_NEW = "too new"

    @property
    def works(self) -> bool:
        """Whether this version of the library can work with the schema."""
        return self in {Fit.CURRENT, Fit.NEWER}


@dataclass(frozen=True)
class SchemaReport:
    """What `check` found: `found` and `expected` are revisions, `missing_tables` names that don't exist."""

    fit: Fit
    found: str | None
    expected: str
    missing_tables: tuple[str, ...] = ()


def create(url: str | URL, *, tables: Sequence[str] = DEFAULT_TABLES) -> SchemaReport:
    """Create what is missing of the schema for the main tables `tables`, and return the report of before.

    Also upgrades an older schema. Nothing is changed when the schema is newer than this version's.
    """
    database = Database(url)
    try:
        return ensure(database, tables)
    finally:
        database.close()


def ensure(database: Database, tables: Sequence[str]) -> SchemaReport:
    """Do what `create` does, on a database that is open already."""
    with (
        # On a connection of its own: a lock given back before the commit lets the next one see no tables yet.
        database.engine.connect() as waiting,
        database.dialect.named_lock(waiting, VERSION_TABLE, wait=True),
        database.begin() as connection,
    ):
        waiting.commit()
        before = check(connection, tables)
        if before.fit in {Fit.MISSING, Fit.TOO_OLD}:
            # An upgrade changes all that are there; `create_all` adds the others as they are at its end.
            config = _config(tables if before.fit is Fit.MISSING else main_tables(connection))
            config.attributes["connection"] = connection
            with _upgrading:
                command.upgrade(config, "head")
        if before.fit not in {Fit.NEWER, Fit.TOO_NEW}:  # a table made by this version would lack what is new
            metadata_for(*tables).create_all(connection)
    return before


def check(connection: Connection, tables: Sequence[str] = DEFAULT_TABLES) -> SchemaReport:
    """Compare the database with this version; changes nothing."""
    scripts = ScriptDirectory.from_config(_config(tables))
    expected = scripts.get_current_head() or ""
    context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
    found = context.get_current_revision()
    if found is None:
        return SchemaReport(Fit.MISSING, None, expected, tuple(metadata_for(*tables).tables))
    if found != expected and found in {script.revision for script in scripts.walk_revisions()}:
        return SchemaReport(Fit.TOO_OLD, found, expected)
    newer = found != expected
    if newer and not (found.isdecimal() and found > expected and _works_since(connection) <= expected):
        return SchemaReport(Fit.TOO_NEW, found, expected)
    present = set(inspect(connection).get_table_names())
    missing = tuple(name for name in metadata_for(*tables).tables if name not in present)
    if newer:
        return SchemaReport(Fit.TOO_NEW if missing else Fit.NEWER, found, expected, missing)
    return SchemaReport(Fit.MISSING if missing else Fit.CURRENT, found, expected, missing)


def _works_since(connection: Connection) -> str:
    """The oldest revision whose code can work with the schema."""
    return str(
        connection.execute(select(column("works_since")).select_from(table(VERSION_TABLE))).scalar_one()
    )


def main_tables(connection: Connection) -> tuple[str, ...]:
    """The names of all main tables that are there, each with a history of its own."""
    present = set(inspect(connection).get_table_names())
    paired = sorted(name for name in present if f"{name}_history" in present)
    # An application's own tables may be named like a pair.
    return tuple(name for name in paired if set(ENTRY_COLUMNS) <= _columns(connection, name))


def _columns(connection: Connection, table_name: str) -> set[str]:
    # PostgreSQL compiles SQLAlchemy's reflection of columns for half a second; no row answers at once.
    nothing: Select[Any] = select(literal_column("*")).select_from(table(table_name)).where(false())
    return set(connection.execute(nothing).keys())


def ddl(dialect_name: str, tables: Sequence[str] = DEFAULT_TABLES) -> str:
    """The whole schema as SQL text for a DBA. `dialect_name`: sqlite, postgresql, mysql or mariadb."""
    if dialect_name not in DRIVERS:
        raise ValueError(f"{dialect_name!r} is no dialect; use one of {', '.join(DRIVERS)}")
    config = _config(tables)
    output = io.StringIO()
    config.attributes.update(dialect_name=dialect_name, output=output)
    with _upgrading:
        command.upgrade(config, "head", sql=True)
    return output.getvalue()


def _config(tables: Sequence[str]) -> Config:
    config = Config()
    config.set_main_option("script_location", "sql:migrations")
    config.attributes.update(version_table=VERSION_TABLE, tables=tuple(tables))
    return config
