"""An archive takes tasks from a long history by index: it locks and deletes no row beside its own.

Each statement is the one that the archive sends, explained while the history has no statistics, and
once it has been analysed. Only the count by which progress is told reads the history as a whole.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial

from sqlalchemy import URL, Connection

from sql.database import Database
from sql.doctor.base import Step
from sql.doctor.plans import explained
from sql.families import WORK_HISTORY
from sql.registry import doctor_of
from sql.statements.ranges import Ranges
from tests.contract.plans.tables import analyse
from tests.pipeline.sample import START
from tests.pipeline.tasks import TABLE, finished, write_tasks

ROWS = 20_000
BEFORE = START + timedelta(seconds=ROWS // 2)
"""One half ended before."""
RANGE = {"first_id": 501, "last_id": 600}
OPERATIONS: dict[str, tuple[Callable[[Ranges, Connection], object], frozenset[Step]]] = {
    "page of a range": (lambda past, c: past.range_page(c, **RANGE, limit=50), frozenset()),
    "lock a range": (lambda past, c: past.locked_range(c, **RANGE, before=BEFORE), frozenset()),
    "delete a range": (lambda past, c: past.delete_range(c, **RANGE, before=BEFORE), frozenset()),
    "delete some": (
        lambda past, c: past.delete_history(c, ids=range(501, 601), before=BEFORE),
        frozenset(),
    ),
    # Once for each run. It walks the primary key up to the limit, and never sorts.
    "choose a range": (
        lambda past, c: past.closed_range(c, before=BEFORE, limit=1_000),
        frozenset({Step.SCAN, Step.WALK}),
    ),
}
"""The statements, each with the steps of its plan that are right."""


def test_an_archive_reads_a_long_history_of_tasks_by_index(database_url: URL) -> None:
    write_tasks(
        database_url, (finished(number, queue=f"q{number % 3}") for number in range(1, ROWS + 1))
    )
    database, faults = Database(database_url), list[str]()
    doctor = doctor_of(database.dialect.name)
    past = database.dialect.statements_for(WORK_HISTORY)()
    try:
        for state in ("as it was filled", "analysed"):
            with database.engine.connect() as connection:
                for name, (work, right) in OPERATIONS.items():
                    found = explained(connection, doctor, partial(work, past), TABLE)
                    faults += [f"{name}, {state}: {one}" for one in found if one.step not in right]
                connection.rollback()
            analyse(database.engine, [TABLE])
    finally:
        database.close()
    assert not faults, "\n".join(faults)
