"""MariaDB 10.6+ through PyMySQL: as `sql.mysql.dialect`, with RETURNING, locks that don't wait and limits for all statements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Engine, text

from sql.hot_path import send
from sql.limits import Limits, milliseconds, whole
from sql.mysql.dialect import MySQL, MySQLStatements
from sql.statements.outcomes import encoded


class MariaDBStatements(MySQLStatements):
    """MariaDB 10.6+; see the module."""

    def _insert_chunk(self, connection: Connection, rows: Sequence[Mapping[str, Any]]) -> list[int]:
        if len(rows) == 1:
            return super()._insert_chunk(connection, rows)
        return [
            record_id
            for (record_id,) in self._insert_rows(connection, rows, " RETURNING record_id").fetchall()
        ]

    def _remove(self, connection: Connection, ids: Sequence[int]) -> int:
        # As `_looked_up`: a DELETE takes no hint here, and with a list of ids it would read a small table whole.
        table = connection.dialect.identifier_preparer.quote(self.main.name)
        listed = f"JSON_TABLE({self.mark}, '$[*]' COLUMNS (record_id BIGINT PATH '$')) AS listed"
        joined = f"{listed} STRAIGHT_JOIN {table} FORCE INDEX (PRIMARY) USING (record_id)"
        return int(send(connection, f"DELETE {table} FROM {joined}", (encoded(list(ids)),)).rowcount)

    def empty_history(self, connection: Connection, recent_since: datetime) -> int | None:
        name = connection.dialect.identifier_preparer.quote(self.past.name)
        connection.execute(text(f"LOCK TABLES {name} WRITE NOWAIT"))
        try:
            return self._empty_locked(connection, name, recent_since)
        finally:
            connection.execute(text("UNLOCK TABLES"))


class MariaDB(MySQL):
    """MariaDB 10.6+; see the module."""

    name = "mariadb"
    statements = MariaDBStatements
    # Since 11.0 a small table would be read whole where ids are given, and waits for each row that others have locked.
    _newer_settings = " /*M!110001 , optimizer_scan_setup_cost = 1000000 */"

    def recognise(self, engine: Engine) -> str:
        """A URL that names MariaDB means it: its first connection is refused by any other server."""
        del engine
        return self.name

    def _time_outs(self, limits: Limits) -> dict[str, str]:
        lock = str(whole(limits.lock))
        return {
            "innodb_lock_wait_timeout": lock,
            "lock_wait_timeout": lock,
            "max_statement_time": str(milliseconds(limits.statement) / 1000),
            # A process that is frozen in the middle of a transaction gives its locks back.
            "idle_transaction_timeout": str(whole(limits.statement)),
        }

    def _keep_idle(self, connection: Connection, *, keep: bool) -> None:
        """Its limit is that of transactions: a session outside of one may be silent."""
