"""The table of a server's sessions."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection

OLDER: Final = "information_schema.processlist"
"""MySQL's is an error while a session runs a statement with an emoji in it."""


def sessions_of(connection: Connection) -> str:
    """The table in which MySQL shows its sessions.

    Without the performance schema (`performance_schema = OFF`) that one's table is empty.
    """
    newer = connection.exec_driver_sql("SELECT @@performance_schema").scalar_one()
    return "performance_schema.processlist" if newer else OLDER
