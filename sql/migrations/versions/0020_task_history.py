"""The history of tasks, which queues keep it, and where a failed task has failed."""

from typing import Any

import sqlalchemy as sa

from sql.migrations import indices, tables
from sql.types import UtcDateTime, long_bytes, long_text, name, record_id

revision = "0020"
down_revision = "0019"

OPTIONS: dict[str, Any] = {
    f"{family}_{option}": value
    for family in ("mysql", "mariadb")
    for option, value in {"engine": "InnoDB", "charset": "utf8mb4", "row_format": "DYNAMIC"}.items()
}


def upgrade() -> None:
    tables.add_columns("work_tasks", sa.Column("failed_in", name(512)))
    tables.create(
        "work_task_history",
        sa.Column("record_id", record_id(), primary_key=True, autoincrement=True),
        sa.Column("task_id", name(64), nullable=False),
        sa.Column("queue", name(512), nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("claims", sa.Integer, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("created_date", UtcDateTime, nullable=False),
        sa.Column("modified_date", UtcDateTime, nullable=False),
        sa.Column("finished_date", UtcDateTime, nullable=False),
        sa.Column("finished_by", name(64), nullable=False),
        sa.Column("err", long_text()),
        sa.Column("value_json", long_text()),
        sa.Column("value_bytes", long_bytes()),
        sqlite_autoincrement=True,
        **OPTIONS,
    )
    by_queue = ["queue", "finished_date", "record_id"]
    indices.create("work_task_history_by_queue", "work_task_history", by_queue)
    indices.create("work_task_history_by_task", "work_task_history", ["task_id"])
    tables.create(
        "work_queue_settings",
        sa.Column("queue", name(512), primary_key=True),
        sa.Column("history_since", UtcDateTime),
        **OPTIONS,
    )
