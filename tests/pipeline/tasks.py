"""A history of tasks with fixed ids, dates and values, written as rows by SQL."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

from sqlalchemy import URL, insert

from sql.database import Database
from sql.tables import work_task_history
from tests.pipeline.sample import START

TABLE = "work_task_history"


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


def write_tasks(url: URL, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write rows into the history of tasks."""
    database = Database(url)
    database.write(lambda connection: connection.execute(insert(work_task_history), list(rows)))
    database.close()
