"""Queues can be limited."""

from typing import Any

import sqlalchemy as sa

from sql.migrations import tables
from sql.types import UtcDateTime, long_text, name, readable

revision = "0013"
down_revision = "0012"

OPTIONS: dict[str, Any] = {
    f"{family}_{option}": value
    for family in ("mysql", "mariadb")
    for option, value in {"engine": "InnoDB", "charset": "utf8mb4", "row_format": "DYNAMIC"}.items()
}


def upgrade() -> None:
    queue_name = sa.Column("queue_name", name(129), nullable=False)
    since = sa.Column("since", UtcDateTime, nullable=False)
    arrival_date = sa.Column("arrival_date", UtcDateTime)
    tables.create(
        "queue_limits",
        sa.Column("table_name", name(64), primary_key=True),
        sa.Column("lane", name(64), primary_key=True),
        queue_name,
        sa.Column("concurrency", sa.Integer),
        sa.Column("per_node", sa.Integer),
        sa.Column("rate", sa.Integer),
        sa.Column("per_microseconds", sa.BigInteger),
        sa.Column("burst", sa.Integer),
        sa.Column("limited_by", sa.String(255), nullable=False),
        since,
        arrival_date,
        sa.CheckConstraint(readable(queue_name, since, arrival_date), name="queue_limits_readable"),
        **OPTIONS,
    )
    tables.create(
        "queue_places",
        sa.Column("table_name", name(64), primary_key=True),
        sa.Column("lane", name(64), primary_key=True),
        sa.Column("record_id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("claim_count", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("owner", name(64), nullable=False),
        sa.Column("places", sa.Integer, nullable=False),
        sa.Column("claims", long_text(), nullable=False),
        **OPTIONS,
    )
