"""SQLite: a main table takes dates as CURRENT_TIMESTAMP writes them."""

import re

import sqlalchemy as sa
from alembic import context, op

from sql.types import DATE_GLOB, SECONDS_GLOB

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    if op.get_context().dialect.name != "sqlite" or context.is_offline_mode():
        return  # tables just made by 0001 take them
    for main_name in context.config.attributes["tables"]:
        _change(op.get_bind(), main_name)


def _change(connection: sa.Connection, main_name: str) -> None:
    """Make the table anew, with its rows, ids and indices.

    SQLite changes no constraint of a table that is there.
    """
    quote = connection.dialect.identifier_preparer.quote
    made = sa.table("sqlite_master", *map(sa.column, ("name", "tbl_name", "sql")))
    definition = connection.scalars(sa.select(made.c.sql).where(made.c.name == main_name)).one()
    if f"'{SECONDS_GLOB}'" in definition:
        return
    loose = re.sub(
        rf"(\w+) GLOB '{re.escape(DATE_GLOB)}'", rf"(\g<0> OR \1 GLOB '{SECONDS_GLOB}')", definition
    )
    indices = connection.scalars(
        sa.select(made.c.sql).where(
            made.c.tbl_name == main_name, made.c.name != main_name, made.c.sql.is_not(None)
        )
    ).all()
    sequence = sa.table("sqlite_sequence", sa.column("name"), sa.column("seq"))
    last = connection.scalar(sa.select(sequence.c.seq).where(sequence.c.name == main_name))
    new = f"{main_name}_0007"
    run = connection.exec_driver_sql
    run(re.sub(r"^CREATE TABLE (\"[^\"]+\"|\S+)", lambda _: f"CREATE TABLE {quote(new)}", loose))
    names = [column["name"] for column in sa.inspect(connection).get_columns(main_name)]
    old, copy = (sa.table(name, *map(sa.column, names)) for name in (main_name, new))
    connection.execute(sa.insert(copy).from_select(names, sa.select(old)))
    run(f"DROP TABLE {quote(main_name)}")
    run(f"ALTER TABLE {quote(new)} RENAME TO {quote(main_name)}")
    for statement in indices:
        run(statement)
    if last is not None:  # an id is never given twice, though its row has gone
        connection.execute(sa.delete(sequence).where(sequence.c.name == main_name))
        connection.execute(sa.insert(sequence).values(name=main_name, seq=last))
