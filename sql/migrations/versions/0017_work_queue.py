"""The work queue: tasks, docs, and how many there are."""

from typing import Any

import sqlalchemy as sa
from alembic import context, op

from sql.migrations import indices, tables
from sql.types import UtcDateTime, Utf8, long_bytes, long_text, name, record_id

revision = "0017"
down_revision = "0016"

OPTIONS: dict[str, Any] = {
    f"{family}_{option}": value
    for family in ("mysql", "mariadb")
    for option, value in {"engine": "InnoDB", "charset": "utf8mb4", "row_format": "DYNAMIC"}.items()
}


def upgrade() -> None:
    tables.create(
        "work_tasks",
        sa.Column("task_id", name(64), primary_key=True),
        sa.Column("queue", name(512), nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("arrival_date", UtcDateTime, nullable=False),
        sa.Column("lease_date", UtcDateTime),
        sa.Column("claimant", name(64), nullable=False),
        sa.Column("claims", sa.Integer, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("created_date", UtcDateTime, nullable=False),
        sa.Column("modified_date", UtcDateTime, nullable=False),
        sa.Column("err", long_text()),
        sa.Column("value_json", long_text()),
        sa.Column("value_bytes", long_bytes()),
        **OPTIONS,
    )
    _store("work_tasks")
    claim = ["queue", "arrival_date", "task_id"]
    indices.create("work_tasks_claim", "work_tasks", claim, postgresql_where=sa.text("queue >= ''"))
    held, claimed = sa.text("lease_date IS NOT NULL"), sa.text("claims > 0")
    indices.create(
        "work_tasks_leases",
        "work_tasks",
        ["queue", "lease_date"],
        postgresql_where=held,
        sqlite_where=held,
    )
    indices.create(
        "work_tasks_claims",
        "work_tasks",
        ["queue", "claims"],
        postgresql_where=claimed,
        sqlite_where=claimed,
    )
    tables.create(
        "work_doc_sets",
        sa.Column("namespace", Utf8(1024), primary_key=True),
        sa.Column("doc_key", Utf8(256), primary_key=True),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("arrival_date", UtcDateTime, nullable=False),
        sa.Column("claimant", name(64), nullable=False),
        **OPTIONS,
    )
    _store("work_doc_sets")
    indices.create("work_doc_sets_held", "work_doc_sets", ["namespace", "arrival_date"])
    tables.create(
        "work_docs",
        sa.Column("namespace", Utf8(1024), primary_key=True),
        sa.Column("doc_id", name(64), primary_key=True),
        sa.Column("doc_key", Utf8(256), nullable=False),
        sa.Column("secondary_key", Utf8(256), nullable=False),
        sa.Column("created_date", UtcDateTime, nullable=False),
        sa.Column("modified_date", UtcDateTime, nullable=False),
        sa.Column("content_json", long_text()),
        sa.Column("content_bytes", long_bytes()),
        **OPTIONS,
    )
    place = ["namespace", "doc_key", "secondary_key"]
    indices.create("work_docs_place", "work_docs", place, unique=True)
    for table, names in {
        "work_queue_counts": name(512),
        "work_namespace_counts": Utf8(1024),
    }.items():
        tables.create(
            table,
            sa.Column("count_id", record_id(), primary_key=True, autoincrement=True),
            sa.Column("name", names, nullable=False),
            sa.Column("minute", UtcDateTime),
            sa.Column("amount", sa.BigInteger, nullable=False),
            sqlite_autoincrement=True,
            **OPTIONS,
        )
        indices.create(f"{table}_by_name", table, ["name", "minute"])


def _store(table: str) -> None:
    """PostgreSQL's parameters for a table whose rows are changed once and soon removed."""
    if context.get_context().dialect.name == "postgresql":
        op.execute(
            f"ALTER TABLE {table} SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.01, "
            "autovacuum_vacuum_threshold = 1000, autovacuum_analyze_scale_factor = 0.05, "
            "autovacuum_vacuum_cost_delay = 0)"
        )
