"""The database knows the manifest of each archived run, so that none can vanish unseen, and when its newest row ended."""

import sqlalchemy as sa
from alembic import op

from sql.types import UtcDateTime

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.add_column("queue_archives", sa.Column("manifest_number", sa.BigInteger))
    op.add_column("queue_archives", sa.Column("manifest_sha256", sa.String(64)))
    op.add_column("queue_archives", sa.Column("newest_date", UtcDateTime))
