"""The engine of one bus or service, on a database whose schema was checked."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import partial

from prometheus_client import CollectorRegistry
from sqlalchemy import URL, make_url
from sqlalchemy import Engine as SqlalchemyEngine
from sqlalchemy.exc import ArgumentError, DBAPIError

from queue_core.errors import (
    ConfigurationError,
    ForkedError,
    SchemaMissingError,
    SchemaTooNewError,
    SchemaTooOldError,
)
from queue_core.metrics import Metrics
from queue_core.model.codec import Codec, Codecs
from queue_core.model.config import QueueConfig, table_fault
from queue_core.model.entry import Entry
from queue_core.model.event_types import EventTypes
from queue_core.parts import Parts
from queue_core.running.subscriber import Router
from queue_core.runtime.arguments import function, not_allowed, of_kind
from queue_core.runtime.clock import Clock, SystemClock, read_clock
from queue_core.storage.depths import depths_of
from queue_core.storage.store import Store
from queue_core.storage.unreachable import unreachable
from sql import schema
from sql.database import Database
from sql.errors import InheritedFileError, MissingDriverError, UnsupportedDatabaseError


class QueueEngine:
    """Raises ConfigurationError, DatabaseUnreachableError, or a SchemaError."""

    def __init__(
        self,
        database: str | URL | SqlalchemyEngine,
        config: QueueConfig,
        router: Router,
        types: EventTypes,
        *,
        clock: Clock | None = None,
        metrics_registry: CollectorRegistry | None = None,
        codec: Codec | None = None,
    ) -> None:
        if clock is not None:
            of_kind(clock, Clock, key="clock")
        if metrics_registry is not None:
            of_kind(metrics_registry, CollectorRegistry, key="metrics_registry")
        self.config = config
        self.types = types
        self.codecs = Codecs(types, codec)
        self.database = open_tables(database, config)
        self.store = Store(
            self.database, config, clock or _clock_of(self.database), types, self.codecs
        )
        self.metrics = Metrics(config.table, metrics_registry)
        parts = Parts(self.store, router, self.metrics)
        self.lifecycle, self.poster = parts.lifecycle, parts.poster
        self.metrics.watch(
            self.lifecycle.reading, lambda: depths_of(self.store, router.describe()["queues"])
        )

    def on_failed(self, hook: Callable[[Entry, str], None]) -> Callable[[Entry, str], None]:
        """Call `hook(entry, last_error)` after an entry has ended FAILED; returns `hook`, to serve as a decorator."""
        function(hook, key="hook")
        self.lifecycle.failures.hooks.append(hook)
        return hook

    def close(self) -> None:
        """Stop if it runs, and close our connections.

        In a child process of a fork only its memory is let go.
        """
        if not self.store.forked:
            self.lifecycle.stop()
            self.lifecycle.hints.stop()
            self.metrics.close()
        self.database.close()


def _clock_of(database: Database) -> Clock:
    """A clock that shows the database's time from the first post on; beats keep it so."""
    clock = SystemClock()
    now = database.dialect.database_now
    reading = database.fetch(lambda connection: read_clock(partial(now, connection)))
    clock.follow(reading)
    return clock


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
            target,
            statement_timeout_seconds=statement_timeout_seconds,
            application_name=application_name,
        )
    except (UnsupportedDatabaseError, ArgumentError) as error:
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


def open_tables(target: str | URL | SqlalchemyEngine, config: QueueConfig) -> Database:
    """As `open_database`, by a configuration; also raises a SchemaError if its tables don't fit (SQLite: makes them)."""
    database = open_database(
        target,
        statement_timeout_seconds=config.node.statement_timeout_seconds,
        application_name=config.application_name,
    )
    try:
        _check_schema(database, config)
    except BaseException:
        database.close()
        raise
    return database


def _check_schema(database: Database, config: QueueConfig) -> None:
    tables = (config.table,)
    with database.read() as connection:
        report = schema.check(connection, tables)
    if report.fit is schema.Fit.MISSING and database.dialect.capabilities.makes_tables:
        schema.ensure(database, tables)
        return
    facts = {"found": report.found, "expected": report.expected}
    where = database.url.render_as_string(hide_password=True)
    match report.fit:
        case schema.Fit.MISSING:
            missing = ", ".join(report.missing_tables)
            raise SchemaMissingError(
                f"{where} lacks the tables {missing}. Run: stickybus schema create", **facts
            )
        case schema.Fit.TOO_OLD:
            raise SchemaTooOldError(
                f"{where} has schema {report.found}, this version needs {report.expected}. Run: stickybus schema upgrade",
                **facts,
            )
        case schema.Fit.TOO_NEW:
            raise SchemaTooNewError(
                f"{where} has schema {report.found}, which this version (schema {report.expected}) does not know"
                f"{_lacking(report)}. Install the newer stickybus that upgraded it.",
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
    url: str | URL | SqlalchemyEngine, *, tables: Iterable[str] = schema.DEFAULT_TABLES
) -> schema.SchemaReport:
    """Create what is missing of the schema for the main tables `tables`, and return the report of before.

    Also upgrades an older schema. Nothing is changed when the schema is newer than this version's.
    Raises ConfigurationError, DatabaseUnreachableError, or the driver's error through SQLAlchemy.
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
