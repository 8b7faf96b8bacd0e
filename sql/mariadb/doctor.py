"""The questions to a MariaDB server."""

from __future__ import annotations

from sqlalchemy import Connection

from sql.mysql.doctor import MySQLDoctor
from sql.mysql.sessions import OLDER


class MariaDBDoctor(MySQLDoctor):
    """Asks MariaDB: the same as MySQL, but for the name of a table."""

    def _sessions(self, connection: Connection) -> str:
        del connection
        return OLDER
