"""Queues and handlers can be paused."""

from typing import Any

import sqlalchemy as sa

from sql.migrations import tables
from sql.types import UtcDateTime, long_text, name, readable

revision = "0010"
down_revision = "0009"

OPTIONS: dict[str, Any] = {
    f"{family}_{option}": value
    for family in ("mysql", "mariadb")
    for option, value in {"engine": "InnoDB", "charset": "utf8mb4", "row_format": "DYNAMIC"}.items()
}


def upgrade() -> None:
    queue_name = sa.Column("queue_name", name(129), nullable=False)
    since = sa.Column("since", UtcDateTime, nullable=False)
    until = sa.Column("until", UtcDateTime)
    tables.create(
        "queue_pauses",
        sa.Column("table_name", name(64), primary_key=True),
        sa.Column("lane", name(64), primary_key=True),
        queue_name,
        sa.Column("handler", long_text()),
        sa.Column("paused_by", sa.String(255), nullable=False),
        sa.Column("reason", long_text()),
        since,
        until,
        sa.CheckConstraint(readable(queue_name, since, until), name="queue_pauses_readable"),
        **OPTIONS,
    )
