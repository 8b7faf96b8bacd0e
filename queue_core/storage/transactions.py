"""Transactions, a caller's or our own, on one database and by its clock."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError, IntegrityError, InvalidRequestError, SQLAlchemyError

from queue_core.errors import DatabaseUnreachableError, ForkedError, PayloadTooLargeError
from queue_core.runtime.callers import CallersConnection
from queue_core.runtime.clock import Clock, SystemClock, read_clock
from queue_core.storage.callers_connection import Borrowed, borrow, explain, unusable
from queue_core.storage.unreachable import unreachable
from sql.database import Database

T = TypeVar("T")


class Transactions:
    """On the tables that belong to `table`, which have the `schema`.

    `clock_seconds`: for how long a reading of the database's clock is good.
    """

    def __init__(
        self,
        database: Database,
        clock: Clock,
        *,
        table: str,
        schema: str | None,
        clock_seconds: float,
    ) -> None:
        self._database = database
        self._pid = os.getpid()
        self._table = table
        self._clock_seconds = clock_seconds
        self.clock = clock
        self.schema = schema
        self._tried_at = float("-inf")
        """When the database's clock was to be read last (monotonic), by other than beats."""

    # -- time -------------------------------------------------------------------------------------

    def now(self, callers: CallersConnection | None = None) -> datetime:
        """The time by the database's clock; see `keep_time`."""
        self.keep_time(callers)
        return self.clock.now()

    def keep_time(self, callers: CallersConnection | None = None) -> None:
        """Read the database's clock, unless it was read a short while ago.

        Beats read it where a node runs.

        Raises DatabaseUnreachableError, unless there is a caller's connection, which may reach a
        server that ours can't: a reader of the time would wait for as long again.
        """
        clock = self.clock
        if not isinstance(clock, SystemClock):
            return
        age, moment = self._clock_seconds, clock.monotonic()
        if moment - clock.followed_at < age or moment - self._tried_at < age:
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
            if callers is None:
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
                f"{self._table}: made in process {self._pid}, used in its child {os.getpid()} "
                "after a fork. Nothing was written. Make the bus or service in the child, after "
                "the fork.",
                table=self._table,
                started_pid=self._pid,
            )

    # -- transactions -----------------------------------------------------------------------------

    def borrow(self, callers: CallersConnection | None, queue_name: str | None = None) -> Borrowed:
        """The caller's connection; see `queue_core.storage.callers_connection`.

        `queue_name`: the queue that an error names.
        """
        try:
            return borrow(callers, self.database, self.schema)
        except InvalidRequestError as error:  # a question to the server was refused
            raise unusable(error, queue_name) from error

    def inside(
        self, callers: CallersConnection | None, queue_name: str, work: Callable[[Connection], T]
    ) -> T:
        """Run `work` in the caller's transaction. Errors are raised and never retried.

        The transaction is lost already.
        """
        return self.inside_borrowed(self.borrow(callers, queue_name), queue_name, work)

    def inside_borrowed(
        self, borrowed: Borrowed, queue_name: str, work: Callable[[Connection], T]
    ) -> T:
        """As `inside`, on a connection that was borrowed already.

        Raises InvalidConnectionError if SQLAlchemy lets it send nothing, as after a rollback in a
        `with connection.begin()` that has not ended.
        """
        try:
            return work(borrowed.connection)
        except InvalidRequestError as error:
            raise unusable(error, queue_name) from error
        except DBAPIError as error:
            error.hide_parameters = True  # payloads are among them
            explained = explain(error, self.database, queue_name)
            if explained is error:
                raise
            raise explained from error

    def write(
        self, callers: CallersConnection | None, queue_name: str, work: Callable[[Connection], T]
    ) -> T:
        """Run `work` in the caller's transaction if one is given, else in one of its own."""
        if callers is not None:
            return self.inside(callers, queue_name, work)
        return self.reaching(lambda: self.database.write(work))

    def write_raced(
        self, callers: CallersConnection | None, queue_name: str, work: Callable[[Connection], T]
    ) -> T:
        """As `write`, for work that adds a row unless it finds it: another may add it meanwhile.

        In the caller's transaction, an IntegrityError says so. In one of its own, `work` is run
        once more.
        """
        try:
            return self.write(callers, queue_name, work)
        except IntegrityError:  # another one added it between our look and our insert
            if callers is not None:
                raise
            return self.write(None, queue_name, work)

    def read(
        self, callers: CallersConnection | None, queue_name: str, work: Callable[[Connection], T]
    ) -> T:
        """As `write`, for work that only reads."""
        if callers is not None:
            return self.inside(callers, queue_name, work)
        return self.reaching(lambda: self.database.fetch(work))

    def reaching(self, work: Callable[[], T], written: Sequence[int] = ()) -> T:
        """Run `work` on connections of the library.

        Raises DatabaseUnreachableError if the database doesn't answer, and PayloadTooLargeError if
        it takes no statement of this size.

        `written` holds the ids that `work` has written by then, as far as they are known.
        """
        try:
            return work()
        except DBAPIError as error:
            if error.connection_invalidated or _tells_of_no_connection(error):
                stale = self.database.dialect.is_stale(error.orig or error)
                raise unreachable(self.database.url, error, written, only_reads=stale) from error
            if self.database.dialect.is_too_large(error.orig or error):
                raise PayloadTooLargeError(
                    "the server takes no statement of this size (max_allowed_packet). Nothing was "
                    "written. Send less at once, or raise that setting."
                ) from error
            raise


def _tells_of_no_connection(error: DBAPIError) -> bool:
    """Whether no connection was had.

    The error of a statement may say "connect" as well: a trigger does, or the name of a constraint.
    """
    return error.statement is None and "connect" in str(error.orig).lower()


def clock_of(database: Database) -> Clock:
    """A clock that shows the database's time from the first post on; beats keep it so."""
    clock = SystemClock()
    now = database.dialect.database_now
    reading = database.fetch(lambda connection: read_clock(partial(now, connection)))
    clock.follow(reading)
    return clock
