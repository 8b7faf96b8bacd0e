"""The database holds the log of each archive: its publications, with the bytes of their manifests.

A unique key decides between two writers of one number. Rows of earlier versions, which have no
`state`, are of deleted runs.
"""

import sqlalchemy as sa

from sql.migrations import indices, tables
from sql.types import long_bytes

revision = "0019"
down_revision = "0018"


def upgrade() -> None:
    tables.add_columns(
        "queue_archives",
        sa.Column("archive", sa.String(40)),
        sa.Column("kind", sa.String(16)),
        sa.Column("state", sa.String(16)),
        sa.Column("manifest", long_bytes()),
    )
    place = ["table_name", "archive", "manifest_number"]
    indices.create("queue_archives_place", "queue_archives", place, unique=True)
