"""The capabilities of MySQL and MariaDB."""

from sql.capabilities import Capabilities

MYSQL = Capabilities(
    wakes_idle=True, ddl_commits=True, copies_have_names=True, waiters_deadlock=True
)
