"""Two database sessions that meet at a row lock, without sleeping and hoping."""

from __future__ import annotations

import fcntl
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Connection, text

BOUND_SECONDS = 20.0

# information_schema.innodb_trx is a cache that InnoDB renews only when nobody has read it for 0.1
# s: who polls faster, or beside another test's process, sees the same old rows for ever.
_INNODB_TRX_PACE_SECONDS = 0.15
_INNODB_TRX_TURN = Path(tempfile.gettempdir()) / "stickybus-tests-innodb-trx.lock"


def poll_until(condition: Callable[[], bool], what: str) -> None:
    """Return as soon as `condition` is true; AssertionError naming `what` after `BOUND_SECONDS`."""
    deadline = time.monotonic() + BOUND_SECONDS
    pace = threading.Event()
    while not condition():
        assert time.monotonic() < deadline, f"never came true: {what}"
        pace.wait(_INNODB_TRX_PACE_SECONDS)


@contextmanager
def _turn_at_innodb_trx() -> Iterator[None]:
    """Wait until innodb_trx has been renewed, and nobody reads it meanwhile."""
    with _INNODB_TRX_TURN.open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        threading.Event().wait(_INNODB_TRX_PACE_SECONDS)
        yield


def session_id(connection: Connection) -> int:
    """The server's own number of this session."""
    function = {
        "postgresql": "pg_backend_pid()",
        "mysql": "connection_id()",
        "mariadb": "connection_id()",
    }
    return int(connection.scalar(text(f"SELECT {function[connection.dialect.name]}")) or 0)


def wait_until_blocked(observer: Connection, session: int) -> None:
    """Return once the server shows that `session` waits for a lock.

    `observer` is another session.
    """

    def blocked() -> bool:
        if observer.dialect.name == "postgresql":
            waiting = "SELECT count(*) FROM pg_locks WHERE pid = :session AND NOT granted"
            return bool(observer.scalar(text(waiting), {"session": session}))
        waiting = (
            "SELECT count(*) FROM information_schema.innodb_trx "
            "WHERE trx_mysql_thread_id = :session AND trx_state = 'LOCK WAIT'"
        )
        with _turn_at_innodb_trx():
            return bool(observer.scalar(text(waiting), {"session": session}))

    poll_until(blocked, f"session {session} waits for a lock")


def rows_locked(observer: Connection, session: int) -> int:
    """Return the number of InnoDB's record locks of the open transaction of `session`.

    Index records and row records count.
    """
    counts: list[int] = []

    def statement_is_over() -> bool:
        with _turn_at_innodb_trx():
            counts[:] = observer.scalars(
                text(
                    "SELECT trx_rows_locked FROM information_schema.innodb_trx "
                    "WHERE trx_mysql_thread_id = :session AND trx_query IS NULL"
                ),
                {"session": session},
            )
        return bool(counts)

    poll_until(statement_is_over, f"session {session} has an idle transaction")
    return counts[0]
