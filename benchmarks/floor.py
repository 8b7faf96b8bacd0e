"""The floor: the engine's SQL work by the bare driver on one connection, in its plainest form.

The same tables and indices, the same columns (made by the engine, encoded beforehand), a commit
where the engine has one; no engine, no SQLAlchemy, no threads.
"""

from __future__ import annotations

import itertools
import sqlite3
import statistics
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, ClassVar

import psycopg
import pymysql
from prometheus_client import CollectorRegistry
from sqlalchemy import URL, Table

from benchmarks.databases import Target
from benchmarks.measurement import Measurement
from benchmarks.workload import (
    FLOOR,
    LOAD_BATCH,
    POST_MANY,
    Sizes,
    Ticked,
    VerificationError,
    alternating,
    verify_counts,
)
from bus.persistent import PersistentBus
from queue_core.model.lanes import ANY_NODE
from queue_core.model.posting import Posting
from sql.drivers.hot_path import writers
from sql.tables import ENTRY_COLUMNS

CLAIM = 100
"""Entries of one claim, as the engine's default has it."""
OWNER = "floor"

_TASK_COLUMNS = (
    "task_id, version, queue, arrival_date, lease_date, claimant, claims, attempt, created_date, "
    "modified_date, err, value_json, value_bytes"
)

Row = Mapping[str, Any]
TaskKey = tuple[str, int, str]
"""A task's id, version and queue."""


class Bare(ABC):
    """A connection of the driver, and rows as it takes them."""

    mark: ClassVar = "%s"

    def __init__(self, url: URL) -> None:
        self._connect(url)
        bus = PersistentBus(url, metrics_registry=CollectorRegistry())
        store = bus._engine.store
        postings = [Posting(event=Ticked(number)) for number in range(LOAD_BATCH)]
        self.main, self.past = store.statements.main, store.statements.past
        self._dialect = store.database.engine.dialect
        self.rows: Sequence[Row] = store.rows.rows(
            bus.config.name, postings, creator=OWNER, lane=ANY_NODE, claimed=False
        )
        """Entries as the engine posts them; each time the same ones."""
        bus.close()

    def encoded(self, table: Table, rows: Sequence[Row]) -> list[tuple[Any, ...]]:
        """Values in the order of the first row's names, as the driver takes them."""
        written = writers({name: table.c[name].type for name in rows[0]}, self._dialect)
        processors = [written.get(name) for name in rows[0]]
        return [
            tuple(
                process(value) if process else value
                for process, value in zip(processors, row.values(), strict=True)
            )
            for row in rows
        ]

    def date(self, value: datetime) -> Any:
        """A date as the driver takes it."""
        return self.encoded(self.main, [{"effective_date": value}])[0][0]

    def insert_statement(self, table: Table, names: Sequence[str], rows: int = 1) -> str:
        """A multi-row INSERT."""
        marks = "(" + ", ".join([self.mark] * len(names)) + ")"
        return f"INSERT INTO {table.name} ({', '.join(names)}) VALUES " + ", ".join([marks] * rows)

    @abstractmethod
    def _connect(self, url: URL) -> None: ...

    @abstractmethod
    def close(self) -> None:
        """Close the connection."""

    @abstractmethod
    def insert_one(self, names: Sequence[str], values: tuple[Any, ...]) -> int:
        """Insert an entry, commit, and return its id."""

    @abstractmethod
    def insert_many(
        self, table: Table, names: Sequence[str], values: Sequence[tuple[Any, ...]]
    ) -> None:
        """Insert rows in one transaction, in the fastest way."""

    @abstractmethod
    def claim(self, limit: int, now: Any, until: Any) -> list[int]:
        """Claim up to `limit` due entries of the lane of any node, read them whole and commit.

        Returns their ids.
        """

    @abstractmethod
    def move(self, ids: Sequence[int], now: Any) -> int:
        """Move claimed entries to history, commit, and return how many."""

    @abstractmethod
    def claim_task(self, queue: str, now: Any, until: Any) -> TaskKey | None:
        """Claim the first available task of a queue, read it whole and commit."""

    def delete_task(self, task: TaskKey) -> int:
        """Delete a claimed task, count that, commit, and return how many were deleted."""
        with self._transaction():
            gone = self._run(
                f"DELETE FROM work_tasks WHERE task_id = {self.mark} AND version = {self.mark}",
                task[:2],
            )
            self._run(
                f"INSERT INTO work_queue_counts (name, amount) VALUES ({self.mark}, -1)", task[2:]
            )
        return gone

    @abstractmethod
    def _transaction(self) -> AbstractContextManager[Any]: ...

    @abstractmethod
    def _run(self, statement: str, values: tuple[Any, ...]) -> int:
        """Run a statement, and return how many rows it has changed."""

    @abstractmethod
    def hold_snapshot(self) -> None:
        """Begin a transaction that keeps seeing the tables as they are now."""

    def _first_task(self, columns: str) -> str:
        return (
            f"SELECT {columns} FROM work_tasks WHERE queue = {self.mark} AND arrival_date <= "
            f"{self.mark} ORDER BY arrival_date, task_id LIMIT 1"
        )

    def _take_task(self) -> str:
        return (
            "UPDATE work_tasks SET version = version + 1, claims = claims + 1, claimant = "
            f"'{OWNER}', arrival_date = {self.mark}, lease_date = {self.mark}, modified_date = "
            f"{self.mark}"
        )

    def _moved(self, source: str) -> str:
        values = ", ".join(
            "'PROCESSED'" if name == "processing_state" else name for name in ENTRY_COLUMNS
        )
        columns = ", ".join((*ENTRY_COLUMNS, "finished_date", "started_date"))
        return (
            f"INSERT INTO {self.past.name} ({columns}) SELECT {values}, {self.mark}, {self.mark} "
            f"FROM {source}"
        )

    def _due(self, columns: str) -> str:
        return (
            f"SELECT {columns} FROM {self.main.name} WHERE lane = '' AND processing_state = "
            f"'AVAILABLE' AND effective_date <= {self.mark} ORDER BY effective_date, record_id "
            f"LIMIT {self.mark}"
        )

    def _take(self) -> str:
        return (
            f"UPDATE {self.main.name} SET processing_state = 'IN_PROCESSING', processing_owner = "
            f"'{OWNER}', processing_available_date = {self.mark}, lane = '{OWNER}', claim_count "
            "= claim_count + 1"
        )


