"""The statements by which an archive takes rows from a history: of entries, or of tasks."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import ColumnElement, Connection, Table, delete, func, select


class Ranges:
    """Rows of `past` are counted and chosen by id and by the date when they ended, and deleted."""

    past: Table

    def count_history(self, connection: Connection, *, before: datetime) -> int:
        """The number of rows that ended before a date."""
        counted = select(func.count()).select_from(self.past)
        return int(connection.execute(counted.where(self._ended_before(before))).scalar_one())

    def delete_history(
        self, connection: Connection, *, ids: Sequence[int], before: datetime
    ) -> int:
        """Delete those of some rows that ended before a date; returns how many."""
        chosen = self.past.c.record_id.in_(sorted(ids))
        return connection.execute(
            delete(self.past).where(chosen, self._ended_before(before))
        ).rowcount

    def closed_range(
        self, connection: Connection, *, before: datetime, limit: int
    ) -> tuple[int, int] | None:
        """The range of the `limit` lowest ids of rows that ended before a date.

        Returns:
            Its lowest id and its highest one; None if there are no such rows.
        """
        ids = select(self.past.c.record_id).where(self._ended_before(before))
        lowest = ids.order_by(self.past.c.record_id).limit(limit).subquery()
        statement = select(func.min(lowest.c.record_id), func.max(lowest.c.record_id))
        first_id, last_id = connection.execute(statement).one()
        return None if first_id is None else (first_id, last_id)

    def range_page(self, connection: Connection, *, first_id: int, last_id: int, limit: int) -> int:
        """The last id of the first `limit` rows of history with ids from first to last.

        It is `last_id` if there are no more rows.
        """
        return page_end(connection, self.past, first_id, last_id, limit)

    def locked_range(
        self, connection: Connection, *, first_id: int, last_id: int, before: datetime
    ) -> list[int]:
        """The ids of a closed range, whose rows are locked now."""
        ids = (
            select(self.past.c.record_id)
            .where(*self._closed(first_id, last_id, before))
            .with_for_update()
        )
        return list(connection.execute(ids).scalars())

    def delete_range(
        self, connection: Connection, *, first_id: int, last_id: int, before: datetime
    ) -> int:
        """Delete the rows of a closed range.

        Returns:
            The number of deleted rows.
        """
        return connection.execute(
            delete(self.past).where(*self._closed(first_id, last_id, before))
        ).rowcount

    def _closed(self, first_id: int, last_id: int, before: datetime) -> list[ColumnElement[bool]]:
        """A closed range has the ids from first to last that ended before a date."""
        return [self.past.c.record_id.between(first_id, last_id), self._ended_before(before)]

    def _ended_before(self, before: datetime) -> ColumnElement[bool]:
        return self.past.c.finished_date < before


def page_end(connection: Connection, table: Table, first_id: int, last_id: int, limit: int) -> int:
    """The last id of the first `limit` rows of a table with ids from first to last.

    It is `last_id` if there are no more rows.
    """
    # Whenever they ended: MariaDB might look them up by that, and sort them for each page anew.
    id_column = table.c.record_id
    ids = select(id_column).where(id_column.between(first_id, last_id)).order_by(id_column)
    found: int | None = connection.execute(ids.offset(limit - 1).limit(1)).scalar()
    return last_id if found is None else found
