"""The statements on entries that wait for others, and on those that they wait for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, Table, or_, select

from sql.statements.base import REAPED, WAITING, batches
from sql.statements.outcomes import Outcomes


class Waiting(Outcomes):
    """Entries by their ids. No lock is waited for: another transaction may hold it for long."""

    def live_ids(self, connection: Connection, *, ids: Sequence[int]) -> set[int]:
        """Those of `ids` that have not ended. It locks nothing."""
        return self._ids_in(connection, self.main, ids)

    def ended_ids(self, connection: Connection, *, ids: Sequence[int]) -> set[int]:
        """Those of `ids` that are in history. It locks nothing."""
        return self._ids_in(connection, self.past, ids)

    def _ids_in(self, connection: Connection, table: Table, ids: Sequence[int]) -> set[int]:
        found = set[int]()
        for batch in batches(ids):
            there = select(table.c.record_id).where(table.c.record_id.in_(batch))
            found |= set(connection.execute(there).scalars())
        return found

    def lock_free(self, connection: Connection, *, ids: Sequence[int]) -> list[Row[Any]]:
        """Lock those of `ids` that nobody holds, and return the columns for a decision."""
        main, found = self.main, list[Row[Any]]()
        names = ("record_id", "queue_name", "processing_state", "effective_date", "headers")
        for batch in batches(ids):
            chosen = select(*(main.c[name] for name in names)).where(main.c.record_id.in_(batch))
            ordered = self._looked_up(chosen.order_by(main.c.record_id))
            found += connection.execute(ordered.with_for_update(skip_locked=True))
        return found

    def waiting(self, connection: Connection, *, lane: str, limit: int) -> list[Row[Any]]:
        """(record_id, headers) of WAITING entries, among the first `limit` entries of a lane."""
        some = self._first_of(lane, limit)
        chosen = select(some.c.record_id, some.c.headers)
        return list(connection.execute(chosen.where(some.c.processing_state == WAITING)))

    def ends(self, connection: Connection, *, ids: Sequence[int]) -> dict[int, Row[Any]]:
        """(record_id, processing_state, origin_id) of ended entries, by id."""
        past, found = self.past, dict[int, Row[Any]]()
        for batch in batches(ids):
            rows = select(past.c.record_id, past.c.processing_state, past.c.origin_id)
            among = connection.execute(rows.where(past.c.record_id.in_(batch))).all()
            found |= {row.record_id: row for row in among}
        return found

    def last_of_chain(self, connection: Connection, first_id: int) -> tuple[int, str | None] | None:
        """The last entry of a chain, and how it has ended; None: the last is nowhere."""
        # No index of the main table knows origins: it is read only if history doesn't know the end,
        # and only as far as the copy.
        last = self._last_ended(connection, first_id)
        if last is not None and last[1] != REAPED:
            return last
        main = self.main
        live = select(main.c.record_id).where(
            main.c.record_id >= (first_id if last is None else last[0]),
            or_(main.c.record_id == first_id, main.c.origin_id == first_id),
        )
        found = connection.execute(live.order_by(main.c.record_id).limit(1)).scalar()
        if found is not None:
            return int(found), None
        # An entry that has ended meanwhile is in history by now.
        return self._last_ended(connection, first_id)

    def _last_ended(self, connection: Connection, first_id: int) -> tuple[int, str] | None:
        past = self.past
        # Each by its index; PostgreSQL would read all rows for both at once. Copies are few, and
        # not sorted: for an order, the primary key would be walked.
        for column in past.c.origin_id, past.c.record_id:
            ended = select(past.c.record_id, past.c.processing_state).where(column == first_id)
            rows = [(row.record_id, row.processing_state) for row in connection.execute(ended)]
            if rows:
                return max(rows)
        return None
