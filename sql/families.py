"""The families of tables that a database of Stickybus has. No other module lists all tables.

The schema is created, and checked, by this list; it says which names no main table may have; the
doctor examines all that is in it. A further family is one declaration here and one migration.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from sqlalchemy import MetaData, Table

from sql.statements.archives import Archives
from sql.statements.circuits import Circuits
from sql.statements.entries import Statements
from sql.statements.groups import Groups
from sql.statements.keys import Keys
from sql.statements.limits import Limits
from sql.statements.nodes import Nodes
from sql.statements.ordered import Ordered
from sql.statements.pauses import Pauses
from sql.statements.schedules import Schedules
from sql.statements.staging import Staging
from sql.statements.waits import Waits
from sql.statements.work.counts import WorkCounts
from sql.statements.work.docs import WorkDocs
from sql.statements.work.history import WorkHistory
from sql.statements.work.limits import WorkLimits
from sql.statements.work.schedules import WorkSchedules
from sql.statements.work.tasks import WorkTasks
from sql.tables import (
    define_entries,
    queue_archives,
    queue_circuits,
    queue_group_ends,
    queue_groups,
    queue_keys,
    queue_limit_keys,
    queue_limits,
    queue_nodes,
    queue_order_heads,
    queue_ordered,
    queue_pauses,
    queue_places,
    queue_posted_runs,
    queue_replays,
    queue_schedules,
    queue_staged,
    queue_waits,
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

S_co = TypeVar("S_co", covariant=True)

VERSION_TABLE = "stickybus_schema"
"""The table in which Alembic keeps the schema's revision. No family has it."""


@dataclass(frozen=True)
class Family(Generic[S_co]):
    """The tables of one purpose, with the class of the statements on them.

    Attributes:
        statements: As most databases take them; `Dialect.statements_for` knows the others.
        shared: Tables that a database has once.
        define: Defines the tables that a database has for each main table, the main table first.
        suffixes: The endings that these add to the name of the main table.
    """

    statements: type[S_co]
    shared: tuple[Table, ...] = ()
    define: Callable[[str, MetaData], object] | None = None
    suffixes: tuple[str, ...] = ()


NODES = Family(Nodes, (queue_nodes,))
SCHEDULES = Family(Schedules, (queue_schedules,))
PAUSES = Family(Pauses, (queue_pauses,))
LIMITS = Family(Limits, (queue_limits, queue_places, queue_limit_keys))
ARCHIVES = Family(Archives, (queue_archives, queue_replays))
STAGING = Family(Staging, (queue_staged, queue_posted_runs))
ORDER = Family(Ordered, (queue_ordered, queue_order_heads))
KEYS = Family(Keys, (queue_keys,))
WAITS = Family(Waits, (queue_waits,))
GROUPS = Family(Groups, (queue_groups, queue_group_ends))
CIRCUITS = Family(Circuits, (queue_circuits,))
WORK_TASKS = Family(WorkTasks, (work_tasks,))
WORK_HISTORY = Family(WorkHistory, (work_task_history, work_queue_settings))
WORK_LIMITS = Family(WorkLimits, (work_limits,))
WORK_SCHEDULES = Family(WorkSchedules, (work_schedules,))
WORK_DOCS = Family(WorkDocs, (work_doc_sets, work_docs))
WORK_COUNTS = Family(WorkCounts, (work_queue_counts, work_namespace_counts))
ENTRIES = Family(Statements, define=define_entries, suffixes=("_history",))

FAMILIES: tuple[Family[object], ...] = (
    NODES,
    SCHEDULES,
    PAUSES,
    LIMITS,
    ARCHIVES,
    STAGING,
    ORDER,
    KEYS,
    WAITS,
    GROUPS,
    CIRCUITS,
    WORK_TASKS,
    WORK_HISTORY,
    WORK_LIMITS,
    WORK_SCHEDULES,
    WORK_DOCS,
    WORK_COUNTS,
    ENTRIES,
)


def shared_names() -> list[str]:
    """The names of the tables that a database has once."""
    return sorted([VERSION_TABLE, *(table.name for family in FAMILIES for table in family.shared)])


def suffixes() -> tuple[str, ...]:
    """The ends of the names of tables that stand beside a main table."""
    return tuple(suffix for family in FAMILIES for suffix in family.suffixes)


def table_names(*main_names: str) -> tuple[str, ...]:
    """The names of all tables of `metadata_for`, which takes milliseconds to define them."""
    shared = [table.name for family in FAMILIES for table in family.shared]
    return (*shared, *(main + end for main in main_names for end in ("", *suffixes())))


def metadata_for(*main_names: str) -> MetaData:
    """All tables of a database whose buses and services use `main_names`."""
    metadata = MetaData()
    for family in FAMILIES:
        for table in family.shared:
            table.to_metadata(metadata)
        if family.define is not None:
            for main_name in main_names:
                family.define(main_name, metadata)
    return metadata


def is_taken_name(name: str) -> bool:
    """Whether a main table may not have this name: another table has it, or would have.

    Nor may a table that stands beside it have the name of a shared one.
    """
    made = {name.lower() + suffix for suffix in ("", *suffixes())}
    return not made.isdisjoint(shared_names()) or name.lower().endswith(suffixes())
