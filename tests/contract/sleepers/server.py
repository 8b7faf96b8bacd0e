"""A server's sessions: those that sleep, and those of applications."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from sqlalchemy import URL, create_engine, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from queue_core.claiming.hint_sender import channel
from sql.mysql import sleepers
from tests.contract.harness import BOUND_SECONDS, eventually

CHANNEL = channel("bus_events")
SLEEP = f"SELECT SLEEP({sleepers.SLEEP_SECONDS}) AS {CHANNEL}"


class Server:
    """The server's sessions, as its administrator sees them."""

    def __init__(self, url: URL, name: str) -> None:
        self._engine = create_engine(url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
        schema_name = "information_schema" if name == "mariadb" else "performance_schema"
        self._sessions = f"{schema_name}.processlist"

    def run(self, statement: str, **values: object) -> Any:
        """Run a statement; return its rows."""
        with self._engine.connect() as connection:
            result = connection.execute(text(statement), values)
            return result.all() if result.returns_rows else None

    def sleepers(self, statement: str = SLEEP) -> set[int]:
        """Return the sessions of the database that run the statement."""
        found = f"SELECT id FROM {self._sessions} WHERE db = DATABASE() AND info = :wanted"
        return {row.id for row in self.run(found, wanted=statement)}

    def sleeper(self, statement: str = SLEEP) -> int:
        """Wait for a session that sleeps, and return it."""
        return min(eventually(lambda: self.sleepers(statement), "a session sleeps"))

    def kill(self, session: int) -> None:
        """End a session."""
        with suppress(DBAPIError):  # it may have left by itself
            self.run(f"KILL {session}")


@contextmanager
def running(server: Server, url: URL, statement: str) -> Iterator[int]:
    """A session of an application that runs a statement; yields its number."""
    engine = create_engine(url, poolclass=NullPool)

    def run() -> None:
        with suppress(DBAPIError), engine.connect() as connection:
            connection.exec_driver_sql(statement)

    thread = threading.Thread(target=run)
    thread.start()
    session = server.sleeper(statement)
    try:
        yield session
    finally:
        server.kill(session)
        thread.join(BOUND_SECONDS)
