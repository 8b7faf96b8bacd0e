"""PostgreSQL: the index of claims answers searches that name a lane, and nothing else."""

import sqlalchemy as sa
from alembic import context, op

from sql.migrations import indices

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    if op.get_context().dialect.name != "postgresql":
        return
    columns, every_lane = ["lane", "effective_date", "record_id"], sa.text("lane >= ''")
    for main_name in context.config.attributes["tables"]:
        indices.replace(f"{main_name}_claim", main_name, columns, postgresql_where=every_lane)
