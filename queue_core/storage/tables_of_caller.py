"""Whether a caller's connection leads to the queue's own tables: rows written elsewhere would be read by nobody.

Statements name the schema that the tables were found in, so that a session's search path changes nothing.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable, MutableMapping
from typing import Any

from sqlalchemy import Connection, select
from sqlalchemy.exc import DBAPIError

from queue_core.errors import InvalidConnectionError
from sql.database import Database
from sql.sqlite.file import real_path
from sql.tables import queue_nodes

_SERVERS = "stickybus_servers"
"""In a connection's `info`, which lasts as long as the driver's connection: names of servers whose database it is to."""

_raw_servers: weakref.WeakKeyDictionary[Any, set[str | None]] = weakref.WeakKeyDictionary()
"""The same of raw connections."""


def foreign(given: str, own: str) -> InvalidConnectionError:
    """What to raise for a connection to `given`."""
    return InvalidConnectionError(
        f"the connection passed in is to {given}, this queue lives on {own}. Nothing was written; "
        "pass a connection to the queue's own database."
    )


def check_file(databases: Iterable[Any], database: Database) -> None:
    """Refuse an SQLite connection to another file; `databases` is what it lists."""
    found = next((path for _, name, path in databases if name == "main"), "")
    own = real_path(database.url)
    if os.path.realpath(found) != own:
        raise foreign(f"the file {found!r}", f"{own!r}")


def check_map(connection: Connection, schema: str | None) -> None:
    """Refuse a connection whose `schema_translate_map` would lead its statements to other tables than `schema`'s."""
    names: dict[str | None, str | None] = connection.get_execution_options().get("schema_translate_map") or {}
    if names.get(schema, schema) != schema:
        raise foreign(
            f"the schema {names[schema]!r} by its schema_translate_map", f"{schema or 'the default schema'!r}"
        )


def check_server(connection: Connection, database: Database, raw: Any = None) -> None:
    """Refuse a connection to another server that has a database of the same name.

    Asked once for each connection of the driver (`raw`, if it is not SQLAlchemy's).
    """
    seen: MutableMapping[Any, Any] = connection.info if raw is None else _raw_servers
    known: set[str | None] = seen.setdefault(_SERVERS if raw is None else raw, set())
    ours = database.server
    if ours in known:
        return
    theirs = database.dialect.server(connection)
    if None not in (ours, theirs) and theirs != ours and not _is_copy(connection, database):
        raise foreign(
            f"{database.url.database!r} on the server {theirs}",
            f"{database.url.database!r} on the server {ours}",
        )
    known.add(ours)


def _is_copy(connection: Connection, database: Database) -> bool:
    """Whether it is to the same database on another server of a cluster, or on the one that has taken over: by its nodes."""
    if not database.dialect.capabilities.copies_have_names:
        return False
    nodes = select(queue_nodes.c.name, queue_nodes.c.epoch)
    try:
        theirs = {tuple(row) for row in connection.execute(nodes)}
    except DBAPIError:  # it has no such table
        return False
    return not theirs.isdisjoint(tuple(row) for row in database.fetch(lambda own: own.execute(nodes).all()))


def database_of(driver: Any) -> str | None:
    """The database that a psycopg or PyMySQL connection was opened on."""
    if hasattr(driver, "info"):
        return str(driver.info.dbname)
    return driver.db.decode() if isinstance(driver.db, bytes) else driver.db
