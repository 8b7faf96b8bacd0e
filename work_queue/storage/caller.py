"""A caller's transaction, and what is committed by now.

Its snapshot may be older: it shows no row that was inserted since, and shows one that is deleted.
In the default isolation of MariaDB and MySQL, a lock sees the present row, but one on a row that is
missing is on the gap, and keeps others from inserting. So our own connection tells what to lock.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row

from queue_core.errors import InvalidConnectionError

Rows = list[Row[Any]]
Look = Callable[[Callable[[Connection], Rows]], Rows]
"""Reads what is committed by now, on a connection of our own."""


@dataclass(frozen=True, slots=True)
class Caller:
    """A caller's transaction: `part` undoes a block in it.

    `look` is None where a transaction that writes sees the present rows.
    """

    part: Callable[[Connection], AbstractContextManager[None]]
    look: Look | None


def too_old(what: str) -> InvalidConnectionError:
    """The error for rows that are committed, but that the caller's transaction can't see."""
    return InvalidConnectionError(
        f"the transaction's snapshot is older than {what}, so nothing can be done with it there. "
        "Nothing was written. Begin the transaction after the claim or read that it follows, or "
        "use READ COMMITTED."
    )
