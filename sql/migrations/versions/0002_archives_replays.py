"""Archived and deleted history, and its entries that were posted again from an archive."""

from typing import Any

import sqlalchemy as sa

from sql.migrations import tables
from sql.types import UtcDateTime, long_text, name

revision = "0002"
down_revision = "0001"

OPTIONS: dict[str, Any] = {
    f"{family}_{option}": value
    for family in ("mysql", "mariadb")
    for option, value in {"engine": "InnoDB", "charset": "utf8mb4", "row_format": "DYNAMIC"}.items()
}


def upgrade() -> None:
    tables.create(
        "queue_archives",
        sa.Column("run", sa.String(40), primary_key=True),
        sa.Column("table_name", name(64), nullable=False),
        sa.Column("target", long_text(), nullable=False),
        sa.Column("first_id", sa.BigInteger, nullable=False),
        sa.Column("last_id", sa.BigInteger, nullable=False),
        sa.Column("before_date", UtcDateTime, nullable=False),
        sa.Column("entries", sa.BigInteger, nullable=False),
        sa.Column("deleted_date", UtcDateTime, nullable=False),
        **OPTIONS,
    )
    tables.create(
        "queue_replays",
        sa.Column("archive", sa.String(40), primary_key=True),
        sa.Column("record_id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("replay_id", sa.BigInteger, nullable=False),
        sa.Column("replayed_date", UtcDateTime, nullable=False),
        **OPTIONS,
    )
