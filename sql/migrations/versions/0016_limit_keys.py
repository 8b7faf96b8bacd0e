"""Keys can be limited."""

from typing import Any

import sqlalchemy as sa

from sql.migrations import indices, tables
from sql.types import UtcDateTime, name

revision = "0016"
down_revision = "0015"

OPTIONS: dict[str, Any] = {
    f"{family}_{option}": value
    for family in ("mysql", "mariadb")
    for option, value in {"engine": "InnoDB", "charset": "utf8mb4", "row_format": "DYNAMIC"}.items()
}


def upgrade() -> None:
    tables.add_columns(
        "queue_limits",
        sa.Column("per_key", sa.Integer),
        sa.Column("rate_per_key", sa.Integer),
        sa.Column("burst_per_key", sa.Integer),
    )
    tables.create(
        "queue_limit_keys",
        sa.Column("table_name", name(64), primary_key=True),
        sa.Column("lane", name(64), primary_key=True),
        sa.Column("queue_name", name(129), nullable=False),
        sa.Column("limit_key", name(128), nullable=False),
        sa.Column("arrival_date", UtcDateTime),
        sa.Column("look_date", UtcDateTime),
        **OPTIONS,
    )
    indices.create("queue_limit_keys_look", "queue_limit_keys", ["table_name", "look_date"])
