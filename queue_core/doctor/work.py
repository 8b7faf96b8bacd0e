"""The work queue's tables: counts that are wrong, lost sets of docs, schedules that are late."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from sqlalchemy import Connection

from sql.doctor.base import Check, Scope
from sql.doctor.finding import Finding, Severity, lasting
from sql.families import WORK_COUNTS, WORK_DOCS, WORK_SCHEDULES

QUEUES, TASKS = 200, 1_000
"""The number of queues that are counted, and of tasks that each of them may have."""
ROWS = 1_000
"""Tasks and docs that are looked at, the first of all, and late schedules that are told of."""
OVERDUE = timedelta(minutes=10)


def miscounted_queues(connection: Connection, scope: Scope) -> Iterator[Finding]:
    """Queues whose statistics are wrong: somebody has changed rows by hand."""
    counts = scope.dialect.statements_for(WORK_COUNTS)()
    for row in counts.compared(connection, up_to=TASKS, limit=QUEUES):
        if row.total != row.there:
            yield _miscounted(row.name, row.total, row.there)
    for queue in counts.uncounted(connection, among=ROWS):
        yield Finding(
            "miscounted-queues",
            Severity.NOTE,
            queue,
            f"The queue {queue!r} has tasks, but no count of them: somebody has inserted them by "
            "hand. Statistics don't show the queue.",
            _correction(
                queue,
                f"(SELECT COUNT(*) FROM work_tasks WHERE queue = {_quoted(queue)})",  # noqa: S608 -- shown, not run
            ),
        )


def _miscounted(queue: str, total: int, there: int) -> Finding:
    return Finding(
        "miscounted-queues",
        Severity.NOTE,
        queue,
        f"The queue {queue!r} has {there:,} tasks, but its counts say {total:,}: somebody has "
        "changed rows by hand. Statistics are wrong.",
        _correction(queue, str(there - total)),
    )


def _correction(queue: str, amount: str) -> str:
    values = f"{_quoted(queue)}, {amount}"
    return f"INSERT INTO work_queue_counts (name, amount) SELECT {values}"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def docs_without_set(connection: Connection, scope: Scope) -> Iterator[Finding]:
    """Docs that are read by nobody, and that nobody can change."""
    docs = scope.dialect.statements_for(WORK_DOCS)()
    for row in docs.without_sets(connection, among=ROWS):
        yield Finding(
            "docs-without-set",
            Severity.DANGER,
            row.namespace,
            f"The docs at {row.doc_key!r} in {row.namespace!r} have no set: somebody has deleted "
            "it by hand. They are not read, and can't be changed.",
            f"WorkQueue.claim_docs(DocClaim({row.namespace!r}, {row.doc_key!r})) # adds the set",
        )


def overdue_schedule(connection: Connection, scope: Scope) -> Iterator[Finding]:
    """Recurring schedules of tasks whose date has passed, and no claim inserted their task."""
    schedules = scope.dialect.statements_for(WORK_SCHEDULES)()
    for row in schedules.overdue(connection, scope.now - OVERDUE, ROWS):
        yield Finding(
            "overdue-schedule",
            Severity.DANGER,
            row.name,
            f"the schedule {row.name!r} of the work queue's {row.queue!r} was due "
            f"{lasting((scope.now - row.next_due).total_seconds())} ago: nobody claims from its "
            "queue, or its task can't be inserted.",
            f"Start a worker that claims from {row.queue!r}; if one does, its log says why: "
            "schedule_failed, or schedule_unreadable",
        )


WORK_CHECKS: tuple[Check, ...] = (miscounted_queues, docs_without_set, overdue_schedule)
