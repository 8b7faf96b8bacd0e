"""The database and table of a command, and the ways to open them.

Only commands that write entries may create anything: a mistyped file name or table is an error, not
a new database.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from stickybus.cli.usage import UsageError

if TYPE_CHECKING:
    from sqlalchemy import URL

    from queue_core.engine import QueueEngine
    from queue_core.inspector import Inspector
    from queue_core.maintenance import Maintenance
    from queue_core.model.config import QueueConfig
    from sql.database import Database

Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        envvar="STICKYBUS_URL",
        help=(
            "SQLAlchemy URL of the database, such as sqlite:///events.db or "
            "postgresql://user@host/name."
        ),
        show_default=False,
    ),
]
APPLICATION = "stickybus-cli"
"""The name under which the database shows our connections."""
TableName = Annotated[
    str, typer.Option("--table", help="Main table of the bus or notification service.")
]
Json = Annotated[bool, typer.Option("--json", help="Write JSON to standard output, for programs.")]


def url_of(url: str | None) -> URL:
    """The URL given by option or environment.

    Raises a usage error if there is none, or none that can be read.
    """
    if not url:
        raise UsageError("no database: give --url, or set STICKYBUS_URL")
    from sqlalchemy import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        return make_url(url)
    except (ArgumentError, ValueError) as error:
        raise UsageError(
            "--url is no SQLAlchemy URL; one looks like sqlite:///events.db"
        ) from error


@contextmanager
def connected(
    url: str | None, *, may_create: bool = False, statement_timeout_seconds: float = 30.0
) -> Iterator[Database]:
    """Our connections to the database, closed at the end.

    Raises DatabaseUnreachableError or ConfigurationError.

    SQLite makes a file by opening it: unless `may_create`, one that is not there counts as
    unreachable.
    """
    from queue_core.opening import open_database, open_existing

    database = (open_database if may_create else open_existing)(
        url_of(url),
        statement_timeout_seconds=statement_timeout_seconds,
        application_name=APPLICATION,
    )
    try:
        yield database
    finally:
        database.close()


@contextmanager
def inspected(url: str | None, *, statement_timeout_seconds: float = 30.0) -> Iterator[Inspector]:
    """A look at the database. Raises as `connected`."""
    from queue_core.inspector import Inspector

    with connected(url, statement_timeout_seconds=statement_timeout_seconds) as database:
        yield Inspector(database)


@contextmanager
def opened(url: str | None, table: str) -> Iterator[QueueEngine]:
    """The engine of a table that exists, for changes.

    Raises SchemaMissingError, and as `connected`.
    """
    from queue_core.model.config import BusConfig

    with inspected(url) as inspector:
        inspector.check_table(table)
    with engine_of(url, BusConfig(table=table)) as engine:
        yield engine


@contextmanager
def maintained(url: str | None, table: str, queue_name: str | None = None) -> Iterator[Maintenance]:
    """Changes by hand to one queue of a table that exists, or to all (None). Raises as `opened`."""
    from queue_core.maintenance import Maintenance

    with opened(url, table) as engine:
        yield Maintenance(engine, queue_name)


@contextmanager
def engine_of(url: str | None, config: QueueConfig) -> Iterator[QueueEngine]:
    """An engine that posts and changes but runs nothing; SQLite gets its tables at once."""
    from bus.subscriptions import Subscriptions
    from queue_core.engine import QueueEngine
    from queue_core.model.event_types import EventTypes

    types = EventTypes()
    engine = QueueEngine(url_of(url), config, Subscriptions("", types, shared=True), types)
    try:
        yield engine
    finally:
        engine.close()
