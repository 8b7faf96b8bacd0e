"""NOTIFY and LISTEN: how sessions of PostgreSQL tell each other of commits."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Generator, Iterator
from contextlib import contextmanager
from select import POLLIN, poll
from typing import Any

from sqlalchemy import Connection, Engine, bindparam, func, select

from sql.drivers.detached import detached
from sql.time_limits import milliseconds
from sql.watching import Heard, Hint, Watch

LISTEN_SECONDS = 10.0
"""Longest wait for a notification; a bell ends it."""

_NOTIFY = select(func.pg_notify(bindparam("channel"), bindparam("payload")))


def commits_of_others(engine: Engine, watch: Watch) -> Generator[Heard, None, None]:
    """See `Dialect.commits_of_others`: the payloads of NOTIFY.

    One hint comes first: others may have committed while nobody listened.
    """
    with listening(engine, watch.channel, watch.bell.fileno()) as notified:
        yield Heard(watch.monotonic())
        while not watch.bell.rung:
            for payload in set(notified(LISTEN_SECONDS)):
                yield Heard(watch.monotonic(), payload)


def tell_at_commit(connection: Connection, hint: Hint) -> None:
    """See `Dialect.notify`."""
    connection.execute(_NOTIFY, hint._asdict())


class PostgreSQLNotifier:
    """Notifies on a channel.

    It sends through libpq itself, since psycopg would wait for each answer.
    """

    def __init__(self, engine: Engine, channel: str, answer_seconds: float) -> None:
        self.driver = _detached(engine)
        # A hint need not survive a crash: others' commits should not wait for the log to be flushed
        # once more.
        self.driver.execute("SET synchronous_commit = off")
        self._command = f"NOTIFY {engine.dialect.identifier_preparer.quote(channel)}, "
        self._answer_seconds = answer_seconds
        self._sent_at = time.monotonic()

    @property
    def is_open(self) -> bool:
        """See `Notifier.is_open`."""
        return not self.driver.closed

    def notify(self, payloads: Collection[str]) -> bool:
        """See `Notifier.notify`."""
        from psycopg import Error

        session, now = self.driver.pgconn, time.monotonic()
        try:
            session.consume_input()
            if session.is_busy():
                if now - self._sent_at > self._answer_seconds:
                    self.close()
                return False
            while session.get_result() is not None:
                pass  # of the one before: refused or not, it was a hint
            session.consume_input()  # raises if the server has closed it since
            session.send_query("; ".join(map(self._notify, payloads)).encode())
            session.flush()
        except Error:
            self.close()
            return False
        self._sent_at = now
        return True

    def _notify(self, payload: str) -> str:
        return self._command + "'" + payload.replace("'", "''") + "'"

    def close(self) -> None:
        """See `Notifier.close`."""
        self.driver.close()


def _detached(engine: Engine) -> Any:
    """A driver's connection that no pool has any more, and on which each statement commits."""
    driver = detached(engine)  # its changes of the session are not for others
    driver.autocommit = True
    return driver


@contextmanager
def listening(engine: Engine, channel: str, bell: int) -> Iterator[Callable[[float], list[str]]]:
    """A function that waits for notifications on `channel` and returns their payloads.

    It takes the longest wait, in seconds.

    It returns at once when the file descriptor `bell` has something to read.
    """
    driver = _detached(engine)
    try:
        driver.execute(f"LISTEN {engine.dialect.identifier_preparer.quote(channel)}")
        connection, encoding, waiting = driver.pgconn, driver.info.encoding, poll()
        for file in (connection.socket, bell):
            waiting.register(file, POLLIN)

        def notified(seconds: float) -> list[str]:
            waiting.poll(milliseconds(seconds))
            connection.consume_input()
            return [notice.extra.decode(encoding) for notice in iter(connection.notifies, None)]

        yield notified
    finally:
        driver.close()
