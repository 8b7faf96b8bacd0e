"""The table of recurring schedules."""

from __future__ import annotations

from sqlalchemy import BigInteger, CheckConstraint, Column, MetaData, String, Table

from sql.tables.conventions import CLASS_NAME_LENGTH, NAME_LENGTH, OPTIONS, QUEUE_NAME_LENGTH
from sql.types import UtcDateTime, long_bytes, long_text, name, readable

queue_schedules = Table(
    "queue_schedules",
    MetaData(),
    Column("table_name", name(NAME_LENGTH), primary_key=True),
    Column("queue_name", name(QUEUE_NAME_LENGTH), primary_key=True),
    Column("name", name(NAME_LENGTH), primary_key=True),
    Column("rule", long_text(), nullable=False),
    Column("class_name", name(CLASS_NAME_LENGTH), nullable=False),
    Column("event_json", long_text()),
    Column("event_bytes", long_bytes()),
    Column("codec", String(32), nullable=False),
    Column("search_key1", BigInteger),
    Column("search_key2", BigInteger),
    Column("last_due", UtcDateTime),
    Column("next_due", UtcDateTime),
    Column("headers", long_text()),
    **OPTIONS,
)
queue_schedules.append_constraint(
    CheckConstraint(
        readable(
            *(queue_schedules.c[name] for name in ("rule", "class_name", "last_due", "next_due"))
        ),
        name="queue_schedules_readable",
    )
)
