"""A history of tasks with fixed ids, dates and values, written as rows by SQL."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import pyarrow as pa
from sqlalchemy import URL, insert

from history_pipeline import TaskAudit
from history_pipeline.period import EVER, Period, compared
from history_pipeline.rollups.group_statistics import comparison_of
from history_pipeline.rollups.sketch import RELATIVE_ERROR
from history_pipeline.rollups.tallies import Rollup
from history_pipeline.rollups.task_rollup import (
    ROLLED_TASKS,
    compared_statistics,
    task_statistics,
)
from history_pipeline.rows.arrow_entries import within
from history_pipeline.rows.arrow_tasks import TASK_READ_SCHEMA, tasks
from sql.database import Database
from sql.tables import work_task_history
from tests.pipeline.sample import START

TABLE = "work_task_history"
HOSTILE = "<script>$\\frac{$ {{ 7 * 7 }}"
_ERRORS = (None, None, "TimeoutError: of ada@example.org", "ada@example.org is unknown", "KeyError")


def finished(record_id: int, **changes: Any) -> dict[str, Any]:
    """A row of the history of tasks; its task ended a second after the one before."""
    created = START + timedelta(seconds=record_id)
    return {
        "record_id": record_id,
        "task_id": f"task-{record_id}",
        "queue": "mail",
        "version": 1,
        "claims": 1,
        "attempt": 0,
        "created_date": created,
        "modified_date": created + timedelta(milliseconds=1),
        "finished_date": created + timedelta(milliseconds=2),
        "finished_by": "worker",
        "err": None,
        "value_json": f'{{"number":{record_id}}}',
        "value_bytes": None,
    } | changes


def sample_tasks() -> list[dict[str, Any]]:
    """Thirty tasks of two queues and two days: one has failed, one has bytes, one nothing."""
    rows = [finished(number, queue="push" if number % 3 else "mail") for number in range(1, 31)]
    failed = {"err": 'TimeoutError: "größer" als\n10 €, \\N', "attempt": 3, "claims": 4}
    rows[4] |= failed | {"queue": "mail/err"}
    rows[6] |= {"value_json": None, "value_bytes": b"\x00\xff,\n"}
    rows[7] |= {"value_json": None}
    rows[8] |= {"value_json": '"ß 🚚"', "task_id": "ä", "finished_by": ""}
    return rows


def random_tasks(count: int = 300) -> list[dict[str, Any]]:
    """Tasks of three days, of several queues, claimants and errors."""
    chosen = random.Random(7)  # noqa: S311 -- no secret
    rows = []
    for number in range(1, count + 1):
        created = START + timedelta(minutes=10 * number)
        lifetime = timedelta(microseconds=int(chosen.lognormvariate(13, 3)))
        rows.append(
            finished(
                number,
                queue=chosen.choice(["mail", "push", HOSTILE]),
                claims=chosen.randint(1, 5),
                attempt=chosen.randint(0, 3),
                created_date=created,
                finished_date=created + lifetime,
                finished_by=chosen.choice(["", "one", HOSTILE]),
                err=chosen.choice(_ERRORS),
                value_json='"ada@example.org"',
            )
        )
    return rows


def task_audit_of(rows: Sequence[Mapping[str, Any]]) -> TaskAudit:
    """The figures of rows that were read of a database."""
    read = pa.Table.from_pylist([*rows], TASK_READ_SCHEMA)
    made = START + timedelta(days=3)

    def rolled(period: Period) -> Rollup:
        chosen = within(tasks(read, TABLE), period)
        return ROLLED_TASKS.merged([ROLLED_TASKS.figures_of(chosen)], ROLLED_TASKS.figures)

    spans = {span: rolled(period) for span, period in compared(made).items()}
    return TaskAudit(
        made=made,
        database="sqlite",
        database_name="shop.db",
        archive=None,
        history=len(rows),
        archived=None,
        differing=(),
        tables={
            "statistics": task_statistics(rolled(EVER)),
            "comparison": comparison_of(spans, compared_statistics),
        },
        percentile_error=RELATIVE_ERROR,
    )


def write_tasks(url: URL, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write rows into the history of tasks."""
    database = Database(url)
    database.write(lambda connection: connection.execute(insert(work_task_history), list(rows)))
    database.close()
