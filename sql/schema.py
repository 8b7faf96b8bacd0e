"""The schema of a database: create it, bring it up to date, check it, print it as DDL.

Migrations (Alembic, in `sql/migrations`) are package data. Two processes that start together on an
empty database take turns. Tables for further names are added at any time by `create`.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, partial
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    URL,
    Connection,
    MetaData,
    Select,
    column,
    false,
    inspect,
    literal_column,
    select,
    table,
)

from sql.database import Database
from sql.families import ENTRIES, VERSION_TABLE, metadata_for, table_names
from sql.names import DEFAULT_TABLES
from sql.registry import BACKENDS
from sql.tables import ENTRY_COLUMNS
from sql.transient import UPGRADE_STEP

if TYPE_CHECKING:
    from alembic.config import Config
    from alembic.runtime.migration import MigrationInfo

STEP_SECONDS = 86_400.0
"""The time limit of one step of an upgrade.

To build an index of a large table takes longer than any other statement may.
"""
LOCK_SECONDS = 2.0
"""The longest that one try of a step waits for a lock.

Statements that come meanwhile wait behind it.
"""

_upgrading = threading.Lock()
"""Alembic works on globals of its modules: a process runs one upgrade at a time."""


class Fit(StrEnum):
    """The state of a database's schema beside this version of the library."""

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
    """The schema of a database, compared with this version's.

    Attributes:
        fit: Whether it works with this version.
        found: Its revision; None if there is none.
        expected: This version's revision.
        missing_tables: Names of tables that don't exist.
    """

    fit: Fit
    found: str | None
    expected: str
    missing_tables: tuple[str, ...] = ()


Progress = Callable[[str, int, int], None]
"""Called after each step of an upgrade with its name, the steps done, and all steps."""


def create(url: str | URL, *, tables: Sequence[str] = DEFAULT_TABLES) -> SchemaReport:
    """Create the missing part of the schema for the main tables `tables`.

    Returns the report of before.

    Also upgrades an older schema. Nothing is changed when the schema is newer than this version's.
    """
    database = Database(url, statement_timeout_seconds=STEP_SECONDS)
    try:
        return ensure(database, tables)
    finally:
        database.close()


def ensure(
    database: Database, tables: Sequence[str], *, progress: Progress = lambda *_: None
) -> SchemaReport:
    """Do the work of `create`, on a database that is open already.

    An upgrade beside traffic goes step by step; one that was cut off goes on when it is run again.
    Each step must fit into the database's statement time-out, so open it with `STEP_SECONDS`.
    """
    with (
        database.engine.connect() as connection,
        database.dialect.named_lock(connection, VERSION_TABLE, wait=True),
    ):
        connection.commit()
        with database.begin(connection):
            before = check(connection, tables)
            if before.fit is Fit.MISSING and before.found is None:
                _migrate(database, connection, tables)
        if before.fit is Fit.TOO_OLD:
            _upgrade(database, connection, progress)
        if before.fit not in {
            Fit.NEWER,
            Fit.TOO_NEW,
        }:  # a table made by this version would lack the newer columns
            with database.begin(connection):
                _create_missing(
                    connection,
                    metadata_for(*tables),
                    indices=database.dialect.capabilities.ddl_commits,
                )
        # A lock given back before this would let the next one see no tables yet.
    return before


def _create_missing(connection: Connection, metadata: MetaData, *, indices: bool) -> None:
    """Create the tables that are missing.

    With `indices`, their indices, too: a process that was killed may have left tables without them.
    """
    metadata.create_all(connection)
    for made in metadata.sorted_tables if indices else ():
        for index in made.indexes:
            index.create(connection, checkfirst=True)


def _migrate(
    database: Database, connection: Connection, tables: Sequence[str], **attributes: Any
) -> None:
    from alembic import command

    config = alembic_config(tables)
    attributes |= {
        "connection": connection,
        "ddl_commits": database.dialect.capabilities.ddl_commits,
    }
    config.attributes.update(attributes)
    with _upgrading:
        command.upgrade(config, "head")