class BarePostgreSQL(Bare):
    """psycopg: a statement is a transaction."""

    def _connect(self, url: URL) -> None:
        self._connection = psycopg.connect(
            host=url.host,
            port=url.port,
            user=url.username,
            password=url.password,
            dbname=url.database,
            autocommit=True,
        )
        # On tables that nobody has analysed yet, only these keep the planner on the indices.
        for way in ("seqscan", "sort", "bitmapscan"):
            self._connection.execute(f"SET enable_{way} = off".encode())

    def close(self) -> None:
        self._connection.close()

    def insert_one(self, names: Sequence[str], values: tuple[Any, ...]) -> int:
        statement = self.insert_statement(self.main, names) + " RETURNING record_id"
        [[record_id]] = self._connection.execute(statement.encode(), values)
        return int(record_id)

    def insert_and_notify(self, names: Sequence[str], values: tuple[Any, ...]) -> int:
        """Insert an entry, wake who listens, commit, and return its id."""
        added = self.insert_statement(self.main, names) + " RETURNING record_id"
        statement = f"WITH added AS ({added}) SELECT record_id, pg_notify('floor', '') FROM added"
        [[record_id, _]] = self._connection.execute(statement.encode(), values)
        return int(record_id)

    def listen(self) -> None:
        """Be woken by `insert_and_notify` from now on."""
        self._connection.execute("LISTEN floor")

    def wait_for_post(self) -> None:
        """Return once something was posted since the wait before."""
        for _ in self._connection.notifies(stop_after=1):
            pass

    def insert_many(
        self, table: Table, names: Sequence[str], values: Sequence[tuple[Any, ...]]
    ) -> None:
        statement = f"COPY {table.name} ({', '.join(names)}) FROM STDIN".encode()
        with self._connection.cursor() as cursor, cursor.copy(statement) as copy:
            for row in values:
                copy.write_row(row)

    def claim(self, limit: int, now: Any, until: Any) -> list[int]:
        due = f"WITH due AS MATERIALIZED ({self._due('record_id')} FOR UPDATE SKIP LOCKED) "
        taken = (
            f"{due}{self._take()} FROM due WHERE {self.main.name}.record_id = "
            "ANY(ARRAY[due.record_id])"
        )
        columns = ", ".join(f"{self.main.name}.{name}" for name in ENTRY_COLUMNS)
        rows = self._connection.execute(
            f"{taken} RETURNING {columns}".encode(), (now, limit, until)
        )
        return [row[0] for row in rows]

    def move(self, ids: Sequence[int], now: Any) -> int:
        gone = (
            f"DELETE FROM {self.main.name} WHERE record_id = ANY(%s) AND processing_owner = "
            f"'{OWNER}' RETURNING *"
        )
        statement = f"WITH gone AS ({gone}) {self._moved('gone')}"
        return self._connection.execute(statement.encode(), (list(ids), now, now)).rowcount

    def claim_task(self, queue: str, now: Any, until: Any) -> TaskKey | None:
        first = (
            f"WITH first AS MATERIALIZED ({self._first_task('task_id')} FOR UPDATE SKIP LOCKED) "
        )
        columns = ", ".join(f"work_tasks.{name}" for name in _TASK_COLUMNS.split(", "))
        taken = (
            f"{first}{self._take_task()} FROM first WHERE work_tasks.task_id = "
            "ANY(ARRAY[first.task_id])"
        )
        row = self._connection.execute(
            f"{taken} RETURNING {columns}".encode(), (queue, now, until, until, now)
        ).fetchone()
        return None if row is None else (row[0], row[1], row[2])

    def _transaction(self) -> AbstractContextManager[Any]:
        return self._connection.transaction()

    def _run(self, statement: str, values: tuple[Any, ...]) -> int:
        return self._connection.execute(statement.encode(), values).rowcount

    def hold_snapshot(self) -> None:
        self._connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        self._connection.execute(f"SELECT 1 FROM {self.main.name} LIMIT 1".encode())


