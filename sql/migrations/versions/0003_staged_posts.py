"""The rows of a distributed job before it posts them, and the posts of such jobs."""

from typing import Any

import sqlalchemy as sa

from sql.migrations import tables
from sql.types import UtcDateTime, long_bytes, long_text, name

revision = "0003"
down_revision = "0002"

OPTIONS: dict[str, Any] = {
    f"{family}_{option}": value
    for family in ("mysql", "mariadb")
    for option, value in {"engine": "InnoDB", "charset": "utf8mb4", "row_format": "DYNAMIC"}.items()
}


def upgrade() -> None:
    tables.create(
        "queue_staged",
        sa.Column("run", name(64), primary_key=True),
        sa.Column("job", sa.String(32), primary_key=True),
        sa.Column("part", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("attempt", sa.String(32), primary_key=True),
        sa.Column("place", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("staged_date", UtcDateTime, nullable=False),
        sa.Column("queue_name", name(129), nullable=False),
        sa.Column("class_name", name(255), nullable=False),
        sa.Column("event_json", long_text()),
        sa.Column("event_bytes", long_bytes()),
        sa.Column("codec", sa.String(32), nullable=False),
        sa.Column("user_token", sa.String(36)),
        sa.Column("future_user_token", sa.String(36)),
        sa.Column("search_key1", sa.BigInteger),
        sa.Column("search_key2", sa.BigInteger),
        sa.Column("effective_date", UtcDateTime),
        sa.Column("headers", long_text()),
        sa.Column("replay_of", sa.BigInteger),
        **OPTIONS,
    )
    tables.create(
        "queue_posted_runs",
        sa.Column("run", name(64), primary_key=True),
        sa.Column("part", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("table_name", name(64), nullable=False),
        sa.Column("entries", sa.BigInteger, nullable=False),
        sa.Column("posted_date", UtcDateTime, nullable=False),
        **OPTIONS,
    )
