"""The tables of one bus or service: reads, inserts, and transactions, a caller's or our own.

Transactions are in `transactions`, its base; claims and outcomes in `moves`. When and how much is
claimed: `queue_core.claiming`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from sqlalchemy import Connection

from queue_core.links.circuits import Circuits
from queue_core.links.dependencies import Dependencies
from queue_core.links.groups import GroupLink
from queue_core.links.keys import KeyLink
from queue_core.links.limit_keys import LimitKeyLink
from queue_core.links.link import Link
from queue_core.links.links import Links
from queue_core.links.ordering import Ordering
from queue_core.links.serving_nodes import ServingNodes
from queue_core.model.captured_context import NO_CONTEXT, CapturedContext
from queue_core.model.config import QueueConfig
from queue_core.model.entry import Entry, from_row
from queue_core.model.event_types import EventTypes
from queue_core.model.known_codecs import Codecs
from queue_core.model.lanes import ANY_NODE, PARKED, SUSPECT, Lane
from queue_core.runtime.clock import Clock
from queue_core.storage.filter import Where
from queue_core.storage.reserved_ids import ReservedIds
from queue_core.storage.rows import Rows
from queue_core.storage.transactions import Transactions
from sql.database import Database
from sql.families import CIRCUITS, ENTRIES, GROUPS, KEYS, NODES, ORDER, WAITS
from sql.tables import entry_tables
from sql.watching import Hint

T = TypeVar("T")

FIRST_DATE = datetime.min.replace(tzinfo=UTC)
"""No entry is due earlier."""
CLAIMS_AHEAD = timedelta(hours=1)
"""Claimed entries are due by now. A clock may have been set back since, but not by more."""


class Store(Transactions):
    """One pair of tables, as the engine sees it."""

    def __init__(
        self,
        database: Database,
        config: QueueConfig,
        clock: Clock,
        types: EventTypes,
        codecs: Codecs,
        *,
        context: CapturedContext = NO_CONTEXT,
    ) -> None:
        self.config = config
        self.types = types
        self.codecs = codecs
        dialect = database.dialect
        schema = database.fetch(lambda connection: dialect.schema_of(connection, config.table))
        super().__init__(
            database,
            clock,
            table=config.table,
            schema=schema,
            clock_seconds=config.node.lease_seconds,
        )
        packet_bytes = database.fetch(dialect.largest_statement)
        self.context = context
        self.rows = Rows(config, clock, types, codecs, context=context, packet_bytes=packet_bytes)
        statements = dialect.statements_for(ENTRIES)
        self.statements = statements(entry_tables(config.table, schema=schema))
        nodes = ServingNodes(dialect.statements_for(NODES)(), config, clock)
        ordered = dialect.statements_for(ORDER)
        self.ordering = Ordering(ordered(schema), self.statements, clock, nodes=nodes)
        self.keys = KeyLink(
            dialect.statements_for(KEYS)(schema), self.statements, clock, config.table
        )
        self.groups = GroupLink(dialect.statements_for(GROUPS)(schema), self.statements, clock)
        circuits = dialect.statements_for(CIRCUITS)(schema)
        self.circuits = Circuits(circuits, self.statements, clock)
        others: list[Link] = [self.keys, self.ordering, self.groups, self.circuits]
        waits = dialect.statements_for(WAITS)(schema)
        self.dependencies = Dependencies(
            waits,
            self.statements,
            clock,
            ordering=self.ordering,
            nodes=nodes,
            others=Links(others),
        )
        self.limit_keys = LimitKeyLink(self.statements, clock)
        # Groups last: others that end members wait for them.
        self.links = Links(
            [
                self.keys,
                self.ordering,
                self.circuits,
                self.dependencies,
                self.limit_keys,
                self.groups,
            ]
        )
        self.reserved_ids = ReservedIds(database, self.statements)

    # -- post -------------------------------------------------------------------------------------

    def insert(
        self, connection: Connection, rows: Sequence[Mapping[str, Any]], hint: Hint | None = None
    ) -> list[int]:
        """Insert rows that `Rows` has made. Returns their ids, in the order of `rows`.

        `hint`: the message of the commit to others, where the database can.
        """
        if not rows:
            return []
        if hint is not None:
            return self.statements.insert_and_tell(connection, rows, hint)
        return self.statements.insert(connection, rows)

    # -- the engine's reads -----------------------------------------------------------------------

    @property
    def claims_due_by(self) -> datetime:
        """No entry that is claimed is due later (UTC)."""
        return self.clock.now() + CLAIMS_AHEAD

    def owned(self, ids: Sequence[int], owner: str) -> list[Entry]:
        """Those of `ids` that are committed and run by `owner`."""
        rows = self.database.fetch(
            lambda connection: self.statements.owned(connection, ids=ids, owner=owner)
        )
        return [from_row(row) for row in rows]

    def due_and_next(self, own: Lane) -> tuple[dict[Lane, datetime], dict[Lane, datetime]]:
        """The earliest date that has come, and the next one, by lane from which a node claims.

        `own` is among these lanes. A lane without such a date is left out.

        Of parked entries, only the former.
        """
        now, lanes = self.clock.now(), (own, ANY_NODE, SUSPECT, PARKED)
        found = self.database.fetch(
            lambda connection: self.statements.due_and_next(connection, lanes=lanes, now=now)
        )
        due = {Lane(lane): date for lane, (date, _) in found.items() if date is not None}
        later = {
            Lane(lane): date
            for lane, (_, date) in found.items()
            if lane != PARKED and date is not None
        }
        return due, later

    # -- reads ------------------------------------------------------------------------------------

    def search(
        self,
        connection: Connection,
        *,
        past: bool = False,
        where: Where,
        limit: int | None = None,
        newest_first: bool = False,
    ) -> list[Entry]:
        """Entries that match, by ascending id (or descending)."""
        rows = self.statements.search(
            connection, past=past, where=where, limit=limit, newest_first=newest_first
        )
        return [from_row(row) for row in rows]

    def find(
        self,
        connection: Connection,
        *,
        past: bool = False,
        where: Sequence[Where],
        limit: int | None = None,
        newest_first: bool = False,
    ) -> list[Entry]:
        """As `search`, by several conditions, each about higher ids than the one before."""
        found = list[Entry]()
        for part in reversed(where) if newest_first else where:
            left = None if limit is None else limit - len(found)
            if left == 0:
                break
            found += self.search(
                connection, past=past, where=part, limit=left, newest_first=newest_first
            )
        return found
