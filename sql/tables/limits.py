"""The tables of limits: a row for each limited queue, each place that is taken, and each key."""

from __future__ import annotations

from sqlalchemy import BigInteger, CheckConstraint, Column, Integer, MetaData, String, Table

from sql.tables.conventions import NAME_LENGTH, OPTIONS, QUEUE_NAME_LENGTH, index_by_look_date
from sql.types import UtcDateTime, long_text, name, readable

LIMIT_KEY_LENGTH = 128

_METADATA = MetaData()

queue_limits = Table(
    "queue_limits",
    _METADATA,
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
    Column("per_key", Integer),
    Column("rate_per_key", Integer),
    Column("burst_per_key", Integer),
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
    _METADATA,
    Column("table_name", name(NAME_LENGTH), primary_key=True),
    Column("lane", name(NAME_LENGTH), primary_key=True),
    Column("record_id", BigInteger, primary_key=True, autoincrement=False),
    Column("claim_count", Integer, primary_key=True, autoincrement=False),
    Column("owner", name(NAME_LENGTH), nullable=False),
    Column("places", Integer, nullable=False),
    Column("claims", long_text(), nullable=False),
    **OPTIONS,
)
"""Places of limited queues, those of one claim in a row that bears the first one's name.

Of limit keys, each place has a row. A row with a negative id stands for all claims of an owner, and
those to come: it lists none.

`claims` lists them in JSON, `places` is their number. One counts as long as its entry is claimed as
it says, and no longer. So whoever ends, retries or reaps an entry need not know of its place.
"""

queue_limit_keys = Table(
    "queue_limit_keys",
    _METADATA,
    Column("table_name", name(NAME_LENGTH), primary_key=True),
    # Says which queue and key in a length that a key may have.
    Column("lane", name(NAME_LENGTH), primary_key=True),
    Column("queue_name", name(QUEUE_NAME_LENGTH), nullable=False),
    Column("limit_key", name(LIMIT_KEY_LENGTH), nullable=False),
    Column("arrival_date", UtcDateTime),
    Column("look_date", UtcDateTime),
    **OPTIONS,
)
"""Limit keys that have places, or entries that wait for some. A transaction that changes either
locks the row.

`arrival_date` is as that of a queue's limit. `look_date`: when the rate allows the next start.
"""
index_by_look_date("queue_limit_keys_look", queue_limit_keys)