def _upgrade(database: Database, connection: Connection, progress: Progress) -> None:
    """Change all main tables that are there.

    A statement that waits for a lock makes others wait: not for long, then once more.
    """
    from alembic.script import ScriptDirectory

    tables = database.fetch(main_tables)
    found = database.fetch(lambda reader: check(reader, tables)).found or ""
    scripts = ScriptDirectory.from_config(alembic_config(tables))
    steps = [script.revision for script in scripts.iterate_revisions("head", found)]

    def applied(*, step: MigrationInfo, **_rest: Any) -> None:
        done = len(steps) - steps.index(step.up_revision_id or "")
        progress(scripts.get_revision(step.up_revision_id or "").doc, done, len(steps))

    once = partial(_migrate, database, connection, tables, in_use=True, on_version_apply=applied)
    if database.dialect.capabilities.one_writer:
        with database.begin(connection):
            once()
        return
    with database.dialect.impatient(connection, LOCK_SECONDS):
        database.persist(partial(once, step_by_step=True), UPGRADE_STEP, connection.rollback)


def check(connection: Connection, tables: Sequence[str] = DEFAULT_TABLES) -> SchemaReport:
    """Compare the database with this version; changes nothing."""
    revisions = _revisions()
    expected = revisions[0]
    found = _found(connection)
    if found is None:
        return SchemaReport(Fit.MISSING, None, expected, table_names(*tables))
    if found != expected and found in revisions:
        return SchemaReport(Fit.TOO_OLD, found, expected)
    newer = found != expected
    if newer and not (
        found.isdecimal() and found > expected and _works_since(connection) <= expected
    ):
        return SchemaReport(Fit.TOO_NEW, found, expected)
    present = set(inspect(connection).get_table_names())
    missing = tuple(name for name in table_names(*tables) if name not in present)
    if newer:
        return SchemaReport(Fit.TOO_NEW if missing else Fit.NEWER, found, expected, missing)
    return SchemaReport(Fit.MISSING if missing else Fit.CURRENT, found, expected, missing)


@cache
def _revisions() -> tuple[str, ...]:
    """All revisions that this version knows, the newest first: their files begin with them.

    Alembic would tell as much, but takes 0.1 s to load, and most databases need no migration.
    """
    names = (file.name for file in files("sql.migrations.versions").iterdir())
    return tuple(sorted((name[:4] for name in names if name[:4].isdecimal()), reverse=True))


def _found(connection: Connection) -> str | None:
    """The revision of the database; None if it has none."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    revision: Select[Any] = select(column("version_num")).select_from(table(VERSION_TABLE))
    found: str | None = connection.execute(revision).scalar_one_or_none()
    return found


def _works_since(connection: Connection) -> str:
    """The oldest revision whose code can work with the schema."""
    return str(
        connection.execute(
            select(column("works_since")).select_from(table(VERSION_TABLE))
        ).scalar_one()
    )


def main_tables(connection: Connection) -> tuple[str, ...]:
    """The names of all main tables that are there, each with its history."""
    present = set(inspect(connection).get_table_names())
    paired = sorted(
        name for name in present if all(name + suffix in present for suffix in ENTRIES.suffixes)
    )
    # An application's own tables may be named like a pair.
    return tuple(name for name in paired if set(ENTRY_COLUMNS) <= _columns(connection, name))


def _columns(connection: Connection, table_name: str) -> set[str]:
    # PostgreSQL compiles SQLAlchemy's reflection of columns for half a second; no row answers at
    # once.
    nothing: Select[Any] = select(literal_column("*")).select_from(table(table_name)).where(false())
    return set(connection.execute(nothing).keys())


def ddl(dialect_name: str, tables: Sequence[str] = DEFAULT_TABLES) -> str:
    """The whole schema as SQL text for a DBA.

    `dialect_name`: sqlite, postgresql, mysql or mariadb.
    """
    if dialect_name not in BACKENDS:
        raise ValueError(f"{dialect_name!r} is no dialect; use one of {', '.join(BACKENDS)}")
    from alembic import command

    config = alembic_config(tables)
    output = io.StringIO()
    config.attributes.update(dialect_name=dialect_name, output=output)
    with _upgrading:
        command.upgrade(config, "head", sql=True)
    return output.getvalue()


def alembic_config(tables: Sequence[str]) -> Config:
    """The configuration of Alembic's run of the migrations, on the tables of these main tables."""
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", "sql:migrations")
    config.attributes.update(version_table=VERSION_TABLE, tables=tuple(tables))
    return config
