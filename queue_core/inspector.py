"""A look at a database of queues: its entries, who serves them, and what endangers them.

It changes nothing.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from types import TracebackType
from typing import Self, Unpack

from sqlalchemy import URL, Connection
from sqlalchemy import Engine as SqlalchemyEngine

from queue_core.cluster.subscriber_sets import Difference, differences
from queue_core.doctor.examination import examine
from queue_core.model.keyed import KeyState, KeyStatus
from queue_core.model.pause import Pause
from queue_core.opening import open_existing
from queue_core.queue_reads import FindFilters, HistoryFilters
from queue_core.reading.depths import QueueDepth, depths
from queue_core.reading.explanation import Explanation, explain
from queue_core.reading.held_keys import HeldKey, held_keys
from queue_core.reading.keys import Keys
from queue_core.reading.nodes import NodeStatus
from queue_core.reading.nodes import status as node_status
from queue_core.reading.open_circuits import OpenCircuit, open_circuits
from queue_core.reading.overview import QueueStatus, statuses
from queue_core.reading.schedules import ScheduleStatus
from queue_core.reading.schedules import status as schedule_status
from queue_core.reading.search import Located, Search
from queue_core.reading.statistics import (
    DEFAULT_AGE,
    SECOND,
    ProcessingTimeStats,
    QueueStats,
    RetryStats,
    StatsFilter,
    processing_time_stats,
    queue_stats,
    retry_stats,
)
from queue_core.reading.tables import Tables
from queue_core.reading.workers import WorkerStats, workers
from queue_core.runtime.arguments import is_number, not_allowed
from queue_core.storage.filter import Filter
from queue_core.storage.pauses import StoredPauses
from queue_core.storage.rows import integer
from sql.database import Database
from sql.doctor.finding import Finding
from sql.families import NODES, SCHEDULES


def inspect(
    database: str | URL | SqlalchemyEngine, *, statement_timeout_seconds: float = 30.0
) -> Inspector:
    """Open an inspector of a database; close it, or use it in a `with` block.

    Args:
        database: A URL, as a text or SQLAlchemy's, or an Engine, whose URL and way to connect are
            taken.
        statement_timeout_seconds: The longest that one statement may take, from 0.001 to 1,000,000.
            Default: 30.

    Returns:
        An inspector, which opens its own connections. It registers no node, and creates neither
        file nor table.

    Raises:
        ConfigurationError: An argument is not allowed.
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


