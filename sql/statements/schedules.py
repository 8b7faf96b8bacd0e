"""The statements on `queue_schedules`: a firing is won by advancing `last_due` from what was seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, delete, insert, select, update

from sql.tables import queue_schedules as schedules


def _key(table_name: str, queue_name: str, name: str) -> list[Any]:
    return [
        schedules.c.table_name == table_name,
        schedules.c.queue_name == queue_name,
        schedules.c.name == name,
    ]


def of_queues(
    connection: Connection, table_name: str, queue_names: Sequence[str]
) -> list[Row[Any]]:
    """The schedules of some queues, by name."""
    statement = select(schedules).where(
        schedules.c.table_name == table_name, schedules.c.queue_name.in_(sorted(queue_names))
    )
    return list(connection.execute(statement.order_by(schedules.c.queue_name, schedules.c.name)))


def all_schedules(connection: Connection) -> list[Row[Any]]:
    """The schedules of all tables, by table, queue and name."""
    order = (schedules.c.table_name, schedules.c.queue_name, schedules.c.name)
    return list(connection.execute(select(schedules).order_by(*order)))


def find(
    connection: Connection, table_name: str, queue_name: str, name: str, *, lock: bool = False
) -> Row[Any] | None:
    """The row of a schedule."""
    statement = select(schedules).where(*_key(table_name, queue_name, name))
    return connection.execute(statement.with_for_update() if lock else statement).one_or_none()


def add(connection: Connection, values: Mapping[str, Any]) -> None:
    """Insert a schedule; an IntegrityError says that its name is taken."""
    connection.execute(insert(schedules).values(**values))


def change(
    connection: Connection, table_name: str, queue_name: str, name: str, values: Mapping[str, Any]
) -> bool:
    """Write columns of a schedule; False if there is none."""
    statement = update(schedules).where(*_key(table_name, queue_name, name))
    return connection.execute(statement.values(**values)).rowcount == 1


def advance(
    connection: Connection,
    table_name: str,
    queue_name: str,
    name: str,
    *,
    seen: tuple[datetime | None, datetime | None],
    last_due: datetime | None,
    next_due: datetime | None,
) -> bool:
    """Move a schedule on from the last and next due dates `seen`; False if another node was faster, or changed it."""
    unmoved = [schedules.c.last_due == seen[0], schedules.c.next_due == seen[1]]  # None: IS NULL
    statement = update(schedules).where(*_key(table_name, queue_name, name), *unmoved)
    return connection.execute(statement.values(last_due=last_due, next_due=next_due)).rowcount == 1


def remove(connection: Connection, table_name: str, queue_name: str, name: str) -> bool:
    """Delete a schedule; False if there is none."""
    return (
        connection.execute(delete(schedules).where(*_key(table_name, queue_name, name))).rowcount
        == 1
    )