class BareMySQL(Bare):
    """PyMySQL: read committed, ids first."""

    def _connect(self, url: URL) -> None:
        self._connection = pymysql.connect(
            host=url.host or "",
            port=url.port or 0,
            user=url.username,
            password=url.password or "",
            database=url.database,
            charset="utf8mb4",
            autocommit=True,
        )
        self._cursor = self._connection.cursor()
        self._cursor.execute("SET time_zone = '+00:00'")
        self._cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")

    def close(self) -> None:
        self._connection.close()

    def insert_one(self, names: Sequence[str], values: tuple[Any, ...]) -> int:
        self._cursor.execute(self.insert_statement(self.main, names), values)
        return int(self._cursor.lastrowid)

    def insert_many(
        self, table: Table, names: Sequence[str], values: Sequence[tuple[Any, ...]]
    ) -> None:
        flat = tuple(itertools.chain.from_iterable(values))
        self._cursor.execute(self.insert_statement(table, names, len(values)), flat)

    def claim(self, limit: int, now: Any, until: Any) -> list[int]:
        self._connection.begin()
        self._cursor.execute(
            f"{self._due(', '.join(ENTRY_COLUMNS))} FOR UPDATE SKIP LOCKED".replace(
                " WHERE", f" FORCE INDEX ({self.main.name}_claim) WHERE", 1
            ),
            (now, limit),
        )
        ids = sorted(row[0] for row in self._cursor.fetchall())
        if ids:
            self._cursor.execute(f"{self._take()} WHERE record_id IN %s", (until, ids))
        self._connection.commit()
        return ids

    def move(self, ids: Sequence[int], now: Any) -> int:
        held = f" WHERE record_id IN %s AND processing_owner = '{OWNER}'"
        self._connection.begin()
        self._cursor.execute(self._moved(self.main.name) + held, (now, now, ids))
        self._cursor.execute(f"DELETE FROM {self.main.name}{held}", (ids,))
        moved = self._cursor.rowcount
        self._connection.commit()
        return moved

    def claim_task(self, queue: str, now: Any, until: Any) -> TaskKey | None:
        with self._transaction():
            self._cursor.execute(
                f"{self._first_task(_TASK_COLUMNS)} FOR UPDATE SKIP LOCKED".replace(
                    " WHERE", " FORCE INDEX (work_tasks_claim) WHERE", 1
                ),
                (queue, now),
            )
            row = self._cursor.fetchone()
            if row is None:
                return None
            self._cursor.execute(
                f"{self._take_task()} WHERE task_id = %s", (until, until, now, row[0])
            )
        return row[0], row[1] + 1, row[2]

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.begin()
        yield
        self._connection.commit()

    def _run(self, statement: str, values: tuple[Any, ...]) -> int:
        return self._cursor.execute(statement, values)

    def hold_snapshot(self) -> None:
        self._cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        self._cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")


