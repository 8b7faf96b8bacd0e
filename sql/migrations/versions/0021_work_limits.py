"""The limits of queues of tasks."""

from typing import Any

import sqlalchemy as sa

from sql.migrations import tables
from sql.types import UtcDateTime, name

revision = "0021"
down_revision = "0020"

OPTIONS: dict[str, Any] = {
    f"{family}_{option}": value
    for family in ("mysql", "mariadb")
    for option, value in {"engine": "InnoDB", "charset": "utf8mb4", "row_format": "DYNAMIC"}.items()
}


def upgrade() -> None:
    tables.create(
        "work_limits",
        sa.Column("queue", name(512), primary_key=True),
        sa.Column("concurrency", sa.Integer),
        sa.Column("rate", sa.Integer),
        sa.Column("per_microseconds", sa.BigInteger),
        sa.Column("burst", sa.Integer),
        sa.Column("limited_by", sa.String(255), nullable=False),
        sa.Column("since", UtcDateTime, nullable=False),
        sa.Column("arrival_date", UtcDateTime),
        **OPTIONS,
    )
