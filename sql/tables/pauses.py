"""The table of pauses: a row for each queue, handler or order key that is not to run."""

from __future__ import annotations

from sqlalchemy import CheckConstraint, Column, MetaData, String, Table

from sql.tables.conventions import NAME_LENGTH, OPTIONS, QUEUE_NAME_LENGTH
from sql.tables.ordered import ORDER_KEY_LENGTH
from sql.types import UtcDateTime, long_text, name, readable

queue_pauses = Table(
    "queue_pauses",
    MetaData(),
    Column("table_name", name(NAME_LENGTH), primary_key=True),
    # Says which queue and handler in a length that a key may have.
    Column("lane", name(NAME_LENGTH), primary_key=True),
    Column("queue_name", name(QUEUE_NAME_LENGTH), nullable=False),
    Column("handler", long_text()),
    Column("paused_by", String(255), nullable=False),
    Column("reason", long_text()),
    Column("since", UtcDateTime, nullable=False),
    Column("until", UtcDateTime),
    Column("order_key", name(ORDER_KEY_LENGTH)),
    **OPTIONS,
)
queue_pauses.append_constraint(
    CheckConstraint(
        readable(queue_pauses.c.queue_name, queue_pauses.c.since, queue_pauses.c.until),
        name="queue_pauses_readable",
    )
)
