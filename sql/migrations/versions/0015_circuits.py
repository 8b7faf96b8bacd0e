"""Failed entries of a handler can wait while one of them probes; order keys can be paused."""

from typing import Any

import sqlalchemy as sa

from sql.migrations import tables
from sql.types import UtcDateTime, long_text, name, readable

revision = "0015"
down_revision = "0014"

OPTIONS: dict[str, Any] = {
    f"{family}_{option}": value
    for family in ("mysql", "mariadb")
    for option, value in {"engine": "InnoDB", "charset": "utf8mb4", "row_format": "DYNAMIC"}.items()
}


def upgrade() -> None:
    tables.add_columns("queue_pauses", sa.Column("order_key", name(128)))
    queue_name = sa.Column("queue_name", name(129), nullable=False)
    since = sa.Column("since", UtcDateTime, nullable=False)
    tables.create(
        "queue_circuits",
        sa.Column("table_name", name(64), primary_key=True),
        sa.Column("lane", name(64), primary_key=True),
        queue_name,
        sa.Column("handler", long_text(), nullable=False),
        since,
        sa.Column("probe_id", sa.BigInteger, nullable=False),
        sa.Column("failures", sa.Integer, nullable=False),
        sa.CheckConstraint(readable(queue_name, since), name="queue_circuits_readable"),
        **OPTIONS,
    )
