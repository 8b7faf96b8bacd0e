"""The main tables of a database, found without the configuration of a bus or service."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from queue_core.errors import SchemaMissingError
from queue_core.model.config import BusConfig
from queue_core.model.event_types import EventTypes
from queue_core.model.known_codecs import Codecs
from queue_core.runtime.clock import SystemClock
from queue_core.runtime.shown import shown
from queue_core.storage.store import Store
from sql import schema
from sql.database import Database

T = TypeVar("T")


class Tables:
    """The main tables of one database, and the tables that they share."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._stores: dict[str, Store] = {}

    def names(self) -> tuple[str, ...]:
        """All main tables, in order."""
        return self._database.fetch(schema.main_tables)

    def named(self, table: str | None) -> tuple[str, ...]:
        """This table, or all (None). Raises SchemaMissingError if it is not there, or none is."""
        known, where = self.names(), self._database.url.render_as_string()
        if not known:
            raise SchemaMissingError(f"{where} lacks queue tables. Run: stickybus schema create")
        if table is not None and table not in known:
            raise SchemaMissingError(
                f"{where} lacks the table {shown(table)}. It has {', '.join(known)}; to add one, "
                "run: stickybus schema create --table NAME"
            )
        return known if table is None else (table,)

    def stores(self, table: str | None) -> list[Store]:
        """To read entries of this table, or of all (None). Raises as `named`."""
        return [self._store(one) for one in self.named(table)]

    def _store(self, table: str) -> Store:
        if table not in self._stores:
            types, config = EventTypes(), BusConfig(table=table)
            self._stores[table] = Store(self._database, config, SystemClock(), types, Codecs(types))
        return self._stores[table]

    def shared(self, read: Callable[[Connection], T]) -> T:
        """Read a table that all queues share. Raises SchemaMissingError if it is not there."""
        try:
            return self._database.fetch(read)
        except DBAPIError as error:
            if error.connection_invalidated:
                raise
            where = self._database.url.render_as_string()
            raise SchemaMissingError(
                f"{where} has no table of nodes. Run: stickybus schema create"
            ) from error
