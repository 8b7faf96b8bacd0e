"""MariaDB's statements of the work queue."""

from sql.mysql.work import MySQLWorkCounts, MySQLWorkDocs, MySQLWorkHistory, MySQLWorkTasks


class MariaDBWorkTasks(MySQLWorkTasks):
    """See `WorkTasks`."""


class MariaDBWorkHistory(MySQLWorkHistory):
    """See `WorkHistory`."""


class MariaDBWorkDocs(MySQLWorkDocs):
    """See `WorkDocs`."""


class MariaDBWorkCounts(MySQLWorkCounts):
    """See `WorkCounts`."""
