"""Transactions that write to a history of PostgreSQL.

Every user may see them: by the locks that they hold on the table.
"""

from __future__ import annotations

from sqlalchemy import Connection, text

from sql.settling import Ended, OpenDatabase

_WRITERS = text(
    "SELECT virtualtransaction FROM pg_locks WHERE locktype = 'relation' AND mode = "
    "'RowExclusiveLock' AND relation = CAST(:table AS regclass) AND database = (SELECT oid FROM "
    "pg_database WHERE datname = current_database())"
)


def settled(database: OpenDatabase, ended: Ended) -> bool:
    """See `Dialect.settled`."""

    def writers(connection: Connection) -> set[str]:
        quoted = connection.dialect.identifier_preparer.quote(ended.history.name)
        return set(connection.execute(_WRITERS, {"table": quoted}).scalars())

    # Those of the first look only: on a busy queue there are always new ones.
    waited_for = database.fetch(writers)
    return not waited_for or ended.comes_true(lambda: not waited_for & database.fetch(writers))
