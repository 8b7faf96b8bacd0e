"""Schedules that are not tried for a while, as what is due could not be inserted."""

from __future__ import annotations

import threading
from collections.abc import Collection

from queue_core.runtime.clock import Clock
from queue_core.storage.brief_waits import LockRefusedError
from sql.database import Database

FIRST_DELAY_SECONDS, LONGEST_DELAY_SECONDS = 1.0, 60.0
"""After the first failure; each further one doubles it up to the latter."""
LOCK_SECONDS = 1.0
"""How long a firing waits for rows that others have locked, once a schedule has failed."""


class PutOffSchedules:
    """In the memory of this process, by queue and name: each process finds out for itself."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._put_off = dict[str, dict[str, tuple[float, float]]]()
        """The length of each one's delay, and its end (monotonic)."""

    def put_off(self, queue: str, name: str) -> float:
        """Let a schedule be for a while; returns the seconds."""
        with self._lock:
            found = self._put_off.setdefault(queue, {})
            before, _ = found.get(name, (0.0, 0.0))
            seconds = min(max(2 * before, FIRST_DELAY_SECONDS), LONGEST_DELAY_SECONDS)
            found[name] = (seconds, self._clock.monotonic() + seconds)
        return seconds

    def try_again(self, queue: str, names: Collection[str] | None = None) -> None:
        """Forget the failures of schedules: of all of a queue, or of these."""
        with self._lock:
            found = self._put_off.get(queue, {})
            for name in list(found) if names is None else names:
                found.pop(name, None)
            if not found:
                self._put_off.pop(queue, None)

    def put_off_of(self, queue: str) -> dict[str, float]:
        """The schedules of a queue that have failed, with the seconds that they are to be let be.

        Below 0: they may be tried again.
        """
        now = self._clock.monotonic()
        with self._lock:
            return {name: end - now for name, (_, end) in self._put_off.get(queue, {}).items()}


def failed_firing(database: Database, error: BaseException) -> BaseException:
    """Why a schedule could not be fired; an error that says nothing of it is raised."""
    if isinstance(error, LockRefusedError):
        return error.__cause__ or error
    # A whole database that is locked says nothing of a schedule; nor can anybody claim.
    if database.dialect.capabilities.one_writer and database.is_transient(error):
        raise error
    return error


def told_of(error: BaseException) -> dict[str, object]:
    """What is logged of an error: not its text, in which databases show whole rows."""
    cause = getattr(error, "orig", None) or error
    code = getattr(cause, "sqlstate", None) or getattr(cause, "sqlite_errorname", None)
    if code is None and cause.args and isinstance(cause.args[0], int):
        code = cause.args[0]
    return {"error_type": type(cause).__name__, "code": code}
