"""The types of callers' arguments `connection=`; no driver is needed to name them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias, Union

from sqlalchemy import Connection
from sqlalchemy.orm import Session, scoped_session

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession


class DriverConnection(Protocol):
    """A raw connection of psycopg, PyMySQL or sqlite3, or a connection of Django."""

    def cursor(self) -> object:
        """As in PEP 249, as are the others."""
        ...

    def commit(self) -> None:
        """Commit."""
        ...

    def rollback(self) -> None:
        """Roll back."""
        ...

    def close(self) -> None:
        """Close."""
        ...


CallersConnection: TypeAlias = Connection | Session | scoped_session[Session] | DriverConnection
"""The values that a synchronous call takes as `connection=`."""

AsyncCallersConnection: TypeAlias = Union["AsyncConnection", "AsyncSession"]
"""The values that an awaitable call takes as `connection=`."""
