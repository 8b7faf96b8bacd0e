"""The schema tells which versions of the library can work with it.

A later migration that older code can't work with raises the value; one that only adds leaves it.
"""

import sqlalchemy as sa

from sql.migrations import tables

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    works_since = sa.Column("works_since", sa.String(32), nullable=False, server_default="0005")
    tables.add_columns("stickybus_schema", works_since)
