"""Meters of a database: bytes of its log, commits and versions of rows since a moment."""

from __future__ import annotations

import sqlite3
import struct
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

import psycopg
import pymysql
from sqlalchemy import URL

from benchmarks.workload import until

LOG, COMMITS, NEW, DEAD = "log", "commits", "new row versions", "dead row versions"
UNITS: Mapping[str, str] = {LOG: "bytes", COMMITS: "commits", NEW: "rows", DEAD: "rows"}
"""The readings of meters, with their units."""
SETTLE_SECONDS = 30.0


class Meter(ABC):
    """Reads one database, while nobody else writes on its server."""

    @abstractmethod
    def totals(self) -> Counter[str]:
        """Return the writes so far, once all that works in the background has ended."""

    @abstractmethod
    def close(self) -> None:
        """Leave the database."""


class _PostgreSQL(Meter):
    """The write-ahead log without images of pages: how many there are is up to checkpoints.

    Nothing is vacuumed meanwhile: the dead rows say how much that would have to do.
    """

    def __init__(self, url: URL) -> None:
        self._connection = psycopg.connect(
            url.set(drivername="postgresql").render_as_string(hide_password=False), autocommit=True
        )
        self._connection.execute("CREATE EXTENSION IF NOT EXISTS pg_walinspect")
        self._connection.execute("ALTER SYSTEM SET autovacuum = off")
        self._connection.execute("SELECT pg_reload_conf()")
        self._start = self._flushed()

    def close(self) -> None:
        self._connection.execute("ALTER SYSTEM RESET autovacuum")
        self._connection.execute("SELECT pg_reload_conf()")
        self._connection.close()

    def totals(self) -> Counter[str]:
        # A session reports its counts when it ends.
        sessions = (
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
            "AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
        )
        until(lambda: not self._one(sessions), "the other sessions have ended", SETTLE_SECONDS)
        end = self._flushed()
        [log] = self._row("SELECT CAST(%s AS pg_lsn) - CAST(%s AS pg_lsn)", end, self._start)
        images, commits = self._row(
            "SELECT sum(fpi_length), count(*) FILTER "
            "(WHERE resource_manager = 'Transaction' AND record_type LIKE 'COMMIT%%') "
            "FROM pg_get_wal_records_info(%s, %s)",
            self._start,
            end,
        )
        new, dead = self._row(
            "SELECT sum(n_tup_ins + n_tup_upd), sum(n_tup_upd + n_tup_del) FROM pg_stat_user_tables"
        )
        read = {LOG: log - images, COMMITS: commits, NEW: new, DEAD: dead}
        return Counter({name: int(total) for name, total in read.items()})

    def _flushed(self) -> str:
        # A commit, so that all before it is flushed, too.
        self._connection.execute("SELECT pg_logical_emit_message(true, '', '')")
        return str(self._one("SELECT pg_current_wal_flush_lsn()"))

    def _row(self, statement: str, *values: str) -> tuple[int, ...]:
        row = self._connection.execute(statement.encode(), values or None).fetchone()
        return row or ()

    def _one(self, statement: str) -> int | str:
        return self._row(statement)[0]


class _InnoDB(Meter):
    """The redo log, of the purge of old versions as well; not the binary log."""

    _position: ClassVar[str]
    """The status variable that says where the log ends."""

    def __init__(self, url: URL) -> None:
        self._connection = pymysql.connect(
            host=url.host or "",
            port=url.port or 0,
            user=url.username,
            password=url.password or "",
            autocommit=True,
        )
        self._all("SET GLOBAL innodb_monitor_enable = 'trx_rw_commits'")

    def close(self) -> None:
        self._connection.close()

    def totals(self) -> Counter[str]:
        until(lambda: not self._metric("trx_rseg_history_len"), "all is purged", SETTLE_SECONDS)
        inserted, updated, deleted = self._rows()
        return Counter(
            {
                LOG: self._status(self._position),
                COMMITS: self._metric("trx_rw_commits"),
                NEW: inserted + updated,
                DEAD: updated + deleted,
            }
        )

    @abstractmethod
    def _rows(self) -> list[int]:
        """Rows inserted, updated and deleted."""

    def _status(self, name: str) -> int:
        [[_, value]] = self._all("SHOW GLOBAL STATUS LIKE %s", name)
        return int(value)

    def _metric(self, name: str) -> int:
        [[value]] = self._all(
            "SELECT count FROM information_schema.innodb_metrics WHERE name = %s", name
        )
        return int(value)

    def _all(self, statement: str, *values: str) -> tuple[tuple[str, ...], ...]:
        with self._connection.cursor() as cursor:
            cursor.execute(statement, values or None)
            return cursor.fetchall()


class _MariaDB(_InnoDB):
    _position = "Innodb_lsn_current"

    def _rows(self) -> list[int]:
        return [self._status(f"Handler_{what}") for what in ("write", "update", "delete")]


class _MySQL(_InnoDB):
    _position = "Innodb_redo_log_current_lsn"

    def __init__(self, url: URL) -> None:
        super().__init__(url)
        # Else a purge that has nothing more to do leaves a history.
        self._all("SET GLOBAL innodb_purge_rseg_truncate_frequency = 1")

    def _rows(self) -> list[int]:
        # Its handlers count temporary tables, too.
        return [self._metric(f"dml_{what}") for what in ("inserts", "updates", "deletes")]


class _SQLite(Meter):
    """The write-ahead log: its frames are pages, each with a head.

    A reader that never ends keeps it from starting anew.
    """

    _HEAD, _FRAME_HEAD = 32, struct.Struct(">6I")

    def __init__(self, url: URL) -> None:
        self._log = Path(f"{url.database}-wal")
        self._connection = sqlite3.connect(url.database or "", isolation_level=None)
        [[self._page]] = self._connection.execute("PRAGMA page_size").fetchall()
        self._connection.execute("BEGIN")
        self._connection.execute("SELECT 1 FROM sqlite_master").fetchall()

    def close(self) -> None:
        self._connection.close()

    def totals(self) -> Counter[str]:
        log = self._log.read_bytes()
        # The second field of the last frame of a commit is the size of the file.
        commits = sum(
            self._FRAME_HEAD.unpack_from(log, start)[1] > 0
            for start in range(self._HEAD, len(log), self._FRAME_HEAD.size + self._page)
        )
        return Counter({LOG: len(log), COMMITS: commits})


_METERS: Mapping[str, Callable[[URL], Meter]] = {
    "postgresql": _PostgreSQL,
    "mariadb": _MariaDB,
    "mysql": _MySQL,
    "sqlite": _SQLite,
}


@contextmanager
def meter(database: str, url: URL) -> Iterator[Meter]:
    """Read the writes to a database from now on; `database` is a name of its kind."""
    made = _METERS[database](url)
    try:
        yield made
    finally:
        made.close()
