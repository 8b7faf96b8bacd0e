"""MariaDB's statements of the work queue."""

from sql.mysql.work import MySQLWorkCounts, MySQLWorkDocs, MySQLWorkTasks


class MariaDBWorkTasks(MySQLWorkTasks):
    """See `WorkTasks`."""


class MariaDBWorkDocs(MySQLWorkDocs):
    """See `WorkDocs`."""


class MariaDBWorkCounts(MySQLWorkCounts):
    """See `WorkCounts`."""
