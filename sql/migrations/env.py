"""Alembic's entry point: runs on the connection, and for the tables, that `sql.schema` hands over."""

from alembic import context

attributes = context.config.attributes
options = {"version_table": attributes["version_table"], "transactional_ddl": True}

if "connection" in attributes:
    context.configure(connection=attributes["connection"], **options)
else:
    context.configure(dialect_name=attributes["dialect_name"], output_buffer=attributes["output"], **options)

with context.begin_transaction():
    context.run_migrations()
