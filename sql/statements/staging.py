"""The statements on `queue_staged` and `queue_posted_runs`: rows of tasks, posted at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Table, delete, func, insert, literal, null, select

from sql.statements.base import AVAILABLE
from sql.tables import queue_posted_runs as runs
from sql.tables import queue_staged as staged

_KEY = ("run", "job", "part", "attempt", "place", "staged_date")
POSTED = tuple(column.name for column in staged.c if column.name not in _KEY)
"""The columns of an entry that a staged row gives; `effective_date` may be NULL for now."""

ATTEMPTS_PER_STATEMENT = 500
"""Attempts that one statement names."""


class Staging:
    """Rows that wait to be posted, and runs that have posted theirs."""

    def stage(self, connection: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write rows of one attempt, with all columns of `queue_staged`."""
        connection.execute(insert(staged), list(rows))

    def staged_by_attempt(self, connection: Connection, *, run: str, job: str) -> dict[str, int]:
        """The number of rows that each attempt of a job has staged."""
        statement = select(staged.c.attempt, func.count()).where(
            staged.c.run == run, staged.c.job == job
        )
        found = connection.execute(statement.group_by(staged.c.attempt))
        return {str(row[0]): int(row[1]) for row in found}

    def entered(self, connection: Connection, run: str) -> tuple[str, int] | None:
        """The table that a run has posted into, and how many entries. None if it posted nothing."""
        statement = select(func.max(runs.c.table_name), func.sum(runs.c.entries)).where(
            runs.c.run == run
        )
        table_name, entries = connection.execute(statement).one()
        return None if table_name is None else (table_name, int(entries))

    def enter(
        self,
        connection: Connection,
        *,
        run: str,
        table_name: str,
        entries: Mapping[int, int],
        now: datetime,
    ) -> None:
        """Enter how many entries each partition of a run posts in this transaction.

        An IntegrityError says that another transaction has posted the run meanwhile.
        """
        connection.execute(
            insert(runs),
            [
                {
                    "run": run,
                    "part": part,
                    "table_name": table_name,
                    "entries": count,
                    "posted_date": now,
                }
                for part, count in entries.items()
            ],
        )

    def post_staged(
        self,
        connection: Connection,
        main: Table,
        *,
        run: str,
        job: str,
        attempts: Sequence[str],
        owner: str,
        lane: str,
        now: datetime,
    ) -> int:
        """Insert the rows that some attempts have staged as entries, and return how many.

        Anybody may claim them from `lane`.

        They are due `now` where no date is given.
        """
        date = staged.c.effective_date
        values = {name: staged.c[name] for name in POSTED} | {
            "effective_date": func.coalesce(date, literal(now, date.type)),
            "created_date": literal(now, date.type),
            "creating_owner": literal(owner),
            "processing_owner": null(),
            "lane": literal(lane),
            "processing_state": literal(AVAILABLE),
        }
        posted = 0
        for place in range(0, len(attempts), ATTEMPTS_PER_STATEMENT):
            chosen = staged.c.attempt.in_(attempts[place : place + ATTEMPTS_PER_STATEMENT])
            rows = select(*values.values()).where(staged.c.run == run, staged.c.job == job, chosen)
            copied = insert(main).from_select(
                list(values), rows.order_by(staged.c.part, staged.c.place)
            )
            posted += connection.execute(copied.execution_options(preserve_rowcount=True)).rowcount
        return posted

    def drop_staged(self, connection: Connection, *, run: str, job: str | None = None) -> None:
        """Delete the staged rows of a run, or for one of its jobs."""
        statement = delete(staged).where(staged.c.run == run)
        connection.execute(statement if job is None else statement.where(staged.c.job == job))

    def drop_staged_before(self, connection: Connection, date: datetime) -> None:
        """Delete rows staged before a date, by jobs that died."""
        connection.execute(delete(staged).where(staged.c.staged_date < date))
