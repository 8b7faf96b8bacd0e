"""Whether a caller's connection leads to the queue's own tables.

Nobody would read rows that are written elsewhere.

Statements name the schema that the tables were found in, or their database. So a session's search
path or `USE` changes nothing.
"""

from __future__ import annotations

import weakref
from collections.abc import MutableMapping
from typing import Any

from sqlalchemy import Connection, select
from sqlalchemy.exc import DBAPIError

from queue_core.errors import InvalidConnectionError
from sql.database import Database
from sql.tables import queue_nodes

_SERVERS = "stickybus_servers"
"""In a connection's `info`: names of the servers whose database it is known to lead to.

It lasts as long as the driver's connection.
"""

_PLACES = "stickybus_places"
"""Likewise: names of the databases that it is known to lead to.

SQLite's answer takes a statement and two walks along a path, a quarter of a post's time.
"""

_raw_servers: weakref.WeakKeyDictionary[Any, set[str]] = weakref.WeakKeyDictionary()
"""The same of raw connections."""


def foreign(given: str, own: str) -> InvalidConnectionError:
    """The error to raise for a connection to `given`."""
    return InvalidConnectionError(
        f"the connection passed in is to {given}, this queue lives on {own}. Nothing was written; "
        "pass a connection to the queue's own database."
    )


def check_place(found: str | None, database: Database) -> None:
    """Refuse a connection to another file, or to a database of another name."""
    if found != database.place:
        raise foreign(f"{database.dialect.raw.place} {found!r}", f"{database.place!r}")


def check_place_once(connection: Connection, database: Database) -> None:
    """As `check_place`, asked once for each connection of the driver, whose place stays."""
    known: set[str | None] = connection.info.setdefault(_PLACES, set())
    if database.place not in known:
        check_place(database.dialect.raw.place_of_connection(connection), database)
        known.add(database.place)


def check_map(connection: Connection, schema: str | None) -> None:
    """Refuse a connection whose `schema_translate_map` leads to other tables than `schema`'s."""
    names: dict[str | None, str | None] = (
        connection.get_execution_options().get("schema_translate_map") or {}
    )
    if names.get(schema, schema) != schema:
        raise foreign(
            f"the schema {names[schema]!r} by its schema_translate_map",
            f"{schema or 'the default schema'!r}",
        )


def check_server(connection: Connection, database: Database, raw: Any = None) -> None:
    """Refuse a connection to another server that has a database of the same name.

    Asked once for each connection of the driver (`raw`, if it is not SQLAlchemy's).
    """
    ours = database.server
    if ours is None:  # it tells nothing
        return
    seen: MutableMapping[Any, Any] = connection.info if raw is None else _raw_servers
    known: set[str] = seen.setdefault(_SERVERS if raw is None else raw, set())
    if ours in known:
        return
    theirs = database.dialect.server(connection)
    if theirs not in (None, ours):
        _check_copy(connection, database, theirs)
    known.add(ours)


def _check_copy(connection: Connection, database: Database, theirs: str | None) -> None:
    """Refuse a connection that leads to no copy of the database.

    A copy is on the server that has taken over, where our own connections lead as well, or on
    another one of a cluster. That one has the same nodes.
    """
    own = database.fetch(database.dialect.server)
    if theirs == own:
        return
    place = database.place
    refused = foreign(f"{place!r} on the server {theirs}", f"{place!r} on the server {own}")
    if not database.dialect.capabilities.copies_have_names:
        raise refused
    nodes = select(queue_nodes.c.name, queue_nodes.c.epoch)
    try:
        found = {tuple(row) for row in connection.execute(nodes)}
    except DBAPIError:  # it has no such table
        raise refused from None
    ours = {tuple(row) for row in database.fetch(lambda inner: inner.execute(nodes).all())}
    if not found and not ours:
        refused = InvalidConnectionError(
            f"{refused} If both belong to one cluster, start a worker before you post: a copy is "
            "known by the rows of its nodes, and there are none yet."
        )
    if found.isdisjoint(ours):
        raise refused
