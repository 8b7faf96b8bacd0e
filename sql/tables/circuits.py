"""The table of open circuits: a row for each handler whose failed entries wait for a probe."""

from __future__ import annotations

from sqlalchemy import BigInteger, CheckConstraint, Column, Integer, MetaData, Table

from sql.tables.conventions import NAME_LENGTH, OPTIONS, QUEUE_NAME_LENGTH
from sql.types import UtcDateTime, long_text, name, readable

queue_circuits = Table(
    "queue_circuits",
    MetaData(),
    Column("table_name", name(NAME_LENGTH), primary_key=True),
    # Says which queue and handler in a length that a key may have; the others wait there.
    Column("lane", name(NAME_LENGTH), primary_key=True),
    Column("queue_name", name(QUEUE_NAME_LENGTH), nullable=False),
    Column("handler", long_text(), nullable=False),
    Column("since", UtcDateTime, nullable=False),
    Column("probe_id", BigInteger, nullable=False),
    Column("failures", Integer, nullable=False),
    **OPTIONS,
)
"""`failures`: the run that opened it, and the probes that have failed since."""
queue_circuits.append_constraint(
    CheckConstraint(
        readable(queue_circuits.c.queue_name, queue_circuits.c.since),
        name="queue_circuits_readable",
    )
)
