"""The statements on `work_limits`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import (
    Connection,
    Row,
    Select,
    String,
    Update,
    bindparam,
    delete,
    insert,
    select,
    update,
)
from sqlalchemy.util import memoized_property

from sql.statements.base import HotStatements
from sql.statements.work.claims import IDS
from sql.tables import in_schema, work_limits
from sql.types import UtcDateTime


class WorkTerms(NamedTuple):
    """The allowance of a queue's limit, and the date from which its rate counts."""

    concurrency: int | None
    rate: int | None
    per_microseconds: int | None
    burst: int | None
    arrival_date: datetime | None


class WorkLimits(HotStatements):
    """With a `schema`, they find the table whatever the session's search path is."""

    def __init__(self, schema: str | None = None) -> None:
        super().__init__()
        self.table = in_schema(work_limits, schema)
        self._mine = self.table.c.queue == bindparam("of_queue", type_=String())

    def put(self, connection: Connection, queue: str, values: Mapping[str, Any]) -> None:
        """Add a limit, or replace it; earlier claims at its rate still count.

        An IntegrityError says that another transaction has added it meanwhile.
        """
        if self.terms(connection, queue) is not None:
            mine = self.table.c.queue == queue
            connection.execute(update(self.table).where(mine).values(**values))
        else:
            connection.execute(insert(self.table).values(queue=queue, **values))

    def remove(self, connection: Connection, queue: str) -> bool:
        """Delete a limit; False if there is none."""
        mine = self.table.c.queue == queue
        return connection.execute(delete(self.table).where(mine)).rowcount == 1

    def all(self, connection: Connection) -> list[Row[Any]]:
        """All limits, by queue."""
        return list(connection.execute(select(self.table).order_by(self.table.c.queue)))

    def among(self, connection: Connection, queues: Sequence[str]) -> set[str]:
        """Those of these queues that are limited."""
        found, queue = set[str](), self.table.c.queue
        for start in range(0, len(queues), IDS):
            named = select(queue).where(queue.in_(queues[start : start + IDS]))
            found.update(connection.scalars(named))
        return found

    @memoized_property
    def _terms(self) -> Select[Any]:
        columns = [self.table.c[name] for name in WorkTerms._fields]
        return select(*columns).where(self._mine).with_for_update()

    def terms(self, connection: Connection, queue: str) -> WorkTerms | None:
        """The limit of a queue, locked: another claim from it waits."""
        rows = self._rows(connection, self._terms, {"of_queue": queue})
        return WorkTerms(*rows[0]) if rows else None

    @memoized_property
    def _arrived(self) -> Update:
        date = bindparam("date", type_=UtcDateTime())
        return update(self.table).where(self._mine).values(arrival_date=date)

    def arrived(self, connection: Connection, queue: str, arrival_date: datetime) -> None:
        """Note from when on the rate of a limit counts."""
        self._change(connection, self._arrived, {"of_queue": queue, "date": arrival_date})
