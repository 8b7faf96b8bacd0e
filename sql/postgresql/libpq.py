"""INSERTs of PostgreSQL on the low-level interface of psycopg, and a limit on every wait.

In a process that has just woken up, the driver's cursor takes as long as all else that a post does
(ADR 0006).
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Generator, Sequence
from itertools import count
from typing import Any, TypeVar

from psycopg import Binary, DataError, Error, OperationalError
from psycopg.errors import InvalidSqlStatementName, error_from_result
from psycopg.generators import execute
from psycopg.pq import ExecStatus

T = TypeVar("T")

MOST_PREPARED = 100
"""Statements that the server keeps for one connection, as many as psycopg has it keep."""

_DONE = frozenset({ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK})


def guard(driver: Any, seconds: float) -> None:
    """Let psycopg wait no longer for an answer of the server, and let no error quote a row.

    After that time the connection is closed, and an error raised.

    The server's own limits are of no use to a client that it does not reach, and TCP's see nothing
    of a server that is frozen, nor of one behind a proxy: a kernel still acknowledges there.
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
                    raise OperationalError(f"no answer from the server for {seconds:g} s")
                wanted = work.send(ready)
        except StopIteration as end:
            answer: T = end.value
            return answer
        except Error as error:
            _leave_out_details(error)
            raise

    driver.wait = lambda work, *arguments, **options: waits(limited(work), *arguments, **options)


class Inserts:
    """INSERTs on a connection of the library where each statement commits.

    The server keeps the plans of most.

    psycopg's cursor is left out; its connection still waits for the answer.
    """

    def __init__(self, driver: Any) -> None:
        self._driver = driver
        encoding: str = driver.info.encoding
        self._encoding = "utf-8" if encoding == "ascii" else encoding  # as psycopg does
        self._prepared = dict[str, bytes]()
        self._names = map("stickybus_{}".format, count())
        # None: a pooler may run each statement in another session.
        self._most = 0 if driver.prepare_threshold is None else MOST_PREPARED

    def run(self, statement: str, values: Sequence[Any]) -> list[int]:
        """Run an INSERT with places %s, and return the ids that it returns. `values` has no None.

        Raises psycopg's errors.
        """
        # One call for all of them. libpq would take a NUL for a text's end.
        texts = [value if isinstance(value, str) else _text(value) for value in values]
        bound = "\0".join(texts).encode(self._encoding).split(b"\0")
        if len(bound) != len(values):
            raise DataError("a text holds a NUL (0x00), which PostgreSQL can't store")
        name = self._prepared.get(statement)
        if name is None and len(self._prepared) < self._most:
            name = next(self._names).encode()
            self._answer(self._driver.pgconn.send_prepare, name, self._placed(statement))
            self._prepared[statement] = name
        if name is not None:
            try:
                return self._answer(self._driver.pgconn.send_query_prepared, name, bound)
            except InvalidSqlStatementName:  # by DISCARD ALL
                self._prepared.clear()
        return self._answer(self._driver.pgconn.send_query_params, self._placed(statement), bound)

    def _placed(self, statement: str) -> bytes:
        numbers = count(1)
        return re.sub("%s", lambda _: f"${next(numbers)}", statement).encode(self._encoding)

    def _answer(self, send: Callable[..., None], *arguments: Any) -> list[int]:
        try:
            send(*arguments)
            results = self._driver.wait(execute(self._driver.pgconn))
        except BaseException:
            # The rest of the answer would be taken for the next statement's.
            self._driver.pgconn.finish()
            raise
        # The commit comes after the rows, and may fail by itself.
        for result in results:
            if result.status not in _DONE:
                error = error_from_result(result, self._encoding)
                _leave_out_details(error)
                raise error
        answer: Any = results[0]
        return [int(answer.get_value(row, 0)) for row in range(answer.ntuples)]


def _text(value: Any) -> str:
    """A number, a date, or bytes as the driver wraps them."""
    return "\\x" + bytes(value.obj).hex() if isinstance(value, Binary) else str(value)


def _leave_out_details(error: Error) -> None:
    """The server's may quote a whole row, payload and all, and errors are logged."""
    if error.diag.message_primary:
        error.args = (error.diag.message_primary,)
