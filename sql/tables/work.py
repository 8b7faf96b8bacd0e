"""The tables of the work queue: tasks, settings of queues, docs in sets, and counts."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    literal_column,
)
from sqlalchemy.types import TypeEngine

from sql.tables.conventions import NAME_LENGTH, OPTIONS
from sql.tables.entries import CHANGED_ROWS, store
from sql.types import UtcDateTime, Utf8, long_bytes, long_text, name, record_id

TASK_ID_BYTES = CLAIMANT_BYTES = DOC_ID_BYTES = 64
TASK_QUEUE_LENGTH = 512
"""Longest name of a task's queue, in characters: the most that an index of MySQL can hold."""
NAMESPACE_BYTES, DOC_KEY_BYTES = 1024, 256

work_tasks = Table(
    "work_tasks",
    MetaData(),
    Column("task_id", name(TASK_ID_BYTES), primary_key=True),
    Column("queue", name(TASK_QUEUE_LENGTH), nullable=False),
    Column("version", Integer, nullable=False),
    Column("arrival_date", UtcDateTime, nullable=False),
    Column("lease_date", UtcDateTime),
    Column("claimant", name(CLAIMANT_BYTES), nullable=False),
    Column("claims", Integer, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("created_date", UtcDateTime, nullable=False),
    Column("modified_date", UtcDateTime, nullable=False),
    Column("err", long_text()),
    Column("value_json", long_text()),
    Column("value_bytes", long_bytes()),
    Column("failed_in", name(TASK_QUEUE_LENGTH)),
    **OPTIONS,
)
"""Tasks. A task that nobody has claimed yet has no `lease_date`, nor has one that was released.

Else it is the same as `arrival_date`: an index of those that are held has no others in it.
"""
store(work_tasks, **CHANGED_ROWS)
Index(
    "work_tasks_claim",
    work_tasks.c.queue,
    work_tasks.c.arrival_date,
    work_tasks.c.task_id,
    # As with the claim index of entries: no look-up by id may walk it.
    postgresql_where=work_tasks.c.queue >= literal_column("''"),
)
_held = work_tasks.c.lease_date.is_not(None)
Index(
    "work_tasks_leases",
    work_tasks.c.queue,
    work_tasks.c.lease_date,
    postgresql_where=_held,
    sqlite_where=_held,
)
_claimed = work_tasks.c.claims > literal_column("0")
Index(
    "work_tasks_claims",
    work_tasks.c.queue,
    work_tasks.c.claims,
    postgresql_where=_claimed,
    sqlite_where=_claimed,
)

work_task_history = Table(
    "work_task_history",
    MetaData(),
    Column("record_id", record_id(), primary_key=True, autoincrement=True),
    Column("task_id", name(TASK_ID_BYTES), nullable=False),
    Column("queue", name(TASK_QUEUE_LENGTH), nullable=False),
    Column("version", Integer, nullable=False),
    Column("claims", Integer, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("created_date", UtcDateTime, nullable=False),
    Column("modified_date", UtcDateTime, nullable=False),
    Column("finished_date", UtcDateTime, nullable=False),
    Column("finished_by", name(CLAIMANT_BYTES), nullable=False),
    Column("err", long_text()),
    Column("value_json", long_text()),
    Column("value_bytes", long_bytes()),
    sqlite_autoincrement=True,
    **OPTIONS,
)
"""Tasks that were deleted, of queues that keep them, as they were then."""
Index(
    "work_task_history_by_queue",
    work_task_history.c.queue,
    work_task_history.c.finished_date,
    work_task_history.c.record_id,
)
Index("work_task_history_by_task", work_task_history.c.task_id)

work_queue_settings = Table(
    "work_queue_settings",
    MetaData(),
    Column("queue", name(TASK_QUEUE_LENGTH), primary_key=True),
    Column("history_since", UtcDateTime),
    **OPTIONS,
)
"""The settings of queues. A row stays for good: each queue that has history has one.

Without `history_since` the queue keeps no history any more.
"""

work_limits = Table(
    "work_limits",
    MetaData(),
    Column("queue", name(TASK_QUEUE_LENGTH), primary_key=True),
    Column("concurrency", Integer),
    Column("rate", Integer),
    Column("per_microseconds", BigInteger),
    Column("burst", Integer),
    Column("limited_by", String(255), nullable=False),
    Column("since", UtcDateTime, nullable=False),
    Column("arrival_date", UtcDateTime),
    **OPTIONS,
)
"""Limits of queues. A claim of a limited queue locks its row, and counts the leases of the queue.

`arrival_date`: when the next claim is due at this rate, by the database's clock.
"""

work_schedules = Table(
    "work_schedules",
    MetaData(),
    Column("queue", name(TASK_QUEUE_LENGTH), primary_key=True),
    Column("name", name(NAME_LENGTH), primary_key=True),
    Column("rule", long_text(), nullable=False),
    Column("value_json", long_text()),
    Column("value_bytes", long_bytes()),
    Column("last_due", UtcDateTime),
    Column("next_due", UtcDateTime),
    Column("last_task_id", name(TASK_ID_BYTES)),
    **OPTIONS,
)
"""Recurring schedules of tasks. A claim that meets a due one inserts its task, and moves it on."""

work_doc_sets = Table(
    "work_doc_sets",
    MetaData(),
    Column("namespace", Utf8(NAMESPACE_BYTES), primary_key=True),
    Column("doc_key", Utf8(DOC_KEY_BYTES), primary_key=True),
    Column("version", Integer, nullable=False),
    Column("arrival_date", UtcDateTime, nullable=False),
    Column("claimant", name(CLAIMANT_BYTES), nullable=False),
    **OPTIONS,
)
"""Doc sets. A set outlives its docs, so that no version of it comes twice."""
store(work_doc_sets, **CHANGED_ROWS)
Index("work_doc_sets_held", work_doc_sets.c.namespace, work_doc_sets.c.arrival_date)

work_docs = Table(
    "work_docs",
    MetaData(),
    Column("namespace", Utf8(NAMESPACE_BYTES), primary_key=True),
    Column("doc_id", name(DOC_ID_BYTES), primary_key=True),
    Column("doc_key", Utf8(DOC_KEY_BYTES), nullable=False),
    Column("secondary_key", Utf8(DOC_KEY_BYTES), nullable=False),
    Column("created_date", UtcDateTime, nullable=False),
    Column("modified_date", UtcDateTime, nullable=False),
    Column("content_json", long_text()),
    Column("content_bytes", long_bytes()),
    **OPTIONS,
)
"""Docs, each a member of the set of its key."""
Index(
    "work_docs_place",
    work_docs.c.namespace,
    work_docs.c.doc_key,
    work_docs.c.secondary_key,
    unique=True,
)


def _counts(table_name: str, names: TypeEngine[str]) -> Table:
    table = Table(
        table_name,
        MetaData(),
        Column("count_id", record_id(), primary_key=True, autoincrement=True),
        Column("name", names, nullable=False),
        Column("minute", UtcDateTime),
        Column("amount", BigInteger, nullable=False),
        sqlite_autoincrement=True,
        **OPTIONS,
    )
    Index(f"{table_name}_by_name", table.c.name, table.c.minute)
    return table


work_queue_counts = _counts("work_queue_counts", name(TASK_QUEUE_LENGTH))
"""The changes of transactions to the counts of queues; their sum is the present count.

Nobody waits for a row of it: each transaction adds its own, and many are folded into one later.
Without a `minute`: tasks. With one: those of them whose arrival, which is to come, is in the minute
that ends then; such a row means nothing any more once that has passed.
"""
work_namespace_counts = _counts("work_namespace_counts", Utf8(NAMESPACE_BYTES))
"""The same of the docs in namespaces."""
