"""The health of a database: what slows it or endangers what it holds, as it can tell itself."""

from __future__ import annotations

from sql.health.base import Health
from sql.health.mysql import MySQLHealth
from sql.health.postgresql import PostgreSQLHealth
from sql.health.sqlite import SQLiteHealth

_KINDS: dict[str, type[Health]] = {
    "sqlite": SQLiteHealth,
    "postgresql": PostgreSQLHealth,
    "mysql": MySQLHealth,
    "mariadb": MySQLHealth,
}


def health_of(backend: str) -> Health:
    """The questions to a database of this kind: the name of a dialect, or of a URL's backend."""
    return _KINDS[backend]()
