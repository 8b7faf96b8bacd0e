"""The tables of entries that run one after the other."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Index, MetaData, Table

from sql.tables.conventions import NAME_LENGTH, OPTIONS, QUEUE_NAME_LENGTH
from sql.types import UtcDateTime, name, record_id

ORDER_KEY_LENGTH = 128

_METADATA = MetaData()

queue_ordered = Table(
    "queue_ordered",
    _METADATA,
    Column("place", record_id(), primary_key=True, autoincrement=True),
    Column("table_name", name(NAME_LENGTH), nullable=False),
    Column("queue_name", name(QUEUE_NAME_LENGTH), nullable=False),
    Column("order_key", name(ORDER_KEY_LENGTH), nullable=False),
    Column("record_id", BigInteger, nullable=False),
    Column("lane", name(NAME_LENGTH), nullable=False),
    Column("unstarted", Boolean, nullable=False),
    sqlite_autoincrement=True,  # else a place would be used again
    **OPTIONS,
)
"""Live entries that have an order key, by the place in which they were posted.

Not by their ids, which a process may take ahead. `lane`: where the entry goes when its turn comes;
that of waiting entries if it has to wait for others first. `unstarted`: a caller's transaction has
posted, released or removed it, which could not wait for a turn of its key.
"""
Index(
    "queue_ordered_key",
    queue_ordered.c.table_name,
    queue_ordered.c.queue_name,
    queue_ordered.c.order_key,
    queue_ordered.c.place,
)
Index(
    "queue_ordered_unstarted",
    queue_ordered.c.table_name,
    queue_ordered.c.unstarted,
    postgresql_where=queue_ordered.c.unstarted,  # as `index_by_look_date` is
)
Index("queue_ordered_entry", queue_ordered.c.table_name, queue_ordered.c.record_id)

queue_order_heads = Table(
    "queue_order_heads",
    _METADATA,
    Column("table_name", name(NAME_LENGTH), primary_key=True),
    Column("queue_name", name(QUEUE_NAME_LENGTH), primary_key=True),
    Column("order_key", name(ORDER_KEY_LENGTH), primary_key=True),
    Column("record_id", BigInteger, nullable=False),
    Column("held_since", UtcDateTime),
    **OPTIONS,
)
"""For each order key the one entry that may run.

`held_since`: the entry has failed then, and the others wait until somebody decides.
"""
