"""Entries with their history, nodes, and recurring schedules."""

from typing import Any

import sqlalchemy as sa
from alembic import context, op

from sql.migrations import indices, tables
from sql.types import (
    UtcDateTime,
    long_bytes,
    long_text,
    name,
    readable,
    readable_or_now,
    record_id,
    utc_now,
)

revision = "0001"
down_revision = None

OPTIONS: dict[str, Any] = {
    f"{family}_{option}": value
    for family in ("mysql", "mariadb")
    for option, value in {
        "engine": "InnoDB",
        "charset": "utf8mb4",
        "row_format": "DYNAMIC",
    }.items()
}

READ = {
    *("queue_name", "class_name", "lane", "processing_state"),
    *("created_date", "effective_date", "processing_available_date"),
}


def upgrade() -> None:
    tables.create(
        "queue_nodes",
        *(
            columns := (
                sa.Column("name", name(64), primary_key=True),
                sa.Column("epoch", sa.BigInteger, nullable=False),
                sa.Column("beat", sa.BigInteger, nullable=False),
                sa.Column("state", sa.String(16), nullable=False),
                sa.Column("hostname", sa.String(255), nullable=False),
                sa.Column("host_identity", sa.String(255), nullable=False),
                sa.Column("pid", sa.BigInteger, nullable=False),
                sa.Column("lease_seconds", sa.Double, nullable=False),
                sa.Column("started_date", UtcDateTime, nullable=False),
                sa.Column("beat_date", UtcDateTime, nullable=False),
                sa.Column("serves", long_text(), nullable=False),
            )
        ),
        sa.CheckConstraint(readable(*columns), name="queue_nodes_readable"),
        **OPTIONS,
    )
    tables.create(
        "queue_schedules",
        sa.Column("table_name", name(64), primary_key=True),
        sa.Column("queue_name", name(129), primary_key=True),
        sa.Column("name", name(64), primary_key=True),
        rule := sa.Column("rule", long_text(), nullable=False),
        class_name := sa.Column("class_name", name(255), nullable=False),
        sa.Column("event_json", long_text()),
        sa.Column("event_bytes", long_bytes()),
        sa.Column("codec", sa.String(32), nullable=False),
        sa.Column("search_key1", sa.BigInteger),
        sa.Column("search_key2", sa.BigInteger),
        last_due := sa.Column("last_due", UtcDateTime),
        next_due := sa.Column("next_due", UtcDateTime),
        sa.CheckConstraint(
            readable(rule, class_name, last_due, next_due), name="queue_schedules_readable"
        ),
        **OPTIONS,
    )
    for main_name in context.config.attributes["tables"]:
        create_entries(main_name)


def create_entries(main_name: str) -> None:
    tables.create(
        main_name,
        sa.Column("record_id", record_id(), primary_key=True, autoincrement=True),
        *(columns := entry_columns()),
        sa.CheckConstraint(
            readable_or_now(
                *(
                    column
                    for column in columns
                    if column.name in READ or column.name.endswith("_count")
                )
            ),
            name=f"{main_name}_readable",
        ),
        sqlite_autoincrement=True,
        **OPTIONS,
    )
    indices.create(f"{main_name}_claim", main_name, ["lane", "effective_date", "record_id"])
    keyed = sa.text("search_key2 IS NOT NULL")
    keys = ["search_key2", "search_key1"]
    indices.create(f"{main_name}_keys", main_name, keys, postgresql_where=keyed, sqlite_where=keyed)
    history_name = f"{main_name}_history"
    tables.create(
        history_name,
        sa.Column("record_id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("finished_date", UtcDateTime, primary_key=True),
        *entry_columns(),
        sa.Column("started_date", UtcDateTime),
        sa.Column("last_error", long_text()),
        **OPTIONS,
    )
    indices.create(f"{history_name}_keys", history_name, keys)
    indices.create(f"{history_name}_origin", history_name, ["origin_id"])
    indices.create(
        f"{history_name}_finished", history_name, ["finished_date"], postgresql_using="brin"
    )
    if op.get_context().dialect.name == "postgresql":
        quote = op.get_context().dialect.identifier_preparer.quote
        # Room for the claim's update on the entry's own page, and a vacuum that keeps up with a
        # table whose rows all go: by count, not by a share of the table.
        op.execute(
            f"ALTER TABLE {quote(main_name)} SET (fillfactor = 70, autovacuum_vacuum_scale_factor "
            "= 0.01, autovacuum_vacuum_threshold = 1000, autovacuum_analyze_scale_factor = 0.05, "
            "autovacuum_vacuum_cost_delay = 0)"
        )
        op.execute(
            f"ALTER TABLE {quote(history_name)} SET (autovacuum_vacuum_insert_scale_factor = 0.1)"
        )


def entry_columns() -> list[sa.Column[Any]]:
    return [
        sa.Column("queue_name", name(129), nullable=False, server_default="bus"),
        sa.Column("class_name", name(255), nullable=False),
        sa.Column("event_json", long_text()),
        sa.Column("event_bytes", long_bytes()),
        sa.Column("codec", sa.String(32), nullable=False, server_default="json"),
        sa.Column("user_token", sa.String(36)),
        sa.Column("future_user_token", sa.String(36)),
        sa.Column("search_key1", sa.BigInteger),
        sa.Column("search_key2", sa.BigInteger),
        sa.Column("created_date", UtcDateTime, nullable=False, server_default=utc_now()),
        sa.Column("effective_date", UtcDateTime, nullable=False, server_default=utc_now()),
        sa.Column("creating_owner", name(64), nullable=False, server_default=""),
        sa.Column("processing_owner", name(64)),
        sa.Column("processing_available_date", UtcDateTime),
        sa.Column("lane", name(64), nullable=False, server_default=""),
        sa.Column("processing_state", name(16), nullable=False, server_default="AVAILABLE"),
        sa.Column("error_count", sa.Integer, nullable=False, server_default="0"),
        sa.Column("claim_count", sa.Integer, nullable=False, server_default="0"),
        sa.Column("redispatch_count", sa.Integer, nullable=False, server_default="0"),
        sa.Column("crash_count", sa.Integer, nullable=False, server_default="0"),
        sa.Column("subscribers_done", long_text()),
        sa.Column("headers", long_text()),
        sa.Column("origin_id", sa.BigInteger),
        sa.Column("replay_of", sa.BigInteger),
    ]
