"""The table of entries that wait for others."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Index, MetaData, String, Table

from sql.tables.conventions import NAME_LENGTH, OPTIONS, index_by_look_date
from sql.types import UtcDateTime, name

queue_waits = Table(
    "queue_waits",
    MetaData(),
    Column("table_name", name(NAME_LENGTH), primary_key=True),
    Column("waiter_id", BigInteger, primary_key=True, autoincrement=False),
    Column("awaited_id", BigInteger, primary_key=True, autoincrement=False),
    Column("on_failed", String(8), nullable=False),
    Column("lane", name(NAME_LENGTH), nullable=False),
    Column("awaited_state", String(16)),
    Column("look_date", UtcDateTime),
    **OPTIONS,
)
"""Each entry that waits, with each entry that it waits for, by their ids of now.

`lane`: where the waiting entry goes in the end. `awaited_state`: how the other one has ended.
`look_date`: when a node is to look at the row; without one, a person has to decide.
"""
Index("queue_waits_awaited", queue_waits.c.table_name, queue_waits.c.awaited_id)
index_by_look_date("queue_waits_by_look_date", queue_waits)
