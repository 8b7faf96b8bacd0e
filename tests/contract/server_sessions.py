"""Sessions of a server: whose there are, and how one is ended."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Engine, create_engine, text
from sqlalchemy.pool import NullPool

_SESSIONS: Final = {
    "postgresql": (
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> "
        "pg_backend_pid() AND backend_type = 'client backend'"
    ),
    "mariadb": (
        "SELECT id FROM information_schema.processlist WHERE db = database() AND id <> "
        "connection_id()"
    ),
    "mysql": (
        "SELECT id FROM performance_schema.processlist WHERE db = database() AND id <> "
        "connection_id()"
    ),
}
KILL: Final = {
    "postgresql": "SELECT pg_terminate_backend({})",
    "mariadb": "KILL {}",
    "mysql": "KILL {}",
}
"""Asks for the end of a session. The server may still do what it is sent before it obeys."""


def sessions(engine: Engine, database_name: str) -> set[int]:
    """Return the sessions of other clients; one that was just closed may still be among them."""
    with create_engine(engine.url, poolclass=NullPool).connect() as connection:
        return set(connection.execute(text(_SESSIONS[database_name])).scalars())
