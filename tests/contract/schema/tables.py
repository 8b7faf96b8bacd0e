"""Tables and differences of a schema."""

from __future__ import annotations

from typing import Any

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import URL, Connection, Engine, create_engine, inspect

from sql import schema
from sql.database import Database
from sql.families import VERSION_TABLE, metadata_for
from sql.names import DEFAULT_TABLES
from sql.schema import SchemaReport

TABLES = {
    *("bus_events", "bus_events_history", "notifications", "notifications_history"),
    *(
        "queue_archives",
        "queue_circuits",
        "queue_keys",
        "queue_limit_keys",
        "queue_limits",
        "queue_nodes",
        "queue_order_heads",
        "queue_ordered",
        "queue_pauses",
        "queue_places",
        "queue_posted_runs",
        "queue_replays",
        "queue_schedules",
        "queue_staged",
        "queue_waits",
        "queue_group_ends",
        "queue_groups",
        "work_doc_sets",
        "work_docs",
        "work_limits",
        "work_namespace_counts",
        "work_queue_counts",
        "work_queue_settings",
        "work_schedules",
        "work_task_history",
        "work_tasks",
    ),
}


def reflecting(url: URL) -> Engine:
    """Return an engine of the dialect of the server, without the settings of the engine's sessions.

    The server may be MySQL or MariaDB.
    """
    database = Database(url)
    database.close()
    return create_engine(database.url)


def tables(engine: Engine) -> set[str]:
    return set(inspect(engine).get_table_names()) - {VERSION_TABLE}


def report(engine: Engine, *names: str) -> SchemaReport:
    with engine.connect() as connection:
        return schema.check(connection, names or DEFAULT_TABLES)


def differences(connection: Connection, *names: str) -> list[Any]:
    """What Alembic would still change to reach the tables' definition."""
    context = MigrationContext.configure(
        connection, opts={"version_table": VERSION_TABLE, "compare_type": True}
    )
    return [
        difference
        for difference in compare_metadata(context, metadata_for(*names))
        if not (difference[0] == "remove_table" and difference[1].name == VERSION_TABLE)
    ]


def described(engine: Engine) -> dict[str, Any]:
    inspector = inspect(engine)
    return {
        table: {
            "columns": {
                column["name"]: (
                    *(
                        str(column["type"]),
                        getattr(column["type"], "collation", None),
                        column["nullable"],
                    ),
                    str(column["default"]).replace(table, ""),
                )
                for column in inspector.get_columns(table)
            },
            "indexes": sorted(
                (
                    *(str(index["name"]), str(index["column_names"])),
                    *(
                        f"{option}={value}"
                        for option, value in index.get("dialect_options", {}).items()
                    ),
                )
                for index in inspector.get_indexes(table)
            ),
            "key": inspector.get_pk_constraint(table)["constrained_columns"],
            "checks": sorted(
                str(check["sqltext"]) for check in inspector.get_check_constraints(table)
            ),
        }
        for table in sorted(tables(engine))
    }


def make_schema_of(engine: Engine, revision: str, *names: str) -> None:
    """Make the tables as they were at a revision."""
    config = schema.alembic_config(names or DEFAULT_TABLES)
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, revision)
