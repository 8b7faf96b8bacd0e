"""The statements on lanes: pages in claim order, counts, and moves to another lane."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Select,
    bindparam,
    exists,
    func,
    insert,
    literal,
    literal_column,
    or_,
    select,
    update,
)
from sqlalchemy.util import memoized_property

from sql.statements.base import (
    AVAILABLE,
    PairStatements,
    due_since,
    fresh,
    lane_by_suspicion,
    raised,
    raised_column,
)
from sql.tables import ENTRY_COLUMNS, in_schema, queue_circuits, queue_limits, queue_pauses
from sql.types import UtcDateTime, UtcSince

LOOKED_AT = 4
"""Lanes that a node looks at: its own, any node's, the suspects' and the parked one."""


def copy_of(
    row: Mapping[str, Any], *, lane: str, crashes: int, due: datetime | None
) -> dict[str, Any]:
    """The columns of one copy as `Lanes.copy_anew` makes it, computed here."""
    values = {name: row[name] for name in ENTRY_COLUMNS if name != "record_id"} | {
        "processing_state": AVAILABLE,
        "processing_owner": None,
        "processing_available_date": None,
        "lane": lane,
        "claim_count": 0,
        "redispatch_count": raised(row["redispatch_count"]),
        "crash_count": row["crash_count"] + crashes,
        "origin_id": row["origin_id"] or row["record_id"],
    }
    return values if due is None else values | {"effective_date": due}


class Lanes(PairStatements):
    """Entries by the lane that they stand in."""

    @memoized_property
    def _due_and_next(self) -> Select[Any]:
        main, now = self.main, bindparam("now", type_=UtcDateTime())
        columns = list[ColumnElement[Any]]()
        for place in range(LOOKED_AT):
            of_lane = (
                select(main.c.effective_date)
                .where(main.c.lane == bindparam(f"lane_{place}"))
                .limit(1)
            )
            due = of_lane.where(main.c.processing_state == AVAILABLE, main.c.effective_date <= now)
            later = of_lane.where(main.c.effective_date > now)
            columns += [
                dates.order_by(main.c.effective_date, main.c.record_id).scalar_subquery()
                for dates in (due, later)
            ]
        return select(*columns)

    def due_and_next(
        self, connection: Connection, *, lanes: Sequence[str], now: datetime
    ) -> dict[str, tuple[datetime | None, datetime | None]]:
        """The earliest dates of due and of later entries, by lane (`LOOKED_AT` of them).

        An entry is due if its date is not after `now`.

        One statement, which locks nothing.
        """
        bound = {f"lane_{place}": lane for place, lane in enumerate(lanes)}
        [found] = self._rows(connection, self._due_and_next, {**bound, "now": now})
        return {lane: (found[2 * place], found[2 * place + 1]) for place, lane in enumerate(lanes)}

    def lanes(self, connection: Connection, *, besides: tuple[str, str] = ("", "")) -> list[str]:
        """The distinct lanes, one index seek each, however many entries they hold.

        `besides`: those from the first of the two on, and before the second, are left out.
        """
        main, found = self.main, list[str]()
        # Not min(): a statement without parameters keeps the plan that was made while the table was
        # empty.
        lowest = select(main.c.lane).order_by(main.c.lane).limit(1)
        lane = connection.execute(lowest.where(main.c.lane >= "")).scalar()
        # On SQLite a lane by hand may be no UTF-8; as it is read, it is not the one that it is
        # sought by.
        while lane is not None and lane not in found[-1:]:
            if besides[0] <= lane < besides[1]:
                lane = connection.execute(lowest.where(main.c.lane >= besides[1])).scalar()
                continue
            found.append(lane)
            lane = connection.execute(lowest.where(main.c.lane > lane)).scalar()
        return found

    def lanes_between(self, connection: Connection, first: str, end: str) -> list[str]:
        """The distinct lanes from `first` on and before `end`, one index seek each."""
        main, found = self.main, list[str]()
        lowest = select(main.c.lane).order_by(main.c.lane).limit(1)
        lowest = lowest.where(main.c.lane < end)
        lane = connection.execute(lowest.where(main.c.lane >= first)).scalar()
        while lane is not None and lane not in found[-1:]:
            found.append(lane)
            lane = connection.execute(lowest.where(main.c.lane > lane)).scalar()
        return found

    def any_aside(self, connection: Connection, *, lanes: Collection[tuple[str, str]]) -> bool:
        """Whether the table has pauses, limits or open circuits, or entries in such lanes.

        `lanes`: ranges of them. A range has its first lane, and the one that it ends before.
        """
        main = self.main
        found: list[Select[Any]] = [
            select(literal_column("1")).where(main.c.lane >= first, main.c.lane < end)
            for first, end in lanes
        ]
        for named in (queue_pauses, queue_limits, queue_circuits):
            table = in_schema(named, main.schema)
            found.append(select(literal_column("1")).where(table.c.table_name == main.name))
        return bool(connection.execute(select(or_(*map(exists, found)))).scalar())

    def free_page(
        self, connection: Connection, *, lane: str, limit: int, due_by: datetime | None = None
    ) -> list[Row[Any]]:
        """Lock the first AVAILABLE entries of a lane, in claim order, or those due by a date.

        Entries that others hold are skipped. Columns: record_id, creating_owner.
        """
        main = self.main
        columns = main.c.record_id, main.c.creating_owner
        statement = self._by_claims(select(*columns)).where(
            main.c.lane == lane, main.c.processing_state == AVAILABLE
        )
        if due_by is not None:
            statement = statement.where(main.c.effective_date <= due_by)
        ordered = statement.order_by(main.c.effective_date, main.c.record_id).limit(limit)
        return list(connection.execute(ordered.with_for_update(skip_locked=True)))

    def page(
        self,
        connection: Connection,
        *,
        lane: str,
        after: tuple[datetime, int] | None,
        limit: int,
    ) -> list[Row[Any]]:
        """Ids, names and dates of one page of a lane in claim order, locking nothing."""
        main = self.main
        names = ("record_id", "queue_name", "class_name", "created_date", "effective_date")
        statement = select(*(main.c[name] for name in names)).where(main.c.lane == lane)
        if after is not None:
            seen_date, seen_id = after
            later = (main.c.effective_date > seen_date) | (main.c.record_id > seen_id)
            statement = statement.where(
                main.c.effective_date >= literal(seen_date, UtcSince()), later
            )
        ordered = statement.order_by(main.c.effective_date, main.c.record_id).limit(limit)
        return list(connection.execute(ordered))

    def lane_counts(
        self,
        connection: Connection,
        *,
        lane: str,
        until: datetime | None,
        limit: int,
        end: str | None = None,
    ) -> list[Row[Any]]:
        """Counts of the AVAILABLE entries among a lane's first `limit` entries.

        Columns: queue_name, entries, and since when the oldest is due. With an `end`, it is about
        all lanes from `lane` on, and before that.

        `until` leaves out entries that are due later.
        """
        main = self.main
        names = ("queue_name", "processing_state", "created_date", "effective_date")
        columns = [main.c[name] for name in names]
        of_lanes = (
            (main.c.lane == lane,) if end is None else (main.c.lane >= lane, main.c.lane < end)
        )
        first = self._by_claims(select(*columns)).where(*of_lanes)
        if until is not None:
            first = first.where(main.c.effective_date <= until)
        ordered = first if end is None else first.order_by(main.c.lane)
        ordered = ordered.order_by(main.c.effective_date, main.c.record_id)
        some = ordered.limit(limit).subquery()
        statement = select(
            some.c.queue_name,
            func.count().label("entries"),
            func.min(due_since(some)).label("oldest"),
        )
        return list(
            connection.execute(
                statement.where(some.c.processing_state == AVAILABLE).group_by(some.c.queue_name)
            )
        )

    def change_lane(
        self,
        connection: Connection,
        *,
        ids: Sequence[int],
        from_lane: str,
        to_lane: str,
        suspect_lane: str,
    ) -> int:
        """Move AVAILABLE entries from one lane to another, and return how many.

        Suspects go to a lane apart.
        """
        main = self.main
        # Not the bare column: SQLite would rather read the whole lane than look up the ids.
        lane = func.coalesce(main.c.lane, "")
        statement = self._by_id(main, update(main)).where(
            main.c.record_id.in_(sorted(ids)),
            lane == from_lane,
            main.c.processing_state == AVAILABLE,
        )
        statement = statement.values(lane=lane_by_suspicion(main, to_lane, suspect_lane))
        return connection.execute(statement).rowcount

    def locked_page(
        self,
        connection: Connection,
        *,
        lane: str,
        state: str,
        limit: int,
        due_by: datetime | None = None,
        due_after: datetime | None = None,
        besides: Collection[int] = (),
    ) -> list[Row[Any]]:
        """Lock and return up to `limit` entries of a lane in claim order.

        Entries that others hold are skipped, and so are the ids `besides`.
        """
        main = self.main
        of_lane = main.c.lane == lane, main.c.processing_state == state
        statement = self._by_claims(select(*self.columns)).where(*of_lane)
        if due_by is not None:
            statement = statement.where(main.c.effective_date <= due_by)
        if due_after is not None:
            statement = statement.where(main.c.effective_date > due_after)
        if besides:
            statement = statement.where(main.c.record_id.not_in(sorted(besides)))
        ordered = statement.order_by(main.c.effective_date, main.c.record_id).limit(limit)
        return list(connection.execute(ordered.with_for_update(skip_locked=True)))

    def copy_anew(
        self,
        connection: Connection,
        *,
        ids: Sequence[int],
        lane: str,
        crashes: int,
        due: datetime | None = None,
    ) -> int:
        """Insert AVAILABLE copies, with new ids, of entries that this transaction has locked.

        A copy is the next entry of its chain.

        They are `due` then (default: as they were).
        """
        if not ids:
            return 0
        main = self.main
        values = fresh(main, lane) | {
            "redispatch_count": raised_column(main.c.redispatch_count),
            "crash_count": main.c.crash_count + crashes,
            "origin_id": func.coalesce(main.c.origin_id, main.c.record_id),
        }
        if due is not None:
            values["effective_date"] = literal(due, main.c.effective_date.type)
        rows = (
            select(*values.values())
            .where(main.c.record_id.in_(sorted(ids)))
            .order_by(main.c.record_id)
        )
        copies = (
            insert(main).from_select(list(values), rows).execution_options(preserve_rowcount=True)
        )
        return connection.execute(copies).rowcount
