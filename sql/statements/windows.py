"""The statements that look for entries in windows of ids, so that none of them reads too much.

A filter may match few rows of a history of millions, and no index knows the errors' texts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    FromClause,
    Row,
    and_,
    case,
    exists,
    func,
    or_,
    select,
    update,
)

from sql.statements.base import FAILED, IN_PROCESSING, PROCESSED
from sql.statements.history import History

_BELOW_ALL = -(2**63)


class Windows(History):
    """Entries found by windows of their ids, and changes of those that were found."""

    def id_bounds(self, connection: Connection, *, past: bool) -> tuple[int, int] | None:
        """The lowest and the highest id of the main or the history table; None if it is empty."""
        table = self.past if past else self.main
        # By their order, not by min() and max(): PostgreSQL, which takes the table for empty, would
        # read all of it. With a condition, which makes SQLite look its end up in the key.
        of_end = select(table.c.record_id).where(table.c.record_id > _BELOW_ALL).limit(1)
        lowest = of_end.order_by(table.c.record_id).scalar_subquery()
        highest = of_end.order_by(table.c.record_id.desc()).scalar_subquery()
        first_id, last_id = connection.execute(select(lowest, highest)).one()
        return None if first_id is None else (first_id, last_id)

    def lowest_since(self, connection: Connection, since: datetime) -> int | None:
        """The lowest id of the rows that ended since a date; None if none has."""
        past = self.past
        # Not the bare column: the primary key would be walked from its old end.
        statement = select(func.min(past.c.record_id + 0)).where(past.c.finished_date >= since)
        found: int | None = connection.execute(statement).scalar()
        return found

    def matching(
        self,
        connection: Connection,
        *,
        past: bool,
        where: Callable[[FromClause], Sequence[ColumnElement[bool]]],
        window: tuple[int, int] | None = None,
        ids: Sequence[int] | None = None,
        unretried: bool = False,
    ) -> list[int]:
        """Ids that match, ascending, of a window (both ends included) or among `ids`.

        `unretried`: only those of history that nobody has retried by hand or discarded.
        """
        table = self.past if past else self.main
        conditions = [*where(table)]
        if window is not None:
            conditions.append(table.c.record_id.between(*window))
        if ids is not None:
            conditions.append(table.c.record_id.in_(ids))
        if unretried:
            again = exists().where(
                self.replays.c.archive == self._hand, self.replays.c.record_id == table.c.record_id
            )
            conditions.append(~again)
        return sorted(connection.execute(select(table.c.record_id).where(*conditions)).scalars())

    def reschedule(self, connection: Connection, *, ids: Sequence[int], due: datetime) -> None:
        """Let entries that this transaction has locked be `due`."""
        main = self.main
        named = main.c.record_id.in_(sorted(ids))
        connection.execute(self._by_id(main, update(main)).where(named).values(effective_date=due))

    def live_count(self, connection: Connection, *, queue_name: str) -> int:
        """The number of live entries of a queue."""
        statement = select(func.count()).where(self.main.c.queue_name == queue_name)
        return int(connection.execute(statement).scalar_one())

    def running_by_node(self, connection: Connection) -> list[Row[Any]]:
        """Columns: processing_owner, entries. The entries that a node runs or is about to start."""
        main = self.main
        statement = select(main.c.processing_owner, func.count().label("entries"))
        runs = main.c.processing_state == IN_PROCESSING
        return list(connection.execute(statement.where(runs).group_by(main.c.processing_owner)))

    def ended_by_node(self, connection: Connection, since: dict[str, datetime]) -> list[Row[Any]]:
        """Columns: processing_owner, processed, failed. Each node's since a date for the node."""
        past = self.past
        of_nodes = [
            and_(past.c.processing_owner == node, past.c.finished_date >= date)
            for node, date in since.items()
        ]
        statement = select(
            past.c.processing_owner,
            *(
                func.sum(case((past.c.processing_state == state, 1), else_=0)).label(name)
                for state, name in ((PROCESSED, "processed"), (FAILED, "failed"))
            ),
        ).where(past.c.finished_date >= min(since.values()), or_(*of_nodes))
        return list(connection.execute(statement.group_by(past.c.processing_owner)))
