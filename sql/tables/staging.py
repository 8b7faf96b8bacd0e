"""The tables of jobs that post: rows that tasks stage, and runs that posted them."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Integer, MetaData, String, Table

from sql.tables.conventions import CLASS_NAME_LENGTH, NAME_LENGTH, OPTIONS, QUEUE_NAME_LENGTH
from sql.types import UtcDateTime, long_bytes, long_text, name

queue_staged = Table(
    "queue_staged",
    MetaData(),
    Column("run", name(NAME_LENGTH), primary_key=True),
    Column("job", String(32), primary_key=True),
    Column("part", Integer, primary_key=True, autoincrement=False),
    Column("attempt", String(32), primary_key=True),
    Column("place", Integer, primary_key=True, autoincrement=False),
    Column("staged_date", UtcDateTime, nullable=False),
    Column("queue_name", name(QUEUE_NAME_LENGTH), nullable=False),
    Column("class_name", name(CLASS_NAME_LENGTH), nullable=False),
    Column("event_json", long_text()),
    Column("event_bytes", long_bytes()),
    Column("codec", String(32), nullable=False),
    Column("user_token", String(36)),
    Column("future_user_token", String(36)),
    Column("search_key1", BigInteger),
    Column("search_key2", BigInteger),
    Column("effective_date", UtcDateTime),
    Column("headers", long_text()),
    Column("replay_of", BigInteger),
    **OPTIONS,
)
"""Rows that attempts of a job's tasks have written. The table is empty between jobs.

They are posted when all tasks have ended.
"""

queue_posted_runs = Table(
    "queue_posted_runs",
    MetaData(),
    Column("run", name(NAME_LENGTH), primary_key=True),
    Column("part", Integer, primary_key=True, autoincrement=False),
    Column("table_name", name(NAME_LENGTH), nullable=False),
    Column("entries", BigInteger, nullable=False),
    Column("posted_date", UtcDateTime, nullable=False),
    **OPTIONS,
)
"""Counts of the entries that runs of jobs have posted, by partition.

The transaction that posts them enters them.
"""
