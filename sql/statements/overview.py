"""The statements for people who look: entries counted by where they stand. They lock nothing."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, and_, case, func, not_, or_, select

from sql.statements.base import (
    AVAILABLE,
    FAILED,
    IN_PROCESSING,
    PROCESSED,
    WAITING,
    PairStatements,
    due_since,
)


class Overview(PairStatements):
    """Counts of live entries and of those that ended lately."""

    def ready_count(
        self, connection: Connection, *, now: datetime, queue_name: str | None, lane: str | None
    ) -> int:
        """The number of due AVAILABLE entries, of a queue and in a lane (None: of all)."""
        main = self.main
        statement = select(func.count()).where(
            main.c.processing_state == AVAILABLE, main.c.effective_date <= now
        )
        if queue_name is not None:
            statement = statement.where(main.c.queue_name == queue_name)
        if lane is not None:
            statement = statement.where(main.c.lane == lane)
        return int(connection.execute(statement).scalar_one())

    def live_counts(
        self,
        connection: Connection,
        *,
        now: datetime,
        since: datetime,
        parked: str,
        suspect: str,
        paused: tuple[str, str],
        limited: Iterable[tuple[str, str]],
    ) -> list[Row[Any]]:
        """Counts of live entries by queue, and the oldest date that is ready.

        Columns: ready, limited, scheduled, running, parked, suspect, paused, waiting, posted since
        a date, oldest.

        Paused entries stand in the lanes from the first of `paused` on and before the second. Those
        that a limit holds stand in one of the ranges `limited`.
        """
        main = self.main

        def within(lanes: tuple[str, str]) -> ColumnElement[bool]:
            first, end = lanes
            return and_(main.c.lane >= first, main.c.lane < end)

        is_paused, is_limited = within(paused), or_(*map(within, limited))
        waiting = and_(
            main.c.processing_state == AVAILABLE,
            main.c.lane.not_in([parked, suspect]),
            not_(is_paused),
        )
        due = and_(waiting, main.c.effective_date <= now)
        ready = and_(due, not_(is_limited))
        statement = select(
            main.c.queue_name,
            _count(ready, "ready"),
            _count(and_(due, is_limited), "limited"),
            _count(and_(waiting, main.c.effective_date > now), "scheduled"),
            _count(main.c.processing_state == IN_PROCESSING, "running"),
            _count(main.c.lane == parked, "parked"),
            _count(main.c.lane == suspect, "suspect"),
            _count(is_paused, "paused"),
            _count(main.c.processing_state == WAITING, "waiting"),
            # A copy made by the reaper has the date of the entry that was posted.
            _count(and_(main.c.created_date >= since, main.c.redispatch_count == 0), "posted"),
            func.min(case((ready, due_since(main)))).label("oldest"),
        )
        return list(connection.execute(statement.group_by(main.c.queue_name)))

    def ended_counts(self, connection: Connection, *, since: datetime) -> list[Row[Any]]:
        """By queue: processed, failed and posted, of the entries since a date."""
        past = self.past
        statement = select(
            past.c.queue_name,
            _count(past.c.processing_state == PROCESSED, "processed"),
            _count(past.c.processing_state == FAILED, "failed"),
            _count(and_(past.c.created_date >= since, past.c.redispatch_count == 0), "posted"),
        )
        return list(
            connection.execute(
                statement.where(past.c.finished_date >= since).group_by(past.c.queue_name)
            )
        )


def _count(condition: ColumnElement[bool], name: str) -> ColumnElement[int]:
    return func.sum(case((condition, 1), else_=0)).label(name)
