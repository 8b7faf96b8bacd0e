"""Indices of links hold what is to be looked at, and no more, on PostgreSQL."""

import sqlalchemy as sa
from alembic import op

from sql.migrations import indices

revision = "0023"
down_revision = "0022"

BY_LOOK_DATE = {
    "queue_keys_by_look_date": "queue_keys",
    "queue_waits_by_look_date": "queue_waits",
    "queue_groups_by_look_date": "queue_groups",
    "queue_limit_keys_look": "queue_limit_keys",
}


def upgrade() -> None:
    if op.get_context().dialect.name != "postgresql":
        return
    for name, table in BY_LOOK_DATE.items():
        dated = sa.text("look_date IS NOT NULL")
        indices.replace(name, table, ["table_name", "look_date"], postgresql_where=dated)
    indices.replace(
        "queue_ordered_unstarted",
        "queue_ordered",
        ["table_name", "unstarted"],
        postgresql_where=sa.text("unstarted"),
    )
