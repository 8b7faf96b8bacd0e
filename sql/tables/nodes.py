"""The table of nodes: one row for each name that a process has taken."""

from __future__ import annotations

from sqlalchemy import BigInteger, CheckConstraint, Column, Double, MetaData, String, Table

from sql.tables.conventions import NAME_LENGTH, OPTIONS
from sql.types import UtcDateTime, long_text, name, readable

queue_nodes = Table(
    "queue_nodes",
    MetaData(),
    Column("name", name(NAME_LENGTH), primary_key=True),
    Column("epoch", BigInteger, nullable=False),
    Column("beat", BigInteger, nullable=False),
    Column("state", String(16), nullable=False),
    Column("hostname", String(255), nullable=False),
    Column("host_identity", String(255), nullable=False),
    Column("pid", BigInteger, nullable=False),
    Column("lease_seconds", Double, nullable=False),
    Column("started_date", UtcDateTime, nullable=False),
    Column("beat_date", UtcDateTime, nullable=False),
    Column("serves", long_text(), nullable=False),
    **OPTIONS,
)
queue_nodes.append_constraint(
    CheckConstraint(readable(*queue_nodes.c), name="queue_nodes_readable")
)
