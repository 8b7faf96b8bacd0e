"""`stickybus schema`: the tables."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import (
    BarColumn,
    Progress,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)

from queue_core.errors import SchemaMissingError, SchemaTooNewError
from sql.names import DEFAULT_TABLES, DIALECTS
from stickybus.cli.output import errors, say, write_json
from stickybus.cli.target import Json, Url, connected, url_of
from stickybus.cli.usage import UsageError

if TYPE_CHECKING:
    from sql import schema
    from sql.database import Database

app = typer.Typer(no_args_is_help=True, help="Create, upgrade, check and show the tables.")

MISFIT = 3
INDEX_WATCH_SECONDS = 0.5
"""The pause between two looks at how far an index is."""

Tables = Annotated[
    list[str] | None,
    typer.Option(
        "--table",
        help=(
            "Main table of a bus or service; may be repeated. Default: "
            f"{' and '.join(DEFAULT_TABLES)}."
        ),
        show_default=False,
    ),
]


def _names(tables: list[str] | None) -> tuple[str, ...]:
    from queue_core.model.config import BusConfig

    for table in tables or ():
        BusConfig(table=table)  # raises for a name that no bus could have
    return tuple(tables or DEFAULT_TABLES)


def _refuse_newer(database: Database, report: schema.SchemaReport) -> None:
    from sql import schema

    if report.fit is schema.Fit.TOO_NEW:
        raise SchemaTooNewError(
            f"{database.url.render_as_string()} has schema {report.found}, which this version "
            f"(schema {report.expected}) does not know. Nothing was changed. Install the newer "
            "stickybus that upgraded it.",
            found=report.found,
            expected=report.expected,
        )


def _tell(
    database: Database, report: schema.SchemaReport, done: str, *, as_json: bool, **facts: Any
) -> None:
    if as_json:
        write_json({"database": database.url.render_as_string(), **asdict(report), **facts})
    else:
        say(f"{database.url.render_as_string()}: {done}")


@app.command()
def create(*, url: Url = None, table: Tables = None, as_json: Json = False) -> None:
    """Create the tables that are missing; an older schema is upgraded as well.

    Examples:
      stickybus schema create --url sqlite:///events.db

      stickybus schema create --table orders_events
    """
    from sql import schema

    names = _names(table)
    with (
        connected(url, may_create=True, statement_timeout_seconds=schema.STEP_SECONDS) as database,
        _watched(database) as progress,
    ):
        before = schema.ensure(database, names, progress=progress)
        _refuse_newer(database, before)
        match before.fit:
            case schema.Fit.CURRENT | schema.Fit.NEWER:
                done = _nothing_to_do(before)
            case schema.Fit.TOO_OLD:
                done = f"upgraded from {before.found} to {before.expected}"
            case _:
                done = f"created {', '.join(before.missing_tables)} (schema {before.expected})"
        _tell(database, before, done, as_json=as_json)


@app.command()
def upgrade(*, url: Url = None, as_json: Json = False) -> None:
    """Bring all queue tables of the database to this version's schema.

    Processes of the version before work on meanwhile.

    Indices of PostgreSQL are built beside the traffic. An upgrade that was cut off goes on when it
    is run again.

    Example:
      stickybus schema upgrade --url postgresql://user@host/name
    """
    from sql import schema

    with (
        connected(url, statement_timeout_seconds=schema.STEP_SECONDS) as database,
        _watched(database) as progress,
    ):
        tables = database.fetch(schema.main_tables)
        before = database.fetch(lambda connection: schema.check(connection, tables))
        if before.found is None:
            raise SchemaMissingError(
                f"{database.url.render_as_string()} has no schema to upgrade. Run: stickybus "
                "schema create"
            )
        _refuse_newer(database, before)
        schema.ensure(database, tables, progress=progress)
        upgraded = f"upgraded from {before.found} to {before.expected}"
        _tell(
            database,
            before,
            _nothing_to_do(before) if before.fit.works else upgraded,
            as_json=as_json,
        )


@contextmanager
def _watched(database: Database) -> Iterator[schema.Progress]:
    """A bar for the steps of an upgrade, and one for an index, if its progress is known."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
    )
    ended = threading.Event()
    with Progress(
        *columns, console=errors(), disable=not sys.stderr.isatty(), transient=True
    ) as bars:
        steps = bars.add_task("schema", total=None)

        def watch_index() -> None:
            index: TaskID | None = None
            while not ended.wait(INDEX_WATCH_SECONDS):
                share = database.fetch(database.dialect.index_progress)
                if index is None and share is not None:
                    index = bars.add_task("index", total=1.0)
                if index is not None:
                    bars.update(index, completed=share or 0.0)

        def tell(step: str, done: int, total: int) -> None:
            bars.update(steps, description=step, completed=done, total=total)

        watcher = threading.Thread(target=watch_index, name="index-progress", daemon=True)
        if not bars.disable:
            watcher.start()
        try:
            yield tell
        finally:
            ended.set()
            if not bars.disable:
                watcher.join()


def _nothing_to_do(report: schema.SchemaReport) -> str:
    from sql import schema

    newer = f"the schema is newer ({report.found}) and works with this version ({report.expected})"
    current = f"the schema is current ({report.expected})"
    return f"nothing to do, {newer if report.fit is schema.Fit.NEWER else current}"


@app.command()
def check(*, url: Url = None, table: Tables = None, as_json: Json = False) -> None:
    """Compare the database's schema with this version's; changes nothing.

    Exit code 3 if it does not work with it.

    Example:
      stickybus schema check --json
    """
    from sql import schema

    names = _names(table)
    with connected(url) as database:
        report = database.fetch(lambda connection: schema.check(connection, names))
        advice = {
            schema.Fit.CURRENT: "",
            schema.Fit.NEWER: "",
            schema.Fit.MISSING: (
                f": {', '.join(report.missing_tables)}. Run: stickybus schema create"
            ),
            schema.Fit.TOO_OLD: ". Run: stickybus schema upgrade",
            schema.Fit.TOO_NEW: ". Install the newer stickybus that upgraded it",
        }[report.fit]
        found = f"schema {report.found or 'none'}, this version has {report.expected}"
        _tell(database, report, f"{report.fit.value} ({found}){advice}", as_json=as_json)
    if not report.fit.works:
        raise typer.Exit(MISFIT)


@app.command()
def show(
    *,
    dialect: Annotated[
        str | None,
        typer.Option(
            help=f"One of {', '.join(DIALECTS)}. Default: that of the URL.", show_default=False
        ),
    ] = None,
    table: Tables = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Print the schema as SQL, for a database administrator; connects to nothing.

    Examples:
      stickybus schema show --dialect postgresql

      stickybus schema show --dialect mariadb --table orders_events
    """
    from sql import schema

    if dialect is None and not url:
        raise UsageError(f"give --dialect ({', '.join(DIALECTS)}), or --url")
    name = dialect or url_of(url).get_backend_name()
    if name not in DIALECTS:
        raise UsageError(f"{name!r} is no dialect; use one of {', '.join(DIALECTS)}")
    ddl = schema.ddl(name, _names(table))
    if as_json:
        write_json({"dialect": name, "ddl": ddl})
    else:
        typer.echo(ddl)
