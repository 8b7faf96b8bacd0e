"""The tables of the archive."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, MetaData, String, Table

from sql.tables.conventions import NAME_LENGTH, OPTIONS
from sql.types import UtcDateTime, long_text, name

RUN_LENGTH = 40
"""Longest name of a run of the archive."""

queue_archives = Table(
    "queue_archives",
    MetaData(),
    Column("run", String(RUN_LENGTH), primary_key=True),
    Column("table_name", name(NAME_LENGTH), nullable=False),
    Column("target", long_text(), nullable=False),
    Column("first_id", BigInteger, nullable=False),
    Column("last_id", BigInteger, nullable=False),
    Column("before_date", UtcDateTime, nullable=False),
    Column("entries", BigInteger, nullable=False),
    Column("deleted_date", UtcDateTime, nullable=False),
    Column("manifest_number", BigInteger),
    Column("manifest_sha256", String(64)),
    Column("newest_date", UtcDateTime),
    **OPTIONS,
)
"""Archived ranges of history whose rows are deleted here.

The transaction that deletes them enters them.
"""

queue_replays = Table(
    "queue_replays",
    MetaData(),
    Column("archive", String(RUN_LENGTH), primary_key=True),
    Column("record_id", BigInteger, primary_key=True, autoincrement=False),
    Column("replay_id", BigInteger, nullable=False),
    Column("replayed_date", UtcDateTime, nullable=False),
    **OPTIONS,
)
"""Entries that were posted again, from an archive or by hand. The posting transaction enters them.

`replay_id` 0: nothing was posted, the entry was discarded.
"""
