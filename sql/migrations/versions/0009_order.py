"""Entries that run one after the other."""

from typing import Any

import sqlalchemy as sa

from sql.migrations import indices, tables
from sql.types import UtcDateTime, name, record_id

revision = "0009"
down_revision = "0008"

OPTIONS: dict[str, Any] = {
    f"{family}_{option}": value
    for family in ("mysql", "mariadb")
    for option, value in {"engine": "InnoDB", "charset": "utf8mb4", "row_format": "DYNAMIC"}.items()
}


def upgrade() -> None:
    tables.create(
        "queue_ordered",
        sa.Column("place", record_id(), primary_key=True, autoincrement=True),
        sa.Column("table_name", name(64), nullable=False),
        sa.Column("queue_name", name(129), nullable=False),
        sa.Column("order_key", name(128), nullable=False),
        sa.Column("record_id", sa.BigInteger, nullable=False),
        sa.Column("lane", name(64), nullable=False),
        sa.Column("unstarted", sa.Boolean, nullable=False),
        sqlite_autoincrement=True,
        **OPTIONS,
    )
    key = ["table_name", "queue_name", "order_key", "place"]
    indices.create("queue_ordered_key", "queue_ordered", key)
    indices.create("queue_ordered_unstarted", "queue_ordered", ["table_name", "unstarted"])
    indices.create("queue_ordered_entry", "queue_ordered", ["table_name", "record_id"])
    tables.create(
        "queue_order_heads",
        sa.Column("table_name", name(64), primary_key=True),
        sa.Column("queue_name", name(129), primary_key=True),
        sa.Column("order_key", name(128), primary_key=True),
        sa.Column("record_id", sa.BigInteger, nullable=False),
        sa.Column("held_since", UtcDateTime),
        **OPTIONS,
    )
