"""Less is written: indices of history only of what has a key or an origin, and room for claims."""

import sqlalchemy as sa
from alembic import context, op

from sql.migrations import indices

revision = "0018"
down_revision = "0017"

PARTIAL = {"keys": ["search_key2", "search_key1"], "origin": ["origin_id"]}


def upgrade() -> None:
    database = op.get_context().dialect.name
    for main_name in context.config.attributes["tables"]:
        history_name = f"{main_name}_history"
        for ending, columns in PARTIAL.items() if database in {"postgresql", "sqlite"} else ():
            known = sa.text(f"{columns[0]} IS NOT NULL")
            indices.replace(
                f"{history_name}_{ending}",
                history_name,
                columns,
                postgresql_where=known,
                sqlite_where=known,
            )
        if database == "postgresql":
            quote = op.get_context().dialect.identifier_preparer.quote
            op.execute(f"ALTER TABLE {quote(main_name)} SET (fillfactor = 50)")
