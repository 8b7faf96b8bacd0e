"""The end of a transaction: an error of a COMMIT says whether it may have taken effect."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import Connection, RootTransaction

T = TypeVar("T")

AT_COMMIT = "raised by COMMIT: whether it took effect is not known"
COMMITTED = "raised after the COMMIT: it took effect"
"""Notes on the errors of which this is true."""


def within(work: Callable[[Connection], T], connection: Connection) -> T:
    """Run `work` in a transaction; the connection's owner rolls back one that failed."""
    transaction = connection.begin()
    answer = work(connection)
    commit(connection, transaction)
    return answer


def commit(connection: Connection, transaction: RootTransaction) -> None:
    """Commit a transaction. An error gets the note `AT_COMMIT`, and the connection is given up."""
    try:
        transaction.commit()
    except BaseException as error:
        # SQLite keeps the transaction open after a failed COMMIT: the next user of this connection
        # would commit it.
        connection.invalidate()
        error.add_note(AT_COMMIT)
        raise
