"""Transactions that write to a history of MySQL or MariaDB: told by a read of uncommitted rows."""

from __future__ import annotations

from sqlalchemy import func, select

from sql.settling import Ended, OpenDatabase


def settled(database: OpenDatabase, ended: Ended) -> bool:
    """See `Dialect.settled`."""
    table, date = ended.history, ended.history.c.finished_date
    statement = select(func.count(), func.sum(table.c.record_id)).where(
        date > ended.after, date <= ended.until
    )

    def same() -> bool:
        with database.engine.connect() as connection:
            dirty = connection.execution_options(isolation_level="READ UNCOMMITTED")
            inserted = tuple(dirty.execute(statement).one())
        return (
            database.fetch(lambda connection: tuple(connection.execute(statement).one()))
            == inserted
        )

    return ended.comes_true(same)
