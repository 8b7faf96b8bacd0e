"""The tables as they are at the newest migration; `sql/migrations` holds how they came to be.

Each module holds tables that belong together. `sql.families` says which of them a database has.
"""

from sql.tables.archives import RUN_LENGTH, queue_archives, queue_replays
from sql.tables.circuits import queue_circuits
from sql.tables.conventions import CLASS_NAME_LENGTH, NAME_LENGTH, QUEUE_NAME_LENGTH, in_schema
from sql.tables.entries import (
    ENTRY_COLUMNS,
    ERROR_LENGTH,
    STORAGE,
    EntryTables,
    define_entries,
    entry_tables,
)
from sql.tables.groups import GROUP_NAME_LENGTH, queue_group_ends, queue_groups
from sql.tables.keys import KEY_LENGTH, queue_keys
from sql.tables.limits import LIMIT_KEY_LENGTH, queue_limit_keys, queue_limits, queue_places
from sql.tables.nodes import queue_nodes
from sql.tables.ordered import ORDER_KEY_LENGTH, queue_order_heads, queue_ordered
from sql.tables.pauses import queue_pauses
from sql.tables.schedules import queue_schedules
from sql.tables.staging import queue_posted_runs, queue_staged
from sql.tables.waits import queue_waits
from sql.tables.work import (
    CLAIMANT_BYTES,
    DOC_ID_BYTES,
    DOC_KEY_BYTES,
    NAMESPACE_BYTES,
    TASK_ID_BYTES,
    TASK_QUEUE_LENGTH,
    work_doc_sets,
    work_docs,
    work_limits,
    work_namespace_counts,
    work_queue_counts,
    work_queue_settings,
    work_schedules,
    work_task_history,
    work_tasks,
)

__all__ = [
    "CLAIMANT_BYTES",
    "CLASS_NAME_LENGTH",
    "DOC_ID_BYTES",
    "DOC_KEY_BYTES",
    "ENTRY_COLUMNS",
    "ERROR_LENGTH",
    "GROUP_NAME_LENGTH",
    "KEY_LENGTH",
    "LIMIT_KEY_LENGTH",
    "NAMESPACE_BYTES",
    "NAME_LENGTH",
    "ORDER_KEY_LENGTH",
    "QUEUE_NAME_LENGTH",
    "RUN_LENGTH",
    "STORAGE",
    "TASK_ID_BYTES",
    "TASK_QUEUE_LENGTH",
    "EntryTables",
    "define_entries",
    "entry_tables",
    "in_schema",
    "queue_archives",
    "queue_circuits",
    "queue_group_ends",
    "queue_groups",
    "queue_keys",
    "queue_limit_keys",
    "queue_limits",
    "queue_nodes",
    "queue_order_heads",
    "queue_ordered",
    "queue_pauses",
    "queue_places",
    "queue_posted_runs",
    "queue_replays",
    "queue_schedules",
    "queue_staged",
    "queue_waits",
    "work_doc_sets",
    "work_docs",
    "work_limits",
    "work_namespace_counts",
    "work_queue_counts",
    "work_queue_settings",
    "work_schedules",
    "work_task_history",
    "work_tasks",
]
