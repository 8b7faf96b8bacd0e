"""The tables of limits: a row for each limited queue, and one for each place that is taken."""

from __future__ import annotations

from sqlalchemy import BigInteger, CheckConstraint, Column, Integer, MetaData, String, Table

from sql.tables.conventions import NAME_LENGTH, OPTIONS, QUEUE_NAME_LENGTH
from sql.types import UtcDateTime, long_text, name, readable

queue_limits = Table(
    "queue_limits",
    MetaData(),
    Column("table_name", name(NAME_LENGTH), primary_key=True),
    # Says which queue in a length that a key may have.
    Column("lane", name(NAME_LENGTH), primary_key=True),
    Column("queue_name", name(QUEUE_NAME_LENGTH), nullable=False),
    Column("concurrency", Integer),
    Column("per_node", Integer),
    Column("rate", Integer),
    Column("per_microseconds", BigInteger),
    Column("burst", Integer),
    Column("limited_by", String(255), nullable=False),
    Column("since", UtcDateTime, nullable=False),
    Column("arrival_date", UtcDateTime),
    **OPTIONS,
)
"""`arrival_date`: when the next start is due at this rate, by the database's clock."""
queue_limits.append_constraint(
    CheckConstraint(
        readable(queue_limits.c.queue_name, queue_limits.c.since, queue_limits.c.arrival_date),
        name="queue_limits_readable",
    )
)

queue_places = Table(
    "queue_places",
    MetaData(),
    Column("table_name", name(NAME_LENGTH), primary_key=True),
    Column("lane", name(NAME_LENGTH), primary_key=True),
    Column("record_id", BigInteger, primary_key=True, autoincrement=False),
    Column("claim_count", Integer, primary_key=True, autoincrement=False),
    Column("owner", name(NAME_LENGTH), nullable=False),
    Column("places", Integer, nullable=False),
    Column("claims", long_text(), nullable=False),
    **OPTIONS,
)
"""Places of limited queues, those of one claim of entries in a row that bears the first one's name.

`claims` lists them in JSON, `places` is their number. One counts as long as its entry is claimed as
it says, and no longer. So whoever ends, retries or reaps an entry need not know of its place.
"""
