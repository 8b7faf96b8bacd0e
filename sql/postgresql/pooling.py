"""Whether a pooler before PostgreSQL lends one session of the server to several clients in turn.

PgBouncer does so with pool_mode = transaction or statement. Settings of a session, its advisory
locks and its LISTEN would be left on sessions that serve other clients next.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from sqlalchemy import Connection, Engine

from sql.postgresql.libpq import guard

_TURNS = "abaab" * 3
"""In which two clients ask.

Irregular: a pooler that takes its sessions by turns must not keep step with it.
"""


def shares_sessions(engine: Engine, answer_seconds: float) -> bool:
    """See `Dialect.shares_sessions`.

    Leaves nothing on any session, and waits no longer for an answer.
    """
    with ExitStack() as opened:

        def connect() -> tuple[Connection, int]:
            connection = opened.enter_context(engine.connect())
            connection.execution_options(isolation_level="AUTOCOMMIT")
            driver: Any = connection.connection.driver_connection
            connection.detach()  # a pool of one has room for the second, then
            guard(driver, answer_seconds)
            driver.prepare_threshold = None
            return connection, driver.info.backend_pid

        first, told = connect()
        if _process(first) == told:
            return False  # a pooler makes a number up
        second, _ = connect()
        clients = {"a": first, "b": second}
        seen: dict[str, set[int]] = {"a": set(), "b": set()}
        for name in _TURNS:
            seen[name].add(_process(clients[name]))
        return bool(seen["a"] & seen["b"]) or any(len(processes) > 1 for processes in seen.values())


def _process(connection: Connection) -> int:
    return int(connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one())
