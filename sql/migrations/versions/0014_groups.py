"""Groups of entries."""

from typing import Any

import sqlalchemy as sa

from sql.migrations import indices, tables
from sql.types import UtcDateTime, long_text, name, record_id

revision = "0014"
down_revision = "0013"

OPTIONS: dict[str, Any] = {
    f"{family}_{option}": value
    for family in ("mysql", "mariadb")
    for option, value in {"engine": "InnoDB", "charset": "utf8mb4", "row_format": "DYNAMIC"}.items()
}


def upgrade() -> None:
    tables.create(
        "queue_groups",
        sa.Column("group_id", record_id(), primary_key=True, autoincrement=True),
        sa.Column("table_name", name(64), nullable=False),
        sa.Column("queue_name", name(129), nullable=False),
        sa.Column("group_name", name(255)),
        sa.Column("created_by", name(64), nullable=False),
        sa.Column("created_date", UtcDateTime, nullable=False),
        sa.Column("sealed_date", UtcDateTime),
        sa.Column("total", sa.BigInteger, nullable=False),
        sa.Column("succeeded", sa.BigInteger, nullable=False),
        sa.Column("failed", sa.BigInteger, nullable=False),
        sa.Column("cancelled", sa.BigInteger, nullable=False),
        sa.Column("look_date", UtcDateTime),
        sa.Column("callbacks", long_text()),
        sqlite_autoincrement=True,
        **OPTIONS,
    )
    indices.create("queue_groups_by_look_date", "queue_groups", ["table_name", "look_date"])
    tables.create(
        "queue_group_ends",
        sa.Column("group_id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("table_name", name(64), nullable=False),
        sa.Column("succeeded", sa.BigInteger, nullable=False),
        sa.Column("failed", sa.BigInteger, nullable=False),
        sa.Column("cancelled", sa.BigInteger, nullable=False),
        sa.Column("completed_date", UtcDateTime),
        **OPTIONS,
    )
    indices.create(
        "queue_group_ends_completed", "queue_group_ends", ["table_name", "completed_date"]
    )
