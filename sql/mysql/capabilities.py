"""What MySQL and MariaDB can do."""

from sql.capabilities import Capabilities

MYSQL = Capabilities(ddl_commits=True, copies_have_names=True)
