"""How answers of PostgreSQL are waited for, by psycopg and, for INSERTs of one row, by libpq itself.

psycopg's cursor takes 50 us of a post in a process that has just woken up, ten times what libpq needs (ADR 0006).
"""

from __future__ import annotations

import re
import time
from collections.abc import Generator, Sequence
from itertools import count
from select import POLLIN, POLLOUT, poll
from typing import Any, TypeVar

from psycopg import Binary, DataError, Error, OperationalError
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus

from sql.limits import milliseconds

T = TypeVar("T")

MOST_PREPARED = 100
"""Statements that the server keeps for one connection, as many as psycopg has it keep."""

_DONE = frozenset({ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK})


def guard(driver: Any, seconds: float) -> None:
    """Let psycopg wait no longer for an answer of the server, and let no error quote a row.

    After that time the connection is closed, and an error raised.

    The server's own limits are of no use to a client that it does not reach, and TCP's see nothing of a server that
    is frozen, nor of one behind a proxy: a kernel still acknowledges there.
    """
    waits = driver.wait

    def limited(work: Generator[Any, Any, T]) -> Generator[Any, Any, T]:
        deadline = time.monotonic() + seconds
        try:
            wanted = next(work)
            while True:
                ready = yield wanted  # it comes back at least each 100 ms
                if time.monotonic() >= deadline:
                    driver.pgconn.finish()
                    raise _no_answer(seconds)
                wanted = work.send(ready)
        except StopIteration as end:
            answer: T = end.value
            return answer
        except Error as error:
            _leave_out_details(error)
            raise

    driver.wait = lambda work, *arguments, **options: waits(limited(work), *arguments, **options)


class Inserts:
    """INSERTs on a connection of our own where each statement commits. Their plans are kept by the server.

    `seconds`: the longest wait for the server; the connection is closed after that.
    """

    def __init__(self, driver: Any, seconds: float) -> None:
        self._driver, self._seconds = driver, seconds
        self._session = driver.pgconn
        self._encoding: str = driver.info.encoding
        self._readable, self._writable = poll(), poll()
        self._readable.register(self._session.socket, POLLIN)
        self._writable.register(self._session.socket, POLLIN | POLLOUT)
        self._prepared = dict[str, bytes]()

    def run(self, statement: str, values: Sequence[Any]) -> list[int]:
        """Run an INSERT with places %s, and return the ids that it returns. `values` has no None.

        Raises psycopg's errors.
        """
        # One call for all of them. libpq would take a NUL for a text's end.
        texts = [value if isinstance(value, str) else _text(value) for value in values]
        bound = "\0".join(texts).encode(self._encoding).split(b"\0")
        if len(bound) != len(values):
            raise DataError("a text holds a NUL (0x00), which PostgreSQL can't store")
        session, name = self._session, self._prepared.get(statement)
        if name is None:
            numbers = count(1)
            placed = re.sub("%s", lambda _: f"${next(numbers)}", statement).encode(self._encoding)
            if len(self._prepared) == MOST_PREPARED:
                return self._answer(session.send_query_params, placed, bound)
            name = f"stickybus_{len(self._prepared)}".encode()
            self._answer(session.send_prepare, name, placed)
            self._prepared[statement] = name
        return self._answer(session.send_query_prepared, name, bound)

    def _answer(self, send: Any, *arguments: Any) -> list[int]:
        session, results = self._session, []
        try:
            send(*arguments)
            while session.flush():
                self._wait(self._writable)
            while True:
                while session.is_busy():
                    self._wait(self._readable)
                result = session.get_result()
                if result is None:
                    break
                results.append(result)
        except BaseException:
            # What is still to come would be taken for the next statement's answer.
            self._driver.close()
            raise
        answer = results[0]
        if answer.status not in _DONE:
            error = error_from_result(answer, self._encoding)
            _leave_out_details(error)
            raise error
        return [int(answer.get_value(row, 0)) for row in range(answer.ntuples)]

    def _wait(self, ready: poll) -> None:
        if not ready.poll(milliseconds(self._seconds)):
            raise _no_answer(self._seconds)
        self._session.consume_input()


def _text(value: Any) -> str:
    """A number, a date, or bytes as the driver wraps them."""
    return "\\x" + bytes(value.obj).hex() if isinstance(value, Binary) else str(value)


def _no_answer(seconds: float) -> OperationalError:
    return OperationalError(f"no answer from the server for {seconds:g} s")


def _leave_out_details(error: Error) -> None:
    """The server's may quote a whole row, payload and all, and errors are logged."""
    if error.diag.message_primary:
        error.args = (error.diag.message_primary,)
