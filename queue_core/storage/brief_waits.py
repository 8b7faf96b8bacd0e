"""Transactions that wait only briefly for rows that others have locked."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from sql.dialect import Dialect

T = TypeVar("T")


class LockRefusedError(Exception):
    """Somebody holds a lock that is needed. A transaction is not run again for it."""


def briefly(
    dialect: Dialect, work: Callable[[Connection], T], seconds: float
) -> Callable[[Connection], T]:
    """The `work` of a transaction, which waits no longer than that for a lock.

    It raises LockRefusedError, whose cause is the database's error.
    """

    def run(connection: Connection) -> T:
        try:
            with dialect.lock_waits(connection, seconds):
                return work(connection)
        except DBAPIError as error:
            if dialect.is_lock_refusal(error):
                raise LockRefusedError from error
            raise

    return run
