"""MariaDB 10.6+ through PyMySQL: as `sql.mysql.dialect`, with limits for all statements."""

from __future__ import annotations

from sqlalchemy import Connection, Engine

from sql.mariadb.keys import MariaDBKeys
from sql.mariadb.statements import MariaDBStatements
from sql.mariadb.work import (
    MariaDBWorkCounts,
    MariaDBWorkDocs,
    MariaDBWorkHistory,
    MariaDBWorkTasks,
)
from sql.mysql.dialect import MySQL
from sql.mysql.sessions import OLDER
from sql.time_limits import TimeLimits, milliseconds, whole


class MariaDB(MySQL):
    """MariaDB's ways."""

    name = "mariadb"
    own_statements = (
        MariaDBStatements,
        MariaDBKeys,
        MariaDBWorkTasks,
        MariaDBWorkHistory,
        MariaDBWorkDocs,
        MariaDBWorkCounts,
    )
    # Since 11.0 a small table would be read whole where ids are given, and waits for each row that
    # others have locked.
    _newer_settings = " /*M!110001 , optimizer_scan_setup_cost = 1000000 */"
    _statement_limit = "max_statement_time"

    def recognise(self, engine: Engine) -> str:
        """A URL that names MariaDB means it. Any other server refuses the first connection."""
        del engine
        return self.name

    def _sessions(self, connection: Connection) -> str:
        del connection
        return OLDER

    def _time_outs(self, limits: TimeLimits) -> dict[str, str]:
        lock = str(whole(limits.lock))
        return {
            "innodb_lock_wait_timeout": lock,
            "lock_wait_timeout": lock,
            self._statement_limit: str(milliseconds(limits.statement) / 1000),
            # A process that is frozen in the middle of a transaction gives its locks back.
            "idle_transaction_timeout": str(whole(limits.statement)),
        }

    def _keep_idle(self, connection: Connection, *, keep: bool) -> None:
        """Its limit is that of transactions: a session outside of one may be silent."""
