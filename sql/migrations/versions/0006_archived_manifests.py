"""The database knows the manifest of each archived run, so that none can vanish unseen.

It also knows when the run's newest row ended.
"""

import sqlalchemy as sa

from sql.migrations import tables
from sql.types import UtcDateTime

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    tables.add_columns(
        "queue_archives",
        sa.Column("manifest_number", sa.BigInteger),
        sa.Column("manifest_sha256", sa.String(64)),
        sa.Column("newest_date", UtcDateTime),
    )
