"""The tables of groups of entries.

A group's counts are the sums of its two rows. One row is changed by posts, and may be locked for as
long as a caller's transaction is open. The other one is changed where entries end: nobody keeps
that one locked.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Index, MetaData, Table

from sql.tables.conventions import NAME_LENGTH, OPTIONS, QUEUE_NAME_LENGTH, index_by_look_date
from sql.types import UtcDateTime, long_text, name, record_id

GROUP_NAME_LENGTH = 255
"""Longest name of a group, in characters."""

queue_groups = Table(
    "queue_groups",
    MetaData(),
    Column("group_id", record_id(), primary_key=True, autoincrement=True),
    Column("table_name", name(NAME_LENGTH), nullable=False),
    Column("queue_name", name(QUEUE_NAME_LENGTH), nullable=False),
    Column("group_name", name(GROUP_NAME_LENGTH)),
    Column("created_by", name(NAME_LENGTH), nullable=False),
    Column("created_date", UtcDateTime, nullable=False),
    Column("sealed_date", UtcDateTime),
    Column("total", BigInteger, nullable=False),
    Column("succeeded", BigInteger, nullable=False),
    Column("failed", BigInteger, nullable=False),
    Column("cancelled", BigInteger, nullable=False),
    Column("look_date", UtcDateTime),
    Column("callbacks", long_text()),
    sqlite_autoincrement=True,  # else SQLite reuses the ids of deleted rows
    **OPTIONS,
)
"""Groups, as posts and callers' transactions change them.

`succeeded`, `failed` and `cancelled` count members that such a transaction has removed, less those
that were tried again. `look_date` is when a node is to see whether the group is complete, and
`callbacks` the entries that are posted then.
"""
index_by_look_date("queue_groups_by_look_date", queue_groups)

queue_group_ends = Table(
    "queue_group_ends",
    MetaData(),
    Column("group_id", BigInteger, primary_key=True, autoincrement=False),
    Column("table_name", name(NAME_LENGTH), nullable=False),
    Column("succeeded", BigInteger, nullable=False),
    Column("failed", BigInteger, nullable=False),
    Column("cancelled", BigInteger, nullable=False),
    Column("completed_date", UtcDateTime),
    **OPTIONS,
)
"""The numbers of ended members of each group, and the date on which the group was complete.

From then on it holds the sums.
"""
Index(
    "queue_group_ends_completed", queue_group_ends.c.table_name, queue_group_ends.c.completed_date
)
