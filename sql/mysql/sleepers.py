"""Sleepers: sessions that sleep in the server until others have committed.

MySQL and MariaDB have no NOTIFY. So an idle process has a session that runs `SELECT SLEEP(30)`,
named after its channel, and who commits ends that statement with KILL QUERY (ADR 0007). Users may
end statements of their own sessions without any privilege.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator
from contextlib import suppress
from select import POLLIN, poll
from typing import Any

from sqlalchemy import Engine
from sqlalchemy.exc import DisconnectionError

from sql.drivers.detached import detached
from sql.time_limits import milliseconds
from sql.watching import Bell, Heard, Watch

SLEEP_SECONDS = 30
"""The duration of one sleep. Proxies and firewalls mostly leave a silent connection for longer.

It is a part of the statement by which a session is found: another version that sleeps longer would
not be woken.
"""
LATE_SECONDS = 10.0
"""A sleep that lasts so much longer has lost its server."""
REST_SECONDS, LONGEST_REST_SECONDS = 0.05, 1.0
"""Pause from one sleep to the next, and the longest.

It doubles when a short sleep ended and nothing was found: others take what is posted. No benchmark
compares these with others.
"""
LONGEST_IDLE_SECONDS = 31_536_000
"""A year, the most that the servers take."""

_INTERRUPTED = 1317
"""ER_QUERY_INTERRUPTED: MariaDB's answer for a sleep that others ended. MySQL's is the number 1."""
_QUERY = 3
"""COM_QUERY, the command that runs a statement."""
_WAKE = "KILL QUERY @stickybus_sleeper"


def commits_of_others(engine: Engine, watch: Watch, unlimited: str) -> Generator[Heard, None, None]:
    """See `Dialect.commits_of_others`: the ends of sleeps.

    One hint comes as soon as a sleep has begun: others may have committed while nobody slept. While
    the process looks often by itself, nobody sleeps. `unlimited`: the setting without which the
    server would end statements that last.
    """
    # Servers note statements that last in a log of their own.
    driver = _session(engine, unlimited, f"long_query_time = {LONGEST_IDLE_SECONDS}")
    try:
        statement = _sleep(engine, watch.channel)
        rest = REST_SECONDS
        while not watch.bell.rung:
            began = watch.monotonic()
            driver._execute_command(_QUERY, statement)  # noqa: SLF001 -- others wait for the answer
            # Not `began`: a look since then may have come before the sleep.
            yield Heard(watch.monotonic())
            woken = _woken(driver, watch.bell)
            if woken is None:
                return
            if not woken:
                rest = REST_SECONDS
                continue
            ended = watch.monotonic()
            yield Heard(ended)
            rest = min(2 * rest, LONGEST_REST_SECONDS)
            if ended - began > LONGEST_REST_SECONDS:
                rest = REST_SECONDS
            watch.bell.wait(rest)
            while watch.looks_often() and not watch.bell.rung:
                rest = REST_SECONDS
                watch.bell.wait(rest)
    finally:
        # Without a farewell, which would wait unread: the server takes who has sent something for
        # present. Else it looks every 5 s whether somebody is, and ends the sleep.
        driver._force_close()  # noqa: SLF001


def _woken(driver: Any, bell: Bell) -> bool | None:
    """Wait for the end of a sleep. False if it has lasted for its whole time.

    None if the bell has rung.
    """
    waiting = poll()
    for file in (driver._sock, bell):  # noqa: SLF001 -- its socket has no public name
        waiting.register(file, POLLIN)
    if not waiting.poll(milliseconds(SLEEP_SECONDS + LATE_SECONDS)):
        raise TimeoutError("the server has not ended a statement in its time")
    if bell.rung:
        return None
    try:
        driver._read_query_result()  # noqa: SLF001 -- of a statement that was only sent
    except Exception as error:
        if error.args[:1] != (_INTERRUPTED,):
            raise
        return True
    return bool(driver._result.rows[0][0])  # noqa: SLF001 -- as above


class SleepersNotifier:
    """Ends the sleeps of a channel.

    The id of a session never leaves the server: with a proxy in between, the next statement may be
    another server's, where the same id is somebody else's.
    """

    def __init__(
        self, engine: Engine, channel: str, sessions: str, check_open: Callable[[Any], None]
    ) -> None:
        self._driver = _session(engine)
        self._check_open = check_open
        self._errors = engine.dialect.loaded_dbapi.Error
        self._sleep = _sleep(engine, channel)
        self._first, self._next = (
            f"SELECT MIN(id) INTO @stickybus_sleeper FROM {sessions} "  # noqa: S608 -- a name of ours
            "WHERE info = %s AND CAST(db AS BINARY) = CAST(DATABASE() AS BINARY) "
            f"AND id > {after} HAVING MIN(id) IS NOT NULL"
            for after in ("0", "@stickybus_sleeper")
        )

    @property
    def is_open(self) -> bool:
        """See `Notifier.is_open`."""
        if self._driver.open:
            try:
                self._check_open(self._driver)
            except DisconnectionError:
                self.close()
        return bool(self._driver.open)

    def notify(self, payloads: Collection[str]) -> bool:
        """See `Notifier.notify`. Sleepers hear no payloads.

        What can't be found or ended is left to the poll: it may be a session of another user.
        """
        del payloads
        with suppress(self._errors), self._driver.cursor() as cursor:
            find = self._first
            while cursor.execute(find, (self._sleep,)):
                with suppress(self._errors):
                    cursor.execute(_WAKE)
                find = self._next
        return True

    def close(self) -> None:
        """See `Notifier.close`."""
        with suppress(self._errors):  # closed already
            self._driver.close()


def _sleep(engine: Engine, channel: str) -> str:
    """The statement of the sleepers of a channel, by which they are found."""
    name = engine.dialect.identifier_preparer.quote(channel)
    return f"SELECT SLEEP({SLEEP_SECONDS}) AS {name}"


def _session(engine: Engine, *settings: str) -> Any:
    """A driver's connection that no pool has any more, and that may be silent for long."""
    driver = detached(engine)
    try:
        driver.autocommit(True)
        with driver.cursor() as cursor:
            # With a variable, a proxy lends the session to no other client (ProxySQL's
            # documentation, "Multiplexing"). KILL QUERY could end the other's statement.
            own, idle = "@stickybus = CONNECTION_ID()", f"wait_timeout = {LONGEST_IDLE_SECONDS}"
            cursor.execute(f"SET {own}, SESSION " + ", SESSION ".join((idle, *settings)))
    except BaseException:
        driver.close()
        raise
    return driver
