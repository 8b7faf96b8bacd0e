"""The errors of a database that can't be used now, and what callers are told of them."""

from __future__ import annotations

from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from queue_core.errors import CommitUnknownError, DatabaseUnreachableError
from queue_core.runtime.log import get_logger

log = get_logger(__name__)

UNAVAILABLE = (OperationalError, InterfaceError, PoolTimeoutError)
"""Those that are no errors of this library."""


def for_callers(error: Exception) -> Exception:
    """The error as a caller may read it.

    Where the database is, and what its driver says, is none of a caller's business: the log has it.
    An outage of the policy agent keeps its own words.
    """
    match error:
        case CommitUnknownError():
            told: Exception = CommitUnknownError(
                "the database gave no answer to a COMMIT: if it took effect, its writes are there. "
                "Look before you write again."
            )
        case PoolTimeoutError():
            told = DatabaseUnreachableError(
                "no connection to the database is free. Try again later."
            )
        case DatabaseUnreachableError(url=str()) | OperationalError() | InterfaceError():
            told = DatabaseUnreachableError("the database does not answer. Try again later.")
        case _:
            return error
    log.warning("database_unavailable", error=str(getattr(error, "orig", error)))
    return told
