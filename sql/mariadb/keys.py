"""MariaDB's statements on keys: as MySQL's."""

from __future__ import annotations

from sql.mysql.keys import MySQLKeys


class MariaDBKeys(MySQLKeys):
    """See `Keys`."""
