"""Which database and table a command is about, and how they are opened.

Only commands that write entries may create anything: a mistyped file name or table is an error, not a new database.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from queue_core.engine import QueueEngine, open_database
from queue_core.errors import DatabaseUnreachableError, SchemaMissingError
from queue_core.model.config import BusConfig, QueueConfig
from queue_core.model.event_types import EventTypes
from queue_core.running.subscriber import Subscriber
from sql import schema
from sql.database import Database
from stickybus.cli.usage import UsageError

Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        envvar="STICKYBUS_URL",
        help="SQLAlchemy URL of the database, such as sqlite:///events.db or postgresql://user@host/name.",
        show_default=False,
    ),
]
TableName = Annotated[str, typer.Option("--table", help="Main table of the bus or notification service.")]
Json = Annotated[bool, typer.Option("--json", help="Write JSON to standard output, for programs.")]


def url_of(url: str | None) -> URL:
    """The URL given by option or environment. Raises a usage error if there is none, or none that can be read."""
    if not url:
        raise UsageError("no database: give --url, or set STICKYBUS_URL")
    try:
        return make_url(url)
    except (ArgumentError, ValueError) as error:
        raise UsageError("--url is no SQLAlchemy URL; one looks like sqlite:///events.db") from error


@contextmanager
def connected(
    url: str | None, *, may_create: bool = False, statement_timeout_seconds: float = 30.0
) -> Iterator[Database]:
    """Our connections to the database, closed at the end. Raises DatabaseUnreachableError or ConfigurationError.

    SQLite makes a file by opening it: unless `may_create`, one that is not there counts as unreachable.
    """
    target = url_of(url)
    path = target.database
    missing = (
        target.get_backend_name() == "sqlite"
        and path
        and not path.startswith("file:")
        and not Path(path).exists()
    )
    if missing and not may_create:
        raise DatabaseUnreachableError(
            f"there is no SQLite database {path}. Create it: stickybus schema create"
        )
    database = open_database(
        target,
        statement_timeout_seconds=statement_timeout_seconds,
        application_name="stickybus-cli",
    )
    try:
        yield database
    finally:
        database.close()


@contextmanager
def opened(url: str | None, table: str) -> Iterator[QueueEngine]:
    """The engine of a table that exists, without handlers. Raises SchemaMissingError, and what `connected` does."""
    with connected(url) as database:
        known = database.fetch(schema.main_tables)
    if table not in known:
        there = f"it has {', '.join(known)}; name one by --table" if known else "run: stickybus schema create"
        raise SchemaMissingError(f"{database.url.render_as_string()} has no queue table {table!r}: {there}.")
    with engine_of(url, BusConfig(table=table)) as engine:
        yield engine


@contextmanager
def engine_of(url: str | None, config: QueueConfig) -> Iterator[QueueEngine]:
    """An engine that posts, reads and changes but runs nothing; made as the library makes one, tables on SQLite too."""
    engine = QueueEngine(url_of(url), config, _NoHandlers(), EventTypes())
    try:
        yield engine
    finally:
        engine.close()


class _NoHandlers:
    """A router (`queue_core.running.subscriber.Router`) of a process that runs no entries."""

    def subscribers(self, queue_name: str, class_name: str) -> Sequence[Subscriber] | None:
        del queue_name, class_name
        return None

    def describe(self) -> dict[str, Any]:
        return {"queues": [], "types": []}
