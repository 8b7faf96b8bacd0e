"""MariaDB's statements on entries: as MySQL's, with RETURNING, and locks that don't wait."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, text

from sql.drivers.hot_path import send
from sql.mysql.statements import MySQLStatements
from sql.statements.base import full_name
from sql.statements.outcomes import encoded

_GUESSED = text(
    "SELECT TABLE_ROWS FROM information_schema.TABLES "
    "WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = :name"
)


class MariaDBStatements(MySQLStatements):
    """All statements on a pair of tables."""

    def _insert_chunk(self, connection: Connection, rows: Sequence[Mapping[str, Any]]) -> list[int]:
        if len(rows) == 1:
            return super()._insert_chunk(connection, rows)
        return [
            record_id
            for (record_id,) in self._insert_rows(
                connection, rows, " RETURNING record_id"
            ).fetchall()
        ]

    def _remove(self, connection: Connection, ids: Sequence[int]) -> int:
        # As `_looked_up`: a DELETE takes no hint here, and with a list of ids it would read a small
        # table whole.
        table = full_name(connection, self.main)
        listed = f"JSON_TABLE({self.mark}, '$[*]' COLUMNS (record_id BIGINT PATH '$')) AS listed"
        joined = f"{listed} STRAIGHT_JOIN {table} FORCE INDEX (PRIMARY) USING (record_id)"
        return int(
            send(connection, f"DELETE {table} FROM {joined}", (encoded(list(ids)),)).rowcount
        )

    def empty_history(self, connection: Connection, recent_since: datetime) -> int | None:
        name = full_name(connection, self.past)
        connection.execute(text(f"LOCK TABLES {name} WRITE NOWAIT"))
        try:
            return self._empty_locked(connection, name, recent_since)
        finally:
            connection.execute(text("UNLOCK TABLES"))

    def guessed_history(self, connection: Connection) -> int:
        return int(connection.execute(_GUESSED, {"name": self.past.name}).scalar_one())
