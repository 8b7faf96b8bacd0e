"""A look at a database of queues: what is in it, who serves it, and what is wrong.

It changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import msgspec
from sqlalchemy import URL, Connection, make_url
from sqlalchemy import Engine as SqlalchemyEngine
from sqlalchemy.exc import ArgumentError, DBAPIError

from queue_core.cluster.subscriber_sets import Difference, differences
from queue_core.doctor.examination import examine
from queue_core.engine import open_database
from queue_core.errors import DatabaseUnreachableError, SchemaMissingError
from queue_core.model.codec import Codecs
from queue_core.model.config import BusConfig
from queue_core.model.entry import Entry, SearchKey, State, States
from queue_core.model.event_types import EventTypes
from queue_core.reading.history import History
from queue_core.reading.live_entries import Entries
from queue_core.reading.nodes import NodeStatus
from queue_core.reading.nodes import status as node_status
from queue_core.reading.overview import QueueStatus, dead_letter_ids, statuses
from queue_core.reading.schedules import ScheduleStatus
from queue_core.reading.schedules import status as schedule_status
from queue_core.runtime.arguments import is_number, not_allowed, of_kind
from queue_core.runtime.clock import SystemClock
from queue_core.runtime.shown import shown
from queue_core.storage.filter import Filter, checked_ids, state_values
from queue_core.storage.rows import UNSET, Keyless, Unset, integer, name
from queue_core.storage.store import Store
from sql import schema
from sql.database import Database
from sql.doctor.finding import Finding
from sql.families import NODES, SCHEDULES
from sql.tables import CLASS_NAME_LENGTH, QUEUE_NAME_LENGTH

T = TypeVar("T")

_FIRST = datetime.min.replace(tzinfo=UTC)


class Located(msgspec.Struct, frozen=True):
    """An entry and the main table that it belongs to: ids are of one table."""

    table: str
    entry: Entry


def inspect(
    database: str | URL | SqlalchemyEngine, *, statement_timeout_seconds: float = 30.0
) -> Inspector:
    """Open an inspector of a database; close it, or use it in a `with` block.

    Args:
        database: A URL, as a text or SQLAlchemy's, or an Engine, whose URL and way to connect are taken.
        statement_timeout_seconds: The longest that one statement may take, from 0.001 to 1,000,000.

    Returns:
        An inspector with connections of its own. It registers no node, and creates neither file nor table.

    Raises:
        ConfigurationError: `database` is no URL of a database that Stickybus supports, or the time is none.
        DatabaseUnreachableError: The database does not answer, or the SQLite file is not there.

    Example:
        ```python
        with stickybus.inspect("sqlite:///shop.db") as inspector:
            for queue in inspector.queues():
                print(queue.queue_name, queue.ready, queue.dead_letters)
        ```
    """
    seconds = _seconds(
        statement_timeout_seconds, "statement_timeout_seconds", least=0.001, most=1e6
    )
    return Inspector(open_existing(database, statement_timeout_seconds=seconds))


def open_existing(
    target: str | URL | SqlalchemyEngine,
    *,
    statement_timeout_seconds: float = 30.0,
    application_name: str = "stickybus",
) -> Database:
    """As `open_database`; an SQLite file that is not there counts as unreachable, since opening would make it."""
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


def _seconds(value: float, key: str, *, least: float, most: float) -> float:
    if not is_number(value) or not least <= value <= most:
        raise not_allowed(key, value, f"a number of seconds from {least:g} to {most:g}")
    return float(value)


def _missing_file(target: str | URL | SqlalchemyEngine) -> str | None:
    try:
        url = target.url if isinstance(target, SqlalchemyEngine) else make_url(target)
    except (ArgumentError, ValueError):
        return None  # opening tells what is wrong with it
    path = url.database if url.get_backend_name() == "sqlite" else None
    if not path or path == ":memory:" or path.startswith("file:") or Path(path).exists():
        return None
    return path


def _name(value: str | None, key: str, length: int) -> str | None:
    return None if value is None else name(value, key, limit=length)


def _limit(value: int | None) -> int | None:
    return None if value is None else integer(value, "limit", least=0)


def _among(wanted: Filter, ids: list[int]) -> Filter:
    """`wanted`, of these ids only."""
    both = ids if wanted.record_ids is None else sorted({*wanted.record_ids} & {*ids})
    return msgspec.structs.replace(wanted, record_ids=both)


class Inspector:
    """Reads of one database; `stickybus.inspect` makes it.

    A context manager that closes its connections.

    Each method reads in transactions that lock nothing, while the queues run. `table` is the name
    of a main table, such as `bus_events`; without it a method reads all of them. Methods raise
    SchemaMissingError if there is no such table, or none at all, and DatabaseUnreachableError if
    the database does not answer.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._stores: dict[str, Store] = {}

    def close(self) -> None:
        """Close its connections."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def tables(self) -> tuple[str, ...]:
        """The names of all main tables, in order; each has a history of its own.

        Empty if there are none.
        """
        return self._database.fetch(schema.main_tables)

    def queues(self, *, table: str | None = None) -> list[QueueStatus]:
        """All queues that hold an entry, ended one in the last minute, or have a dead letter; by table and name."""
        return [queue for store in self._stores_of(table) for queue in statuses(store)]

    def nodes(self) -> list[NodeStatus]:
        """All nodes that have a row, by name."""
        nodes = self._database.dialect.statements_for(NODES)()

        def read(connection: Connection) -> list[NodeStatus]:
            now = self._database.dialect.database_now(connection)
            return [node_status(row, now) for row in nodes.all_nodes(connection)]

        return self._shared(read)

    def differing_subscribers(self, *, table: str | None = None) -> list[Difference]:
        """The event types of which live nodes have different subscribers; by table, queue and type."""
        nodes = self._database.dialect.statements_for(NODES)()

        def read(connection: Connection) -> list[Difference]:
            now = self._database.dialect.database_now(connection)
            found = differences(nodes.all_nodes(connection), now)
            return [difference for difference in found if difference.table in known]

        known = self._known(table)
        return self._shared(read)

    def schedules(self, *, table: str | None = None) -> list[ScheduleStatus]:
        """The recurring schedules with their next dates; by table, queue and name."""
        schedules = self._database.dialect.statements_for(SCHEDULES)()

        def read(connection: Connection) -> list[ScheduleStatus]:
            found = map(schedule_status, schedules.all_schedules(connection))
            return [schedule for schedule in found if schedule.table in known]

        known = self._known(table)
        return self._shared(read)

    def entries(
        self,
        *,
        table: str | None = None,
        queue_name: str | None = None,
        event_name: str | None = None,
        search_key1: SearchKey | Keyless | Unset = UNSET,
        search_key2: SearchKey | Keyless | Unset = UNSET,
        states: States | None = None,
        record_ids: Iterable[int] | None = None,
        effective_before: datetime | None = None,
        limit: int | None = None,
    ) -> list[Located]:
        """Live entries that match all that is given, by table and ascending id.

        Args:
            table: Only of this main table.
            queue_name: Only of this bus, or `service:queue`.
            event_name: Only events of this name.
            search_key1: Only with this key; KEYLESS: only without one.
            search_key2: As `search_key1`.
            states: Only in these states, AVAILABLE or IN_PROCESSING.
            record_ids: Only these; name a table as well, since each table has ids of its own.
            effective_before: Only what is due before this aware date.
            limit: At most this number, of all tables together. Default: all.

        Returns:
            Each entry with its table.

        Raises:
            InvalidPostError: A value that no entry can have.
        """
        wanted = Filter(
            class_name=_name(event_name, "event_name", CLASS_NAME_LENGTH),
            search_key1=search_key1,
            search_key2=search_key2,
            states=None if states is None else [State(name) for name in state_values(states)],
            record_ids=None if record_ids is None else checked_ids(record_ids),
            effective_before=effective_before,
        )
        queue, most = _name(queue_name, "queue_name", QUEUE_NAME_LENGTH), _limit(limit)
        found = list[Located]()
        for store in self._stores_of(table):
            left = None if most is None else most - len(found)
            entries = Entries(store, queue).find(wanted, limit=left)
            found += [Located(store.config.table, entry) for entry in entries]
        return found

    def history(
        self,
        *,
        table: str | None = None,
        queue_name: str | None = None,
        event_name: str | None = None,
        search_key1: SearchKey | Keyless | Unset = UNSET,
        search_key2: SearchKey | Keyless | Unset = UNSET,
        states: States | None = None,
        record_ids: Iterable[int] | None = None,
        finished_since: datetime | None = None,
        finished_before: datetime | None = None,
        dead_letters: bool = False,
        limit: int | None = None,
    ) -> list[Located]:
        """Entries that have ended and match all that is given: of one table by descending id, of all the newest first.

        Args:
            table: Only of this main table's history.
            queue_name: Only of this bus, or `service:queue`.
            event_name: Only events of this name.
            search_key1: Only with this key; KEYLESS: only without one.
            search_key2: As `search_key1`.
            states: Only those that ended so: PROCESSED, FAILED, REAPED, REMOVED.
            record_ids: Only these; name a table as well, since each table has ids of its own.
            finished_since: Only what ended at this aware date or later.
            finished_before: Only what ended before this aware date.
            dead_letters: Only FAILED ones that nobody has tried again, as `QueueStatus.dead_letters` counts them.
            limit: At most this number, of all tables together. Default: all.

        Returns:
            Each entry with its table.

        Raises:
            InvalidPostError: A value that no entry can have.
        """
        wanted = Filter(
            class_name=_name(event_name, "event_name", CLASS_NAME_LENGTH),
            search_key1=search_key1,
            search_key2=search_key2,
            states=None if states is None else [State(name) for name in state_values(states)],
            record_ids=None if record_ids is None else checked_ids(record_ids),
            finished_since=finished_since,
            finished_before=finished_before,
        )
        queue, most = _name(queue_name, "queue_name", QUEUE_NAME_LENGTH), _limit(limit)
        found = list[Located]()
        for store in self._stores_of(table):
            of_store = _among(wanted, dead_letter_ids(store)) if dead_letters else wanted
            entries = History(store, queue).find(of_store, limit=most, newest_first=True)
            found += [Located(store.config.table, entry) for entry in entries]
        if table is None:  # ids of different tables say nothing of when
            found.sort(key=lambda located: located.entry.finished_date or _FIRST, reverse=True)
        return found[:most]

    def doctor(self, *, transaction_seconds: float = 60.0) -> list[Finding]:
        """What slows or endangers the database, the worst first, as `stickybus doctor` tells it.

        Transactions of others count when they are open for longer than `transaction_seconds` (0 to
        1e9).
        """
        seconds = _seconds(transaction_seconds, "transaction_seconds", least=0.0, most=1e9)
        return examine(self._database, transaction_seconds=seconds)

    # -- tables -------------------------------------------------------------------------------------------------

    def check_table(self, table: str | None = None) -> None:
        """Raises SchemaMissingError if this table (None: any) is not there."""
        self._known(table)

    def _stores_of(self, table: str | None) -> list[Store]:
        return [self._store(one) for one in self._known(table)]

    def _known(self, table: str | None) -> tuple[str, ...]:
        known, where = self.tables(), self._database.url.render_as_string()
        if not known:
            raise SchemaMissingError(f"{where} lacks queue tables. Run: stickybus schema create")
        if table is not None and table not in known:
            raise SchemaMissingError(
                f"{where} lacks the table {shown(table)}. It has {', '.join(known)}; to add one, run: stickybus schema create "
                "--table NAME"
            )
        return known if table is None else (table,)

    def _store(self, table: str) -> Store:
        if table not in self._stores:
            types = EventTypes()
            config = BusConfig(table=table)
            self._stores[table] = Store(self._database, config, SystemClock(), types, Codecs(types))
        return self._stores[table]

    def _shared(self, read: Callable[[Connection], T]) -> T:
        """Read a table that all queues share."""
        try:
            return self._database.fetch(read)
        except DBAPIError as error:
            if error.connection_invalidated:
                raise
            where = self._database.url.render_as_string()
            raise SchemaMissingError(
                f"{where} has no table of nodes. Run: stickybus schema create"
            ) from error
