"""Notifications of a schedule may have search keys that are texts, which stand in their headers."""

import sqlalchemy as sa

from sql.migrations import tables
from sql.types import long_text

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    tables.add_columns("queue_schedules", sa.Column("headers", long_text()))
