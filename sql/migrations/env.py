"""Alembic's entry point. It gets its connection and its tables from `sql.schema`."""

from alembic import context

attributes = context.config.attributes
options = {
    "version_table": attributes["version_table"],
    "transactional_ddl": True,
    # Beside traffic: no lock is held longer than for its own step, and a step that is done stays
    # done if the next one fails.
    "transaction_per_migration": attributes.get("step_by_step", False),
    "on_version_apply": attributes.get("on_version_apply"),
}

if "connection" in attributes:
    context.configure(connection=attributes["connection"], **options)
else:
    context.configure(
        dialect_name=attributes["dialect_name"], output_buffer=attributes["output"], **options
    )

with context.begin_transaction():
    context.run_migrations()
