"""The errors of a database that can't be used now."""

from __future__ import annotations

from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

NO_ANSWER = "the database does not answer. Try again later."
UNAVAILABLE: dict[type[Exception], str] = {
    OperationalError: NO_ANSWER,
    InterfaceError: NO_ANSWER,
    PoolTimeoutError: "no connection to the database is free. Try again later.",
}
"""With what is said of them: their own messages are none of a caller's business."""
