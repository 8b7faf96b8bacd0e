"""A database's ways: its connections, its locks, and the errors that pass.

Callers never ask which database it is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from datetime import UTC, datetime
from typing import Any, TypeVar

from sqlalchemy import URL, Connection, Engine, text
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from sql.capabilities import Capabilities
from sql.drivers.bulk import BulkReads
from sql.drivers.raw import RawDriver
from sql.families import Family
from sql.partitions import Partitions
from sql.settling import Ended, OpenDatabase
from sql.time_limits import TimeLimits
from sql.watching import Heard, Hint, Notifier, Watch
from sql.writer_lock import NO_LOCK, WriterLock

S = TypeVar("S")
T = TypeVar("T")

MARK = "stickybus_run"
"""A savepoint; it is gone when its transaction is."""


_PART = (
    "SAVEPOINT stickybus_part",
    "ROLLBACK TO SAVEPOINT stickybus_part",
    "RELEASE SAVEPOINT stickybus_part",
)
"""Begins, undoes and ends a part of a transaction."""


class Dialect:
    """A database's ways. One instance for each `Database`."""

    name: str
    own_statements: tuple[type[object], ...] = ()
    """Classes of statements that this database needs in another shape.

    Each replaces the class that it derives from.
    """
    capabilities = Capabilities()
    """The facts by which callers choose."""
    bulk = BulkReads()
    """The rows that are read at once."""
    partitions = Partitions()
    """The division of history."""
    raw: RawDriver
    """Callers' connections by this database's own driver."""
    _limits: TimeLimits
    """Of the connections, since `connect_options`."""
    _least_lock_limit = 0.0
    """The shortest wait for a lock, in seconds, that a session can be limited to."""

    def statements_for(self, family: Family[S]) -> type[S]:
        """The class of the statements on a family's tables, as this database takes them."""
        written = family.statements
        return next((own for own in self.own_statements if issubclass(own, written)), written)

    @property
    def reached_as(self) -> frozenset[str]:
        """SQLAlchemy's names of dialects by which an application may reach this database."""
        return frozenset({self.name})

    def own_url(self, url: URL) -> URL:
        """A URL of this kind as our own connections take it. Raises UnsupportedDatabaseError."""
        return url

    def recognise(self, engine: Engine) -> str:
        """The name of the database that `engine` leads to. One URL may lead to several kinds."""
        del engine
        return self.name

    def schema_of(self, connection: Connection, table_name: str) -> str | None:
        """The schema in which `connection` finds a table. None where the database decides that."""
        del connection, table_name
        return None

    def largest_statement(self, connection: Connection) -> int | None:
        """Bytes of the largest statement that the server takes; None where it takes any."""
        del connection
        return None

    def server(self, connection: Connection) -> str | None:
        """The server's own name, the same however it is reached. None if it tells nothing."""
        del connection
        return None

    def identity(self, connection: Connection) -> str:
        """Names the server, the database and the schema of `connection`, by their own words.

        Needs no special rights.
        """
        raise NotImplementedError

    def connect_options(
        self, *, statement_timeout_seconds: float, application_name: str
    ) -> dict[str, Any]:
        """Arguments of `create_engine` for our own connections."""
        raise NotImplementedError

    def path_name(self, url: URL) -> str | None:
        """A name of the database by its file, for archives. None if its server names it."""
        del url
        return None

    def read_widely(self, engine: Engine) -> None:
        """Let connections of `engine` use indices in ways that claims must not."""

    def settled(self, database: OpenDatabase, ended: Ended) -> bool:
        """Whether by the deadline all rows inserted by now were committed or undone."""
        raise NotImplementedError

    def shares_sessions(self, engine: Engine) -> bool:
        """Whether `engine` leads to a pooler that lends one session to several clients in turn.

        `engine` has none of our settings.
        """
        del engine
        return False

    def prepare(self, engine: Engine) -> None:
        """Attach to an engine of the library the steps for each connection that opens."""

    def closed(self) -> None:
        """The engine that was prepared is disposed of."""

    def check_open(self, driver: Any) -> None:
        """Raises DisconnectionError if the server has closed a connection about to be used."""

    def writer_lock(self) -> WriterLock:
        """The lock for one block in which the library writes."""
        return NO_LOCK

    def writes_for_caller(self) -> None:
        """A caller's transaction has written what this process looks for when it ends.

        So its commit is none of others.
        """

    def lending(self, connection: Connection) -> AbstractContextManager[None]:
        """The block of a transaction in which the user's code writes, in this thread."""
        del connection
        return nullcontext()

    def is_idle(self, driver: Any) -> bool:
        """Whether a driver's connection is between transactions, and waits for no answer."""
        raise NotImplementedError

    def may_have_cut_off(self, error: BaseException) -> bool:
        """Whether, after a block that raised `error`, an answer may be outstanding unseen."""
        return not isinstance(error, Exception)

    def mark(self, connection: Connection) -> None:
        """Mark the transaction that has begun: `unmark` tells whether it is still the same one."""
        connection.exec_driver_sql(f"SAVEPOINT {MARK}")

    def unmark(self, connection: Connection) -> None:
        """Take the mark away: what follows in the transaction is the library's.

        Raises DBAPIError if the marked transaction is over, or can't be committed any more.
        """
        connection.exec_driver_sql(f"RELEASE SAVEPOINT {MARK}")

    @contextmanager
    def part(self, connection: Connection) -> Iterator[None]:
        """Undo the writes of the block, and nothing else, if it raises.

        On a caller's connection that commits each statement, the block is a transaction.
        """
        alone = self._commits_each(connection)
        begin, undo, end = ("BEGIN", "ROLLBACK", "COMMIT") if alone else _PART
        connection.exec_driver_sql(begin)
        try:
            yield
        except BaseException:
            with suppress(SQLAlchemyError):  # a broken connection's server has done so
                connection.exec_driver_sql(undo)
                if not alone:
                    connection.exec_driver_sql(end)
            raise
        connection.exec_driver_sql(end)

    def _commits_each(self, connection: Connection) -> bool:
        """Whether a caller's connection is outside of any transaction, and begins none itself."""
        if not self.raw.autocommits(connection, raw=False):
            return False
        try:
            return self.is_idle(connection.connection.driver_connection)
        except AttributeError:  # of another driver, whose transactions SQLAlchemy begins
            return True

    @contextmanager
    def lock_waits(self, connection: Connection, seconds: float) -> Iterator[None]:
        """Let the transaction wait for a lock no longer than that in this block."""
        del connection, seconds
        yield

    def is_lock_refusal(self, error: DBAPIError) -> bool:
        """Whether a statement has waited for a lock for as long as it may, and was undone alone."""
        del error
        return False

    def autocommit(self, connection: Connection, work: Callable[[Connection], T]) -> T:
        """Run `work`, one statement that commits by itself."""
        return work(connection)

    def read_on(self, connection: Connection) -> None:
        """A connection on which each statement commits is going to read."""

    def is_transient(self, error: DBAPIError) -> bool:
        """Whether the same transaction may succeed when it is run again."""
        raise NotImplementedError

    def is_duplicate(self, error: DBAPIError) -> bool:
        """Whether a statement was refused because a unique key of a row is taken."""
        raise NotImplementedError

    def is_stale(self, error: BaseException) -> bool:
        """Whether a driver's error says that its session can't write any more.

        A session that outlived a fail-over can't.
        """
        return False

    def is_too_large(self, error: BaseException) -> bool:
        """Whether a driver's error says that the server takes no statement of this size."""
        return False

    def database_now(self, connection: Connection) -> datetime:
        """The server's clock in UTC, or this machine's where there is no server."""
        del connection
        return datetime.fromtimestamp(time.time(), UTC)

    @contextmanager
    def impatient(self, connection: Connection, seconds: float) -> Iterator[float]:
        """Let the session wait for a lock no longer than that in this block.

        Yields the seconds that it waits: a server may have a least limit.
        """
        self._limit_lock_waits(connection, seconds)
        try:
            yield max(seconds, self._least_lock_limit)
        finally:
            connection.rollback()
            self._limit_lock_waits(connection, self._limits.lock)

    def _limit_lock_waits(self, connection: Connection, seconds: float) -> None:
        connection.execute(text(self._lock_limit(seconds)))
        connection.commit()

    def _lock_limit(self, seconds: float) -> str:
        """The statement after which a session waits for a lock no longer than that."""
        raise NotImplementedError

    def index_progress(self, connection: Connection) -> float | None:
        """The share that is done, from 0 to 1, of the index that a session builds here.

        None if none is built, or if the database does not tell.
        """
        del connection
        return None

    @contextmanager
    def named_lock(self, connection: Connection, name: str, *, wait: bool) -> Iterator[bool]:
        """Hold a lock of the whole database on `connection`. Yields whether it was obtained.

        With `wait` it always is.

        Taken by migrations, and by truncation, archive and replay of one history.
        """
        del connection, name, wait
        yield True

    def lock_holder(self, connection: Connection, name: str) -> str | None:
        """The holder of a named lock, as a message says it.

        None if nobody does by now, or if the database does not tell.
        """
        del connection, name
        return None

    def notify(self, connection: Connection, hint: Hint) -> None:
        """Tell listeners when the connection's transaction commits, where the database can."""

    def notifier(self, engine: Engine, channel: str) -> Notifier | None:
        """A session that tells listeners of others' commits. None where the database can't."""
        del engine, channel
        return None

    def commits_of_others(self, engine: Engine, watch: Watch) -> Generator[Heard, None, None]:
        """Hints of others' commits, until the watch's bell rings.

        Only with the capability `hears_commits` or `wakes_idle`. It opens a connection through
        `engine`, in the thread that asks. Raises the driver's errors.
        """
        raise NotImplementedError