class Inspector:
    """Reads of one database; `stickybus.inspect` makes it.

    A context manager that closes its connections. Each method reads in transactions that lock
    nothing, while the queues run.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._tables = Tables(database)

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
        """List the main tables, each of which has its history.

        Returns:
            Their names, in order; empty if there are none.

        Raises:
            DatabaseUnreachableError: The database does not answer.
        """
        return self._tables.names()

    def queues(self, *, table: str | None = None) -> list[QueueStatus]:
        """Count the entries of each queue, all of them. `depths` costs less.

        Args:
            table: Only of this main table. Default: of all.

        Returns:
            The queues that hold an entry, ended one in the last minute, or have a dead letter; by
            table and name.

        Raises:
            SchemaMissingError: There is no such table, or none at all.
            DatabaseUnreachableError: The database does not answer.
        """
        return [queue for store in self._tables.stores(table) for queue in statuses(store)]

    def depths(self, *, table: str | None = None) -> list[QueueDepth]:
        """Count what waits, up to some 10,000 entries a table, as each scrape of the metrics does.

        Args:
            table: Only of this main table. Default: of all.

        Returns:
            The queues for which an entry waits, by table and name.

        Raises:
            SchemaMissingError: There is no such table, or none at all.
            DatabaseUnreachableError: The database does not answer.
        """
        return [depth for store in self._tables.stores(table) for depth in depths(store)]

    def queue_stats(
        self,
        *,
        table: str | None = None,
        queue_name: str | None = None,
        age: timedelta | None = DEFAULT_AGE,
        now: datetime | None = None,
    ) -> list[QueueStats]:
        """Count the entries of each queue by state, live ones and ended ones.

        Live entries count if they were posted within the age.

        Args:
            table: Only of this main table. Default: of all.
            queue_name: Only of this bus, or `service:queue`. Default: of all.
            age: Only entries that ended within this time before `now`. None: no limit. Default: 30
                days.
            now: The end of the age, an aware date; what ended later does not count. Default: the
                database's time.

        Returns:
            The queues that have such an entry, by table and name.

        Raises:
            ConfigurationError: The age is not allowed.
            InvalidPostError: A queue's name can't be one; NaiveDateTimeError for a date without a
                time zone.
            SchemaMissingError: There is no such table, or none at all.
            DatabaseUnreachableError: The database does not answer.

        Example:
            ```python
            for queue in inspector.queue_stats(age=timedelta(days=1)):
                print(queue.queue_name, queue.processed, queue.failed)
            ```
        """
        wanted = StatsFilter(age=age, queue_name=queue_name, now=now)
        return [one for store in self._tables.stores(table) for one in queue_stats(store, wanted)]

    def retry_stats(
        self,
        *,
        table: str | None = None,
        queue_name: str | None = None,
        age: timedelta | None = DEFAULT_AGE,
        now: datetime | None = None,
    ) -> list[RetryStats]:
        """Count how often each queue ran entries again.

        Args:
            table: Only of this main table. Default: of all.
            queue_name: Only of this bus, or `service:queue`. Default: of all.
            age: Only entries that ended within this time before `now`. None: no limit. Default: 30
                days.
            now: The end of the age, an aware date; what ended later does not count. Default: the
                database's time.

        Returns:
            The queues that ended an entry within the age, by table and name.

        Raises:
            ConfigurationError: The age is not allowed.
            InvalidPostError: A queue's name can't be one; NaiveDateTimeError for a date without a
                time zone.
            SchemaMissingError: There is no such table, or none at all.
            DatabaseUnreachableError: The database does not answer.

        Example:
            ```python
            for queue in inspector.retry_stats():
                print(queue.queue_name, queue.retries, queue.percentage)
            ```
        """
        wanted = StatsFilter(age=age, queue_name=queue_name, now=now)
        return [one for store in self._tables.stores(table) for one in retry_stats(store, wanted)]

    def processing_time_stats(
        self,
        *,
        table: str | None = None,
        queue_name: str | None = None,
        age: timedelta | None = DEFAULT_AGE,
        now: datetime | None = None,
        unit: timedelta = SECOND,
    ) -> list[ProcessingTimeStats]:
        """Compute how long the last runs of each queue's entries took.

        The figures are exact, and those that `stickybus report` finds on the same rows. All history
        of the age is read.

        Args:
            table: Only of this main table. Default: of all.
            queue_name: Only of this bus, or `service:queue`. Default: of all.
            age: Only entries that ended within this time before `now`. None: no limit. Default: 30
                days.
            now: The end of the age, an aware date; what ended later does not count. Default: the
                database's time.
            unit: The unit of the times, a positive timedelta. Default: a second.

        Returns:
            The queues that have a timed row of history, by table and name.

        Raises:
            ConfigurationError: The age or unit is not allowed.
            InvalidPostError: A queue's name can't be one; NaiveDateTimeError for a date without a
                time zone.
            SchemaMissingError: There is no such table, or none at all.
            DatabaseUnreachableError: The database does not answer.

        Example:
            ```python
            for queue in inspector.processing_time_stats(unit=timedelta(milliseconds=1)):
                print(queue.queue_name, queue.p50, queue.p99)
            ```
        """
        wanted = StatsFilter(age=age, queue_name=queue_name, now=now)
        return [
            one
            for store in self._tables.stores(table)
            for one in processing_time_stats(store, wanted, unit)
        ]

    def nodes(self) -> list[NodeStatus]:
        """List the nodes, stopped and dead ones too.

        Returns:
            The nodes that have a row, by name.

        Raises:
            SchemaMissingError: There is no table of nodes.
            DatabaseUnreachableError: The database does not answer.
        """
        nodes = self._database.dialect.statements_for(NODES)()

        def read(connection: Connection) -> list[NodeStatus]:
            now = self._database.dialect.database_now(connection)
            return [node_status(row, now) for row in nodes.all_nodes(connection)]

        return self._tables.shared(read)

    def workers(
        self, *, table: str | None = None, age: timedelta | None = timedelta(days=1)
    ) -> list[WorkerStats]:
        """Count the work of each live node. The history of the age is read.

        Args:
            table: Only on this main table. Default: on all.
            age: Count what a node has ended within this time; None: since it registered. Default: a
                day.

        Returns:
            The live nodes by table and name, each with each table that it serves.

        Raises:
            ConfigurationError: The age is not allowed.
            SchemaMissingError: There is no such table, or none at all.
            DatabaseUnreachableError: The database does not answer.

        Example:
            ```python
            for worker in inspector.workers():
                print(worker.node, worker.running, worker.processed, worker.failed)
            ```
        """
        wanted = StatsFilter(age=age)
        return [
            one
            for store in self._tables.stores(table)
            for one in workers(store, wanted.span(store).since)
        ]

    def differing_subscribers(self, *, table: str | None = None) -> list[Difference]:
        """Find event types of which live nodes have different subscribers.

        Args:
            table: Only of this main table. Default: of all.

        Returns:
            The differences, by table, queue and type.

        Raises:
            SchemaMissingError: There is no such table, or none at all.
            DatabaseUnreachableError: The database does not answer.
        """
        nodes = self._database.dialect.statements_for(NODES)()

        def read(connection: Connection) -> list[Difference]:
            now = self._database.dialect.database_now(connection)
            found = differences(nodes.all_nodes(connection), now)
            return [difference for difference in found if difference.table in known]

        known = self._tables.named(table)
        return self._tables.shared(read)

    def pauses(self, *, table: str | None = None) -> list[Pause]:
        """List the queues and handlers that are paused.

        Args:
            table: Only of this main table. Default: of all.

        Returns:
            The pauses that have not ended, by table, queue and handler.

        Raises:
            SchemaMissingError: There is no such table, or none at all.
            DatabaseUnreachableError: The database does not answer.
        """
        stores = self._tables.stores(table)
        return [pause for store in stores for pause in StoredPauses(store).holding()]

    def open_circuits(self, *, table: str | None = None) -> list[OpenCircuit]:
        """List the handlers whose failed entries wait for a probe.

        Args:
            table: Only of this main table. Default: of all.

        Returns:
            The open circuits, by table, queue and handler.

        Raises:
            SchemaMissingError: There is no such table, or none at all.
            DatabaseUnreachableError: The database does not answer.
        """
        stores = self._tables.stores(table)
        return [circuit for store in stores for circuit in open_circuits(store, None)]

    def schedules(self, *, table: str | None = None) -> list[ScheduleStatus]:
        """List the recurring schedules with their next dates.

        Args:
            table: Only of this main table. Default: of all.

        Returns:
            The schedules, by table, queue and name.

        Raises:
            SchemaMissingError: There is no such table, or none at all.
            DatabaseUnreachableError: The database does not answer.
        """
        schedules = self._database.dialect.statements_for(SCHEDULES)()

        def read(connection: Connection) -> list[ScheduleStatus]:
            found = map(schedule_status, schedules.all_schedules(connection))
            return [schedule for schedule in found if schedule.table in known]

        known = self._tables.named(table)
        return self._tables.shared(read)

    def held_keys(self, *, table: str | None = None) -> list[HeldKey]:
        """List the order keys whose entries wait because one of them has failed.

        Args:
            table: Only of this main table. Default: of all.

        Returns:
            The keys, by table, queue and name.

        Raises:
            SchemaMissingError: There is no such table, or none at all.
            DatabaseUnreachableError: The database does not answer.

        Example:
            ```python
            for key in inspector.held_keys():
                print(key.order_key, key.record_id, key.waiting)
            ```
        """
        return [key for store in self._tables.stores(table) for key in held_keys(store, None)]

    def entries(
        self,
        *,
        table: str | None = None,
        queue_name: str | None = None,
        event_name: str | None = None,
        limit: int | None = None,
        **filters: Unpack[FindFilters],
    ) -> list[Located]:
        """Find live entries.

        Args:
            table: Only of this main table. Default: of all.
            queue_name: Only of this bus, or `service:queue`. Default: of all.
            event_name: Only events of this name. Default: of all.
            limit: At most this number, of all tables together. Default: all.
            filters: As for `PersistentBus.find`. Name a table with `record_ids`: ids are those
                of one table.

        Returns:
            The entries that match all that is given, by table and ascending id.

        Raises:
            InvalidPostError: A value that no entry can have.
            SchemaMissingError: There is no such table, or none at all.
            DatabaseUnreachableError: The database does not answer.
        """
        search = Search(
            Filter(**filters), queue_name=queue_name, event_name=event_name, limit=limit
        )
        return search.live(self._tables.stores(table))

    def history(
        self,
        *,
        table: str | None = None,
        queue_name: str | None = None,
        event_name: str | None = None,
        dead_letters: bool = False,
        limit: int | None = None,
        **filters: Unpack[HistoryFilters],
    ) -> list[Located]:
        """Find entries that have ended.

        Args:
            table: Only of this main table's history. Default: of all.
            queue_name: Only of this bus, or `service:queue`. Default: of all.
            event_name: Only events of this name. Default: of all.
            dead_letters: Only those that `QueueStatus.dead_letters` counts. Default: False.
            limit: At most this number, of all tables together. Default: all.
            filters: As for `PersistentBus.history`. Name a table with `record_ids`: ids are
                those of one table.

        Returns:
            The entries that match all that is given. Those of one table by descending id, those of
            all tables newest first.

        Raises:
            InvalidPostError: A value that no entry can have.
            SchemaMissingError: There is no such table, or none at all.
            DatabaseUnreachableError: The database does not answer.
        """
        search = Search(
            Filter(**filters), queue_name=queue_name, event_name=event_name, limit=limit
        )
        return search.ended(
            self._tables.stores(table), dead_letters=dead_letters, by_date=table is None
        )

    def explain(self, record_id: int, *, table: str) -> Explanation:
        """Tell why an entry is not running: who paused it, what it waits for, and so on.

        Args:
            record_id: The id of the entry, live or ended.
            table: Its main table: ids are those of one table.

        Returns:
            All reasons that stand in the tables; as a text, a line for each. An entry that runs, or
            has ended, has one that says so.

        Raises:
            EntryNotFoundError: The table has no such entry, neither live nor in history.
            InvalidPostError: The id can't be one.
            SchemaMissingError: There is no such table.
            DatabaseUnreachableError: The database does not answer.
        """
        [store] = self._tables.stores(table)
        return explain(store, record_id)

    def keys(
        self, *, table: str | None = None, queue_name: str | None = None, limit: int | None = None
    ) -> list[KeyStatus]:
        """List the idempotency keys that are taken.

        Args:
            table: Only of this main table. Default: of all.
            queue_name: Only of this queue. Default: of all.
            limit: At most this number of a table. Default: all.

        Returns:
            Where they stand; by table, queue and key.

        Raises:
            InvalidPostError: A value that no key can have.
            SchemaMissingError: There is no such table, or none at all.
            DatabaseUnreachableError: The database does not answer.
        """
        limit = None if limit is None else integer(limit, "limit", least=0)
        return [
            status
            for store in self._tables.stores(table)
            for status in Keys(store).all_keys(queue_name, limit)
        ]

    def key_status(self, queue_name: str, key: str, *, table: str | None = None) -> KeyStatus:
        """Tell where a key stands.

        Args:
            queue_name: The name of the bus, or "service:queue".
            key: The key.
            table: The main table of the queue. Default: the first one that knows the key.

        Returns:
            Its entry and its time; the state is UNKNOWN if nobody has the key.

        Raises:
            InvalidPostError: A value that no key can have.
            SchemaMissingError: There is no such table, or none at all.
            DatabaseUnreachableError: The database does not answer.
        """
        found = [Keys(store).status(queue_name, key) for store in self._tables.stores(table)]
        return next((one for one in found if one.state is not KeyState.UNKNOWN), found[0])

    def doctor(self, *, transaction_seconds: float = 60.0) -> list[Finding]:
        """Find what slows or endangers the database, as `stickybus doctor` does.

        Args:
            transaction_seconds: Report transactions of others that are open for longer, from 0 to
                1e9 seconds. Default: 60.

        Returns:
            The findings, the worst first.

        Raises:
            ConfigurationError: The time is not allowed.
            DatabaseUnreachableError: The database does not answer.
        """
        seconds = _seconds(transaction_seconds, "transaction_seconds", least=0.0, most=1e9)
        return examine(self._database, transaction_seconds=seconds)

    def check_table(self, table: str | None = None) -> None:
        """Check that a main table is there.

        Args:
            table: Its name. Default: any.

        Raises:
            SchemaMissingError: There is no such table, or none at all.
            DatabaseUnreachableError: The database does not answer.
        """
        self._tables.named(table)


def _seconds(value: float, key: str, *, least: float, most: float) -> float:
    if not is_number(value) or not least <= value <= most:
        raise not_allowed(key, value, f"a number of seconds from {least:g} to {most:g}")
    return float(value)
