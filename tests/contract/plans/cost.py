"""What statements have read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection


@contextmanager
def cost_of(connection: Connection) -> Iterator[list[int]]:
    """What the block has read: rows on the servers, hundreds of instructions on SQLite."""
    cost = list[int]()
    if connection.dialect.name == "sqlite":
        driver: Any = connection.connection.driver_connection
        steps = list[None]()
        driver.set_progress_handler(lambda: steps.append(None), 100)
        try:
            yield cost
        finally:
            driver.set_progress_handler(None, 0)
        cost.append(len(steps))
        return
    before = _rows_read(connection)
    yield cost
    cost.append(_rows_read(connection) - before)


def _rows_read(connection: Connection) -> int:
    if connection.dialect.name == "postgresql":
        return int(
            connection.exec_driver_sql(
                "SELECT sum(seq_tup_read + coalesce(idx_tup_fetch, 0)) FROM "
                "pg_stat_xact_user_tables"
            ).scalar_one()
        )
    rows = connection.exec_driver_sql("SHOW SESSION STATUS LIKE 'Handler_read%%'")
    return sum(int(value) for _name, value in rows)
