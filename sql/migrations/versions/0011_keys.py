"""Keys of posts, each with the entry that has it."""

from typing import Any

import sqlalchemy as sa

from sql.migrations import indices, tables
from sql.types import UtcDateTime, long_text, name

revision = "0011"
down_revision = "0010"

OPTIONS: dict[str, Any] = {
    f"{family}_{option}": value
    for family in ("mysql", "mariadb")
    for option, value in {"engine": "InnoDB", "charset": "utf8mb4", "row_format": "DYNAMIC"}.items()
}


def upgrade() -> None:
    tables.create(
        "queue_keys",
        sa.Column("table_name", name(64), primary_key=True),
        sa.Column("queue_name", name(129), primary_key=True),
        sa.Column("entry_key", name(255), primary_key=True),
        sa.Column("taken_by", sa.String(32), nullable=False),
        sa.Column("record_id", sa.BigInteger),
        sa.Column("keep", sa.String(16), nullable=False),
        sa.Column("keep_seconds", sa.Double),
        sa.Column("ended_state", sa.String(16)),
        sa.Column("ended_date", UtcDateTime),
        sa.Column("look_date", UtcDateTime),
        sa.Column("requeue", long_text()),
        **OPTIONS,
    )
    indices.create("queue_keys_by_look_date", "queue_keys", ["table_name", "look_date"])
