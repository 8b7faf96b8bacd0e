"""The questions to a MariaDB server."""

from __future__ import annotations

from sql.mysql.doctor import MySQLDoctor


class MariaDBDoctor(MySQLDoctor):
    """Asks MariaDB: the same as MySQL, but for the name of a table."""

    sessions = "information_schema.processlist"
