"""Opening a database: connecting to it, and seeing that its tables fit this version."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from sqlalchemy import URL, make_url
from sqlalchemy import Engine as SqlalchemyEngine
from sqlalchemy.exc import ArgumentError, DBAPIError

from queue_core.errors import (
    ConfigurationError,
    DatabaseUnreachableError,
    ForkedError,
    SchemaMissingError,
    SchemaTooNewError,
    SchemaTooOldError,
)
from queue_core.model.config import QueueConfig
from queue_core.model.names import table_fault
from queue_core.runtime.arguments import not_allowed, of_kind
from queue_core.runtime.awaitable import off_the_loop
from queue_core.storage.unreachable import unreachable
from sql import schema
from sql.database import Database
from sql.errors import InheritedFileError, MissingDriverError, UnsupportedDatabaseError
from sql.names import DEFAULT_TABLES


def open_database(
    target: str | URL | SqlalchemyEngine,
    *,
    statement_timeout_seconds: float = 30.0,
    application_name: str = "stickybus",
) -> Database:
    """Our connections to a database.

    Raises ConfigurationError, and DatabaseUnreachableError if it does not answer.
    """
    of_kind(target, str, URL, SqlalchemyEngine, key="database")
    try:
        database = Database(
            _parsed(target) if isinstance(target, str) else target,
            statement_timeout_seconds=statement_timeout_seconds,
            application_name=application_name,
            blocking=off_the_loop,
        )
    except UnsupportedDatabaseError as error:
        raise ConfigurationError(f"database: {error}", key="database") from error
    except InheritedFileError as error:
        raise ForkedError(str(error), started_pid=os.getppid()) from error
    except MissingDriverError as error:
        raise ConfigurationError(str(error), key="database") from error
    except DBAPIError as error:
        raise unreachable(
            target.url if isinstance(target, SqlalchemyEngine) else make_url(target), error
        ) from error
    try:
        with database.read():
            return database
    except DBAPIError as error:
        database.close()
        raise unreachable(database.url, error) from error


def open_existing(
    target: str | URL | SqlalchemyEngine,
    *,
    statement_timeout_seconds: float = 30.0,
    application_name: str = "stickybus",
) -> Database:
    """As `open_database`; a missing SQLite file is unreachable, since opening would make it."""
    of_kind(target, str, URL, SqlalchemyEngine, key="database")
    path = _missing_file(target)
    if path is not None:
        raise DatabaseUnreachableError(
            f"there is no SQLite database {path}. Create it: stickybus schema create"
        )
    return open_database(
        target,
        statement_timeout_seconds=statement_timeout_seconds,
        application_name=application_name,
    )


def _parsed(url: str) -> URL:
    try:
        return make_url(url)
    except (ArgumentError, ValueError):
        # Without the parser's words, which may have a part of the password.
        raise ConfigurationError(
            "database: it is no SQLAlchemy URL. One looks like sqlite:///events.db or "
            "postgresql://user@host/name. Nothing was connected or written.",
            key="database",
        ) from None


def _missing_file(target: str | URL | SqlalchemyEngine) -> str | None:
    try:
        url = target.url if isinstance(target, SqlalchemyEngine) else make_url(target)
    except (ArgumentError, ValueError):
        return None  # opening tells the fault
    path = url.database if url.get_backend_name() == "sqlite" else None
    if not path or path == ":memory:" or path.startswith("file:") or Path(path).exists():
        return None
    return path


def open_tables(target: str | URL | SqlalchemyEngine, config: QueueConfig) -> Database:
    """As `open_checked`, by a configuration."""
    return open_checked(
        target,
        (config.table,),
        auto_migrate=config.auto_migrate,
        statement_timeout_seconds=config.node.statement_timeout_seconds,
        application_name=config.application_name,
    )


def open_checked(
    target: str | URL | SqlalchemyEngine,
    tables: Sequence[str],
    *,
    auto_migrate: bool | None = None,
    statement_timeout_seconds: float = 30.0,
    application_name: str = "stickybus",
) -> Database:
    """As `open_database`, with these main tables.

    Tables that are missing or old are migrated if `auto_migrate` is true. If it is None, SQLite
    gets those that are missing. Raises a SchemaError if they, or those that a database has once,
    don't fit then.
    """
    database = open_database(
        target,
        statement_timeout_seconds=statement_timeout_seconds,
        application_name=application_name,
    )
    try:
        _fit_schema(target, database, tables, auto_migrate=auto_migrate)
    except BaseException:
        database.close()
        raise
    return database


def _fit_schema(
    target: str | URL | SqlalchemyEngine,
    database: Database,
    tables: Sequence[str],
    *,
    auto_migrate: bool | None,
) -> None:
    with database.read() as connection:
        report = schema.check(connection, tables)
    makes_tables = database.dialect.capabilities.makes_tables
    if auto_migrate is not None:
        makes_tables = auto_migrate
    if report.fit is schema.Fit.MISSING and makes_tables:
        schema.ensure(database, tables)
    elif report.fit is schema.Fit.TOO_OLD and auto_migrate:
        create_schema(target, tables=tables)
    else:
        refuse_misfit(database, report)


def refuse_misfit(database: Database, report: schema.SchemaReport) -> None:
    """Raise the SchemaError of a schema that does not work with this version."""
    facts = {"found": report.found, "expected": report.expected}
    where = database.url.render_as_string(hide_password=True)
    match report.fit:
        case schema.Fit.MISSING:
            missing = ", ".join(report.missing_tables)
            lacks = "has no tables of" if report.found is None else f"lacks the tables {missing} of"
            raise SchemaMissingError(
                f"{where} {lacks} Stickybus. Run: stickybus schema create", **facts
            )
        case schema.Fit.TOO_OLD:
            raise SchemaTooOldError(
                f"{where} has schema {report.found}, this version needs {report.expected}. Run: "
                "stickybus schema upgrade",
                **facts,
            )
        case schema.Fit.TOO_NEW:
            raise SchemaTooNewError(
                f"{where} has schema {report.found}, which this version (schema {report.expected}) "
                f"does not know{_lacking(report)}. Install the newer stickybus that upgraded it.",
                **facts,
            )
        case schema.Fit.CURRENT | schema.Fit.NEWER:
            return


def _lacking(report: schema.SchemaReport) -> str:
    """Only tables of the newer version fit to those that are there."""
    return (
        f", and lacks the tables {', '.join(report.missing_tables)}"
        if report.missing_tables
        else ""
    )


def create_schema(
    url: str | URL | SqlalchemyEngine, *, tables: Iterable[str] = DEFAULT_TABLES
) -> schema.SchemaReport:
    """Create the tables that are missing, and upgrade an older schema.

    A schema that is newer than this version's is not changed.

    Args:
        url: A URL, as a text or SQLAlchemy's, or an Engine, whose URL and way to connect are taken.
        tables: Names of main tables. Default: `bus_events` and `notifications`.

    Returns:
        A report on the schema before.

    Raises:
        ConfigurationError: An argument is not allowed.
        DatabaseUnreachableError: The database does not answer.
        sqlalchemy.exc.SQLAlchemyError: The driver's error for anything else.

    Example:
        >>> stickybus.create_schema("postgresql://shop@db/shop", tables=["orders"])
    """
    if isinstance(tables, str) or not isinstance(tables, Iterable):
        raise not_allowed("tables", tables, "a collection of names")
    names = list(tables)
    for name in names:
        fault = table_fault(name)
        if fault:
            raise not_allowed("tables", name, fault)
    opened = open_database(url, statement_timeout_seconds=schema.STEP_SECONDS)
    try:
        return schema.ensure(opened, names)
    finally:
        opened.close()
