"""The tables of one bus or service: reads, inserts, and transactions, a caller's or our own.

Claims and outcomes are in `moves`. When and how much is claimed: `queue_core.claiming`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from queue_core.errors import (
    DatabaseUnreachableError,
    ForkedError,
)
from queue_core.links.circuits import Circuits
from queue_core.links.dependencies import Dependencies
from queue_core.links.groups import GroupLink
from queue_core.links.keys import KeyLink
from queue_core.links.limit_keys import LimitKeyLink
from queue_core.links.link import Link
from queue_core.links.links import Links
from queue_core.links.ordering import Ordering
from queue_core.model.captured_context import NO_CONTEXT, CapturedContext
from queue_core.model.config import QueueConfig
from queue_core.model.entry import Entry, from_row
from queue_core.model.event_types import EventTypes
from queue_core.model.known_codecs import Codecs
from queue_core.model.lanes import ANY_NODE, PARKED, SUSPECT, Lane
from queue_core.runtime.clock import Clock, SystemClock, read_clock
from queue_core.storage.callers_connection import Borrowed, borrow, explain
from queue_core.storage.filter import Where
from queue_core.storage.reserved_ids import ReservedIds
from queue_core.storage.rows import Rows
from queue_core.storage.unreachable import unreachable
from sql.database import Database
from sql.families import CIRCUITS, ENTRIES, GROUPS, KEYS, ORDER, WAITS
from sql.tables import entry_tables

T = TypeVar("T")

FIRST_DATE = datetime.min.replace(tzinfo=UTC)
"""No entry is due earlier."""


class Store:
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
        self._database = database
        self._pid = os.getpid()
        self.config = config
        self.clock = clock
        self.types = types
        self.codecs = codecs
        dialect = database.dialect
        schema = database.fetch(lambda connection: dialect.schema_of(connection, config.table))
        packet_bytes = database.fetch(dialect.largest_statement)
        self.context = context
        self.rows = Rows(config, clock, types, codecs, context=context, packet_bytes=packet_bytes)
        statements = dialect.statements_for(ENTRIES)
        self.statements = statements(entry_tables(config.table, schema=schema))
        ordered = dialect.statements_for(ORDER)
        self.ordering = Ordering(ordered(schema), self.statements, clock)
        self.keys = KeyLink(
            dialect.statements_for(KEYS)(schema), self.statements, clock, config.table
        )
        self.groups = GroupLink(dialect.statements_for(GROUPS)(schema), self.statements, clock)
        circuits = dialect.statements_for(CIRCUITS)(schema)
        self.circuits = Circuits(circuits, self.statements, clock)
        others: list[Link] = [self.keys, self.ordering, self.groups, self.circuits]
        waits = dialect.statements_for(WAITS)(schema)
        self.dependencies = Dependencies(waits, self.statements, clock, Links(others))
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
        self._tried_at = float("-inf")
        """When the database's clock was to be read last (monotonic), by other than beats."""

    # -- time -------------------------------------------------------------------------------------

    def now(self, given: Any = None) -> datetime:
        """The time by the database's clock; see `keep_time`."""
        self.keep_time(given)
        return self.clock.now()

    def keep_time(self, given: Any = None) -> None:
        """Read the database's clock, unless it was read within a lease.

        Beats read it where a node runs.

        Raises DatabaseUnreachableError, unless a caller's connection is `given`, which may reach
        what ours can't: whoever asks for the time would wait for as long again.
        """
        clock = self.clock
        if not isinstance(clock, SystemClock):
            return
        lease, moment = self.config.node.lease_seconds, clock.monotonic()
        if moment - clock.followed_at < lease or moment - self._tried_at < lease:
            return
        self._tried_at = moment
        database = self.database
        ask = database.dialect.database_now
        try:
            clock.follow(
                self.reaching(
                    lambda: database.fetch(lambda connection: read_clock(partial(ask, connection)))
                )
            )
        except (DatabaseUnreachableError, SQLAlchemyError):
            if given is None:
                raise

    def read_time(self, connection: Connection) -> datetime:
        """The database's clock itself, read on `connection`; a clock that was given goes before."""
        if isinstance(self.clock, SystemClock):
            return self._database.dialect.database_now(connection)
        return self.clock.now()

    # -- process ----------------------------------------------------------------------------------

    @property
    def database(self) -> Database:
        """Our connections.

        Raises ForkedError in a child process, which must not talk on those of its parent.
        """
        self.check_process()
        return self._database

    @property
    def forked(self) -> bool:
        """Whether this is a child process of the one that made the store.

        Nothing of it runs here then.
        """
        return os.getpid() != self._pid

    def check_process(self) -> None:
        """Raises ForkedError in a child process: threads and connections don't survive a fork."""
        if os.getpid() != self._pid:  # not `forked`, which costs each post a call more
            raise ForkedError(
                f"{self.config.table}: made in process {self._pid}, used in its child {os.getpid()} after a fork. "
                "Nothing was written. Make the bus or service in the child, after the fork.",
                table=self.config.table,
                started_pid=self._pid,
            )

    # -- post -------------------------------------------------------------------------------------

    def insert(self, connection: Connection, rows: Sequence[Mapping[str, Any]]) -> list[int]:
        """Insert rows that `Rows` has made. Returns their ids, in the order of `rows`."""
        return self.statements.insert(connection, rows) if rows else []

    # -- transactions -----------------------------------------------------------------------------

    def borrow(self, given: Any) -> Borrowed:
        """The caller's connection; see `queue_core.storage.callers_connection`."""
        return borrow(given, self.database, self.statements.main.schema)

    def inside(self, given: Any, queue_name: str, work: Callable[[Connection], T]) -> T:
        """Run `work` in the caller's transaction. Errors are raised and never retried.

        The transaction is lost already.
        """
        return self.inside_borrowed(self.borrow(given), queue_name, work)

    def inside_borrowed(
        self, borrowed: Borrowed, queue_name: str, work: Callable[[Connection], T]
    ) -> T:
        """As `inside`, on a connection that was borrowed already."""
        try:
            return work(borrowed.connection)
        except DBAPIError as error:
            error.hide_parameters = True  # payloads are among them
            explained = explain(error, self.database, queue_name)
            if explained is error:
                raise
            raise explained from error

    def write(self, given: Any, queue_name: str, work: Callable[[Connection], T]) -> T:
        """Run `work` in the caller's transaction if one is given, else in one of our own."""
        if given is not None:
            return self.inside(given, queue_name, work)
        return self.reaching(lambda: self.database.write(work))

    def read(self, given: Any, queue_name: str, work: Callable[[Connection], T]) -> T:
        """As `write`, for work that only reads."""
        if given is not None:
            return self.inside(given, queue_name, work)
        return self.reaching(lambda: self.database.fetch(work))

    def reaching(self, work: Callable[[], T], written: Sequence[int] = ()) -> T:
        """Run `work` on connections of our own.

        Raises DatabaseUnreachableError if the database doesn't answer.

        `written` holds the ids that `work` has written by then, as far as they are known.
        """
        try:
            return work()
        except DBAPIError as error:
            if error.connection_invalidated or "connect" in str(error.orig).lower():
                raise unreachable(self.database.url, error, written) from error
            raise

    # -- the engine's reads -----------------------------------------------------------------------

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
