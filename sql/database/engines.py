"""Pools of the library's connections to one database: one per use, with its session settings."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from sqlalchemy import URL, Engine, create_engine, event, make_url
from sqlalchemy.pool import ConnectionPoolEntry, NullPool, QueuePool

from sql.database.idle_connections import IdleConnections
from sql.dialect import Dialect
from sql.drivers.hot_path import OURS, Use
from sql.errors import UnsupportedDatabaseError
from sql.registry import own_url, recognised
from sql.time_limits import TimeLimits

EACH_COMMITS: dict[str, Any] = {"isolation_level": "AUTOCOMMIT", "skip_autocommit_rollback": True}
"""Options of an engine on whose connections each statement is a transaction."""


def _connects_as(engine: Engine, url: URL) -> bool:
    """Whether an application's engine connects as ours do.

    Of one that does not, the URL alone can be taken over. psycopg has one name for both of its
    drivers, the asynchronous one too.
    """
    return engine.driver == url.get_driver_name() and not engine.dialect.is_async


class Engines:
    """All engines for a URL, or for an application's engine.

    The way of connecting is that of the application's engine.

    Connects to MySQL's servers to learn whether they are MariaDB, and to PostgreSQL's to find a
    pooler that can't be used. Raises UnsupportedDatabaseError and MissingDriverError.
    """

    def __init__(
        self,
        target: str | URL | Engine,
        *,
        statement_timeout_seconds: float,
        application_name: str,
    ) -> None:
        asked = own_url(target.url if isinstance(target, Engine) else make_url(target))
        given = target if isinstance(target, Engine) and _connects_as(target, asked) else None
        limits: dict[str, Any] = {
            "statement_timeout_seconds": statement_timeout_seconds,
            "application_name": application_name,
        }
        self.dialect: Dialect
        self.dialect, self.url = recognised(asked, **limits)
        self._options = self._options_of(given, self.dialect.connect_options(**limits), limits)
        self._given = given
        self._refuse_poolers()
        self._pid = os.getpid()
        self.closed = False
        """Whether connections are closed as soon as they come back."""
        self.opened = 0
        """Connections that were opened so far."""
        self.transactions = self._open(Use.TRANSACTIONS)
        self.lent = self._open(Use.LENT)
        """For transactions that users' code holds, however long.

        They take no connection from ours.
        """
        self.autocommit = self._open(Use.AUTOCOMMIT, **EACH_COMMITS)
        """Each statement is a transaction.

        To switch a connection costs as much as BEGIN and COMMIT.
        """
        self.inserts = self.autocommit
        """Singles that only insert, where the database can keep the plans of such."""
        if self.dialect.capabilities.keeps_plans:
            self.inserts = self._open(Use.INSERTS, **EACH_COMMITS)

    @staticmethod
    def _options_of(
        given: Engine | None, connecting: dict[str, Any], limits: dict[str, Any]
    ) -> dict[str, Any]:
        # Errors are logged, and their texts kept in history: no payload may be in them.
        options: dict[str, Any] = {"hide_parameters": True}
        if given is not None:
            # The rest is for its own way of connecting to say.
            return {
                key: value for key, value in connecting.items() if key == "isolation_level"
            } | options
        seconds = TimeLimits(limits["statement_timeout_seconds"]).statement
        pool = {"pool_reset_on_return": None, "max_overflow": 50, "pool_timeout": seconds}
        return connecting | pool | options

    def _bare(self, **changes: Any) -> Engine:
        """An engine that connects as ours do, with no settings yet."""
        pool = {} if self._given is None else {"pool": self._given.pool.recreate()}
        return create_engine(self.url, **(self._options | pool | changes))

    def _refuse_poolers(self) -> None:
        probe = self._bare()
        shared = self.dialect.shares_sessions(probe)
        probe.dispose()
        if shared:
            raise UnsupportedDatabaseError(
                f"{self.url.render_as_string(hide_password=True)} is a pooler that hands each "
                "session of the server to several clients in turn, as PgBouncer does with "
                "pool_mode = transaction or statement. Stickybus's settings and locks would stay "
                "on sessions of other clients. Nothing was set or written; name the server "
                "itself, or a pool with pool_mode = session."
            )

    def _open(self, use: Use, **changes: Any) -> Engine:
        engine = self._bare(execution_options={OURS: use}, **changes)
        if isinstance(engine.pool, QueuePool):
            engine.pool._pool = IdleConnections(engine.pool.size())  # noqa: SLF001 -- no public name
        self.dialect.prepare(engine)
        self._give_up_stale_sessions(engine)
        event.listen(engine, "connect", self._count)
        event.listen(engine, "checkin", self._let_go)
        return engine

    def _give_up_stale_sessions(self, engine: Engine) -> None:
        """Let the pool replace a session that can't write any more, and all that are as old."""
        # Nothing that holds pools: SQLAlchemy keeps up to 128 dialects whose tables were looked at.
        stale, broken = self.dialect.is_stale, engine.dialect.is_disconnect

        def is_disconnect(error: Any, connection: Any, cursor: Any) -> bool:
            return stale(error) or broken(error, connection, cursor)

        engine.dialect.is_disconnect = is_disconnect  # type: ignore[method-assign,assignment]  # this engine's alone

    @property
    def all(self) -> list[Engine]:
        """All that connects."""
        return list(dict.fromkeys((self.transactions, self.lent, self.autocommit, self.inserts)))

    @property
    def keeps_connections(self) -> bool:
        """Whether a connection outlives its use."""
        return not isinstance(self.transactions.pool, NullPool)

    def spare(self, left: int, most: int) -> int:
        """The connections that may be kept out of a pool: at most `most`; `left` stay in it.

        The application's pool has a size, or keeps none. Ours has room for all.
        """
        if self._given is None:
            return most
        size = self._given.pool.size() if isinstance(self._given.pool, QueuePool) else 0
        return max(0, min(most, size - left))

    def _count(self, _driver: object, _record: object) -> None:
        self.opened += 1

    def _let_go(self, _connection: object, record: ConnectionPoolEntry) -> None:
        """Close a connection that was in use when its pool was disposed of."""
        if self.closed and self.are_own:
            record.invalidate()

    @property
    def are_own(self) -> bool:
        """Whether this process opened them. In a child of a fork they are still the parent's."""
        return os.getpid() == self._pid

    def close(self, give_back: Callable[[], None]) -> None:
        """Close connections that are not in use. Those in use close when they come back.

        `give_back` returns connections that are kept out of the pools.
        """
        own, again = self.are_own, self.closed
        self.closed = True
        if own:
            give_back()
        for engine in self.all:
            engine.dispose(close=own)
            if own and not again:
                self.dialect.closed()
