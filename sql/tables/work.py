"""The tables of the work queue: tasks, docs in sets, and counts of both."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Index, Integer, MetaData, Table, literal_column
from sqlalchemy.types import TypeEngine

from sql.tables.conventions import OPTIONS
from sql.tables.entries import CHANGED_ROWS, store
from sql.types import UtcDateTime, Utf8, long_bytes, long_text, name, record_id

TASK_ID_BYTES = CLAIMANT_BYTES = DOC_ID_BYTES = 64
TASK_QUEUE_LENGTH = 512
"""Longest name of a task's queue, in characters: what an index of MySQL can hold."""
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
"""What transactions have added to queues, or taken away; the sum is what is there.

Nobody waits for a row of it: each transaction adds its own, and many are folded into one later.
Without a `minute`: tasks. With one: those of them whose arrival, which is to come, is in the minute
that ends then; such a row means nothing any more once that has passed.
"""
work_namespace_counts = _counts("work_namespace_counts", Utf8(NAMESPACE_BYTES))
"""The same of the docs in namespaces."""
