"""The table of idempotency keys."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Double, MetaData, String, Table

from sql.tables.conventions import NAME_LENGTH, OPTIONS, QUEUE_NAME_LENGTH, index_by_look_date
from sql.types import UtcDateTime, long_text, name

KEY_LENGTH = 255
"""Longest key, in characters."""

queue_keys = Table(
    "queue_keys",
    MetaData(),
    Column("table_name", name(NAME_LENGTH), primary_key=True),
    Column("queue_name", name(QUEUE_NAME_LENGTH), primary_key=True),
    Column("entry_key", name(KEY_LENGTH), primary_key=True),
    Column("taken_by", String(32), nullable=False),
    Column("record_id", BigInteger),
    Column("keep", String(16), nullable=False),
    Column("keep_seconds", Double),
    Column("ended_state", String(16)),
    Column("ended_date", UtcDateTime),
    Column("look_date", UtcDateTime),
    Column("requeue", long_text()),
    **OPTIONS,
)
"""Keys of posts, each with the id of the entry that has it now.

`taken_by` names the post that has taken it, `look_date` is when its maintenance is due, and
`requeue` the entry that follows the one that runs.
"""
index_by_look_date("queue_keys_by_look_date", queue_keys)
