"""The recurring schedules of tasks."""

from typing import Any

import sqlalchemy as sa

from sql.migrations import tables
from sql.types import UtcDateTime, long_bytes, long_text, name

revision = "0022"
down_revision = "0021"

OPTIONS: dict[str, Any] = {
    f"{family}_{option}": value
    for family in ("mysql", "mariadb")
    for option, value in {"engine": "InnoDB", "charset": "utf8mb4", "row_format": "DYNAMIC"}.items()
}


def upgrade() -> None:
    tables.create(
        "work_schedules",
        sa.Column("queue", name(512), primary_key=True),
        sa.Column("name", name(64), primary_key=True),
        sa.Column("rule", long_text(), nullable=False),
        sa.Column("value_json", long_text()),
        sa.Column("value_bytes", long_bytes()),
        sa.Column("last_due", UtcDateTime),
        sa.Column("next_due", UtcDateTime),
        sa.Column("last_task_id", name(64)),
        **OPTIONS,
    )
