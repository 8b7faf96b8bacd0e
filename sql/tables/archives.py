"""The tables of the archive."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Index, MetaData, String, Table

from sql.tables.conventions import NAME_LENGTH, OPTIONS
from sql.types import UtcDateTime, long_bytes, long_text, name

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
    Column("archive", String(RUN_LENGTH)),
    Column("kind", String(16)),
    Column("state", String(16)),
    Column("manifest", long_bytes()),
    **OPTIONS,
)
"""The log of all archives: a row for each run that has published a manifest, with its bytes.

`archive` names the archive: the run of its first manifest. `state` is `published` until the run's
rows are deleted from history, and `deleted` from then on. `deleted_date` is when that was; until
then, when the row was entered. Versions before 0.3 entered only runs whose rows they had deleted:
`archive`, `kind`, `state` and `manifest` are NULL until the next run fills them.
"""
Index(
    "queue_archives_place",
    queue_archives.c.table_name,
    queue_archives.c.archive,
    queue_archives.c.manifest_number,
    unique=True,
)

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