class BareSQLite(Bare):
    """sqlite3: WAL, synchronous FULL."""

    mark: ClassVar = "?"

    def _connect(self, url: URL) -> None:
        self._connection = sqlite3.connect(
            url.database or "", isolation_level=None, timeout=30.0, check_same_thread=False
        )
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")

    def close(self) -> None:
        self._connection.close()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        yield
        self._connection.execute("COMMIT")

    def insert_one(self, names: Sequence[str], values: tuple[Any, ...]) -> int:
        with self._transaction():
            return int(
                self._connection.execute(self.insert_statement(self.main, names), values).lastrowid
                or 0
            )

    def insert_many(
        self, table: Table, names: Sequence[str], values: Sequence[tuple[Any, ...]]
    ) -> None:
        with self._transaction():
            self._connection.executemany(self.insert_statement(table, names), values)

    def claim(self, limit: int, now: Any, until: Any) -> list[int]:
        statement = (
            f"{self._take()} WHERE record_id IN ({self._due('record_id')}) RETURNING "
            f"{', '.join(ENTRY_COLUMNS)}"
        )
        with self._transaction():
            return sorted(
                row[0] for row in self._connection.execute(statement, (until, now, limit))
            )

    def move(self, ids: Sequence[int], now: Any) -> int:
        held = f" WHERE record_id IN ({', '.join('?' * len(ids))}) AND processing_owner = '{OWNER}'"
        with self._transaction():
            self._connection.execute(self._moved(self.main.name) + held, (now, now, *ids))
            return self._connection.execute(
                f"DELETE FROM {self.main.name}{held}", tuple(ids)
            ).rowcount

    def claim_task(self, queue: str, now: Any, until: Any) -> TaskKey | None:
        statement = (
            f"{self._take_task()} WHERE task_id IN ({self._first_task('task_id')}) RETURNING "
            f"{_TASK_COLUMNS}"
        )
        with self._transaction():
            row = self._connection.execute(statement, (until, until, now, queue, now)).fetchone()
        return None if row is None else (row[0], row[1], row[2])

    def _run(self, statement: str, values: tuple[Any, ...]) -> int:
        return self._connection.execute(statement, values).rowcount

    def hold_snapshot(self) -> None:
        self._connection.execute("BEGIN")
        self._connection.execute(f"SELECT 1 FROM {self.main.name} LIMIT 1").fetchall()


_DRIVERS: Mapping[str, type[Bare]] = {
    "postgresql": BarePostgreSQL,
    "mysql": BareMySQL,
    "mariadb": BareMySQL,
    "sqlite": BareSQLite,
}


@contextmanager
def bare(url: URL) -> Iterator[Bare]:
    """The bare driver on a database that has the schema."""
    connection = _DRIVERS[url.get_backend_name()](url)
    try:
        yield connection
    finally:
        connection.close()


def fill(connection: Bare, entries: int, batch: int = LOAD_BATCH) -> float:
    """Insert due entries in transactions of `batch`, and return the seconds that it took."""
    names = list(connection.rows[0])
    values = connection.encoded(connection.main, connection.rows)
    start = time.perf_counter()
    for first in range(0, entries, batch):
        connection.insert_many(connection.main, names, values[: min(batch, entries - first)])
    return time.perf_counter() - start


def insert_rate(target: Target, entries: int) -> float:
    """One insert per commit, entries a second."""
    with target.fresh() as url, bare(url) as connection:
        names = list(connection.rows[0])
        values = itertools.cycle(connection.encoded(connection.main, connection.rows))
        start = time.perf_counter()
        for row in itertools.islice(values, entries):
            connection.insert_one(names, row)
        seconds = time.perf_counter() - start
        verify_counts(url, connection.main.name, waiting=entries, ended=0)
    return entries / seconds


def bulk_rate(target: Target, entries: int) -> float:
    """COPY, multi-row INSERT or executemany of 100 a commit, entries a second."""
    with target.fresh() as url, bare(url) as connection:
        seconds = fill(connection, entries, POST_MANY)
        verify_counts(url, connection.main.name, waiting=entries, ended=0)
    return entries / seconds


def move_rate(target: Target, entries: int) -> float:
    """Claims of 100 and their move to history, a commit each, entries a second."""
    with target.fresh() as url, bare(url) as connection:
        fill(connection, entries)
        now = datetime.now(UTC)
        bound, until = connection.date(now), connection.date(now + timedelta(seconds=300))
        moved = 0
        start = time.perf_counter()
        while ids := connection.claim(CLAIM, bound, until):
            moved += connection.move(ids, bound)
        seconds = time.perf_counter() - start
        if moved != entries:
            raise VerificationError(f"the floor moved {moved} of {entries} entries")
        verify_counts(url, connection.main.name, waiting=0, ended=entries)
    return entries / seconds


def floor(target: Target, sizes: Sizes) -> Iterator[Measurement]:
    """The limit of the database itself: the bare driver on one connection, no engine."""
    works: dict[str, tuple[int, Callable[[Target, int], float]]] = {
        "one insert per commit": (sizes.entries(10_000), insert_rate),
        f"bulk insert of {POST_MANY}": (sizes.entries(100_000, POST_MANY), bulk_rate),
        f"claim of {CLAIM} and move to history": (sizes.entries(50_000), move_rate),
    }
    found = alternating(
        sizes.rounds,
        {metric: partial(rate, target, entries) for metric, (entries, rate) in works.items()},
    )
    for metric, rates in found.items():
        settings = {"entries": works[metric][0], "rounds": sizes.rounds, "rates": rates}
        yield Measurement(
            FLOOR, target.name, metric, statistics.median(rates), "entries/s", settings, 1.0
        )
