"""The two tables of entries: a main table with live work only, and a history of ended work.

Both have one set of columns, so that an entry keeps its id when it moves. Column names are Kill
Bill's where the meaning is the same, and every column that Kill Bill does not have has a default:
an INSERT written for its tables works on these.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sqlalchemy import (
    DDL,
    BigInteger,
    CheckConstraint,
    Column,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    event,
    literal_column,
)

from sql.tables.conventions import CLASS_NAME_LENGTH, NAME_LENGTH, OPTIONS, QUEUE_NAME_LENGTH
from sql.types import (
    UtcDateTime,
    long_bytes,
    long_text,
    name,
    readable_or_now,
    record_id,
    utc_now,
)

LANE_LENGTH = NAME_LENGTH
ERROR_LENGTH = 16_000
"""Longest `last_error` kept, in characters: type, message and the tail of the traceback."""


def _entry_columns() -> list[Column[Any]]:
    return [
        Column("queue_name", name(QUEUE_NAME_LENGTH), nullable=False, server_default="bus"),
        Column("class_name", name(CLASS_NAME_LENGTH), nullable=False),
        Column("event_json", long_text()),
        Column("event_bytes", long_bytes()),
        Column("codec", String(32), nullable=False, server_default="json"),
        Column("user_token", String(36)),
        Column("future_user_token", String(36)),
        Column("search_key1", BigInteger),
        Column("search_key2", BigInteger),
        Column("created_date", UtcDateTime, nullable=False, server_default=utc_now()),
        Column("effective_date", UtcDateTime, nullable=False, server_default=utc_now()),
        Column("creating_owner", name(NAME_LENGTH), nullable=False, server_default=""),
        Column("processing_owner", name(NAME_LENGTH)),
        Column("processing_available_date", UtcDateTime),
        Column("lane", name(LANE_LENGTH), nullable=False, server_default=""),
        Column("processing_state", name(16), nullable=False, server_default="AVAILABLE"),
        Column("error_count", Integer, nullable=False, server_default="0"),
        Column("claim_count", Integer, nullable=False, server_default="0"),
        Column("redispatch_count", Integer, nullable=False, server_default="0"),
        Column("crash_count", Integer, nullable=False, server_default="0"),
        Column("subscribers_done", long_text()),
        Column("headers", long_text()),
        Column("origin_id", BigInteger),
        Column("replay_of", BigInteger),
    ]


_READ = (
    "queue_name",
    "class_name",
    "lane",
    "processing_state",
    "created_date",
    "effective_date",
    "processing_available_date",
    "error_count",
    "claim_count",
    "redispatch_count",
    "crash_count",
)
"""Columns that the engine computes with, or compares."""

ENTRY_COLUMNS = ("record_id", *(column.name for column in _entry_columns()))
"""The columns that the main and the history table share, in order."""


CHANGED_ROWS = {
    "fillfactor": 70,
    "autovacuum_vacuum_scale_factor": 0.01,
    "autovacuum_vacuum_threshold": 1000,
    "autovacuum_analyze_scale_factor": 0.05,
    "autovacuum_vacuum_cost_delay": 0,
}
"""PostgreSQL's, for a table whose rows are changed once and soon removed.

The migration sets the same.
"""


CLAIMED_ROWS = {**CHANGED_ROWS, "fillfactor": 50}
"""The same for entries: half of each page is room for the versions that their claims make.

A version of a row that stays on its page is logged without the bytes that it shares with the last
one.
"""


STORAGE = "postgresql_storage"
"""Key of a table's `info`: the text between the brackets of ALTER TABLE … SET (…)."""


def store(made: Table, **parameters: float) -> None:
    """Set PostgreSQL's storage parameters when a table is created.

    SQLAlchemy 2.0 has no option for them.
    """
    settings = ", ".join(f"{name} = {value}" for name, value in parameters.items())
    made.info[STORAGE] = settings
    statement: Any = DDL(f"ALTER TABLE %(fullname)s SET ({settings})")  # type: ignore[no-untyped-call]  # not typed there
    event.listen(made, "after_create", statement.execute_if(dialect="postgresql"))


@dataclass(frozen=True)
class EntryTables:
    """One main table and its history."""

    main: Table
    history: Table

    @property
    def claim_index(self) -> str:
        """Name of the index that claims walk."""
        return f"{self.main.name}_claim"


@lru_cache
def entry_tables(main_name: str, *, schema: str | None = None) -> EntryTables:
    """The pair `main_name` and `main_name + "_history"`.

    With a `schema`, statements find them whatever the session's search path is, or the connection's
    map of schemas.
    """
    return define_entries(main_name, MetaData(), schema=schema)


def define_entries(main_name: str, metadata: MetaData, *, schema: str | None = None) -> EntryTables:
    """Define the same pair among the tables of `metadata`."""
    main = Table(
        main_name,
        metadata,
        Column("record_id", record_id(), primary_key=True, autoincrement=True),
        *_entry_columns(),
        schema=schema,
        sqlite_autoincrement=True,  # else SQLite reuses the ids of deleted rows
        **OPTIONS,
    )
    store(main, **CLAIMED_ROWS)
    main.append_constraint(
        CheckConstraint(
            readable_or_now(*(column for column in main.c if column.name in _READ)),
            name=f"{main_name}_readable",
        )
    )
    Index(
        f"{main_name}_claim",
        main.c.lane,
        main.c.effective_date,
        main.c.record_id,
        # True of all lanes, and known to be only where a lane is named: the planner, for whom all
        # indices of a table that it takes for empty cost the same, would walk this one to look an
        # id up.
        postgresql_where=main.c.lane >= literal_column("''"),
    )
    keyed = main.c.search_key2.is_not(None)
    Index(
        f"{main_name}_keys",
        main.c.search_key2,
        main.c.search_key1,
        postgresql_where=keyed,
        sqlite_where=keyed,
    )
    history_name = f"{main_name}_history"
    history = Table(
        history_name,
        metadata,
        Column("record_id", BigInteger, primary_key=True, autoincrement=False),
        Column("finished_date", UtcDateTime, primary_key=True),
        *_entry_columns(),
        Column("started_date", UtcDateTime),
        Column("last_error", long_text()),
        schema=schema,
        **OPTIONS,
    )
    store(history, autovacuum_vacuum_insert_scale_factor=0.1)
    # Most entries have neither a key nor an origin, and so no line in these.
    keyed, followed = history.c.search_key2.is_not(None), history.c.origin_id.is_not(None)
    Index(
        f"{history_name}_keys",
        history.c.search_key2,
        history.c.search_key1,
        postgresql_where=keyed,
        sqlite_where=keyed,
    )
    Index(
        f"{history_name}_origin",
        history.c.origin_id,
        postgresql_where=followed,
        sqlite_where=followed,
    )
    Index(f"{history_name}_finished", history.c.finished_date, postgresql_using="brin")
    return EntryTables(main, history)
