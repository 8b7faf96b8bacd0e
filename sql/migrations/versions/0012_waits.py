"""Entries that wait for others."""

from typing import Any

import sqlalchemy as sa

from sql.migrations import indices, tables
from sql.types import UtcDateTime, name

revision = "0012"
down_revision = "0011"

OPTIONS: dict[str, Any] = {
    f"{family}_{option}": value
    for family in ("mysql", "mariadb")
    for option, value in {"engine": "InnoDB", "charset": "utf8mb4", "row_format": "DYNAMIC"}.items()
}


def upgrade() -> None:
    tables.create(
        "queue_waits",
        sa.Column("table_name", name(64), primary_key=True),
        sa.Column("waiter_id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("awaited_id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("on_failed", sa.String(8), nullable=False),
        sa.Column("lane", name(64), nullable=False),
        sa.Column("awaited_state", sa.String(16)),
        sa.Column("look_date", UtcDateTime),
        **OPTIONS,
    )
    indices.create("queue_waits_awaited", "queue_waits", ["table_name", "awaited_id"])
    indices.create("queue_waits_by_look_date", "queue_waits", ["table_name", "look_date"])
