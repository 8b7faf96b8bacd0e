"""The tables as they are at the newest migration (`sql/migrations` holds how they came to be).

Entries: a main table with live work only and a history table with what has ended, of one column
set, so that an entry keeps its id when it moves. Column names are Kill Bill's where the meaning is
the same, and every column that Kill Bill does not have has a default: an INSERT written for its
tables works on these.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    DDL,
    BigInteger,
    CheckConstraint,
    Column,
    Double,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    event,
    literal_column,
)

from sql.types import (
    UtcDateTime,
    long_bytes,
    long_text,
    name,
    readable,
    readable_or_now,
    record_id,
    utc_now,
)

NAME_LENGTH = 64
"""Longest node, bus, service and queue name, in characters."""
LANE_LENGTH = NAME_LENGTH
QUEUE_NAME_LENGTH = 2 * NAME_LENGTH + 1
CLASS_NAME_LENGTH = 255
ERROR_LENGTH = 16_000
"""Longest `last_error` kept, in characters: type, message and the tail of the traceback."""

_OPTIONS: dict[str, Any] = {
    f"{family}_{option}": value
    for family in ("mysql", "mariadb")
    for option, value in {"engine": "InnoDB", "charset": "utf8mb4", "row_format": "DYNAMIC"}.items()
}


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


_MAIN_STORAGE = {
    "fillfactor": 70,
    "autovacuum_vacuum_scale_factor": 0.01,
    "autovacuum_vacuum_threshold": 1000,
    "autovacuum_analyze_scale_factor": 0.05,
    "autovacuum_vacuum_cost_delay": 0,
}
"""Of PostgreSQL, for a table whose every row is changed once and soon removed: as the migration sets it."""


STORAGE = "postgresql_storage"
"""Key of a table's `info`: what stands between the brackets of ALTER TABLE … SET (…)."""


def _store(made: Table, **parameters: float) -> None:
    """Set PostgreSQL's storage parameters where a table is created: SQLAlchemy 2.0 has no option for them."""
    settings = ", ".join(f"{name} = {value}" for name, value in parameters.items())
    made.info[STORAGE] = settings
    statement: Any = DDL(f"ALTER TABLE %(fullname)s SET ({settings})")  # type: ignore[no-untyped-call]
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


def entry_tables(
    main_name: str, metadata: MetaData | None = None, *, schema: str | None = None
) -> EntryTables:
    """Define the pair `main_name` and `main_name + "_history"`.

    With a `schema`, statements find them whatever the session's search path is, or the connection's
    map of schemas.
    """
    metadata = metadata if metadata is not None else MetaData()
    main = Table(
        main_name,
        metadata,
        Column("record_id", record_id(), primary_key=True, autoincrement=True),
        *_entry_columns(),
        schema=schema,
        sqlite_autoincrement=True,  # else SQLite reuses the ids of deleted rows
        **_OPTIONS,
    )
    _store(main, **_MAIN_STORAGE)
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
        **_OPTIONS,
    )
    _store(history, autovacuum_vacuum_insert_scale_factor=0.1)
    Index(f"{history_name}_keys", history.c.search_key2, history.c.search_key1)
    Index(f"{history_name}_origin", history.c.origin_id)
    Index(f"{history_name}_finished", history.c.finished_date, postgresql_using="brin")
    return EntryTables(main, history)


_shared = MetaData()

queue_nodes = Table(
    "queue_nodes",
    _shared,
    Column("name", name(NAME_LENGTH), primary_key=True),
    Column("epoch", BigInteger, nullable=False),
    Column("beat", BigInteger, nullable=False),
    Column("state", String(16), nullable=False),
    Column("hostname", String(255), nullable=False),
    Column("host_identity", String(255), nullable=False),
    Column("pid", BigInteger, nullable=False),
    Column("lease_seconds", Double, nullable=False),
    Column("started_date", UtcDateTime, nullable=False),
    Column("beat_date", UtcDateTime, nullable=False),
    Column("serves", long_text(), nullable=False),
    **_OPTIONS,
)
queue_nodes.append_constraint(
    CheckConstraint(readable(*queue_nodes.c), name="queue_nodes_readable")
)

queue_schedules = Table(
    "queue_schedules",
    _shared,
    Column("table_name", name(NAME_LENGTH), primary_key=True),
    Column("queue_name", name(QUEUE_NAME_LENGTH), primary_key=True),
    Column("name", name(NAME_LENGTH), primary_key=True),
    Column("rule", long_text(), nullable=False),
    Column("class_name", name(CLASS_NAME_LENGTH), nullable=False),
    Column("event_json", long_text()),
    Column("event_bytes", long_bytes()),
    Column("codec", String(32), nullable=False),
    Column("search_key1", BigInteger),
    Column("search_key2", BigInteger),
    Column("last_due", UtcDateTime),
    Column("next_due", UtcDateTime),
    **_OPTIONS,
)
queue_schedules.append_constraint(
    CheckConstraint(
        readable(
            *(queue_schedules.c[name] for name in ("rule", "class_name", "last_due", "next_due"))
        ),
        name="queue_schedules_readable",
    )
)

RUN_LENGTH = 40
"""Longest name of a run of the archive."""

queue_archives = Table(
    "queue_archives",
    _shared,
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
    **_OPTIONS,
)
"""Archived ranges of history whose rows are deleted here, entered by the transaction that deleted them."""

queue_replays = Table(
    "queue_replays",
    _shared,
    Column("archive", String(RUN_LENGTH), primary_key=True),
    Column("record_id", BigInteger, primary_key=True, autoincrement=False),
    Column("replay_id", BigInteger, nullable=False),
    Column("replayed_date", UtcDateTime, nullable=False),
    **_OPTIONS,
)
"""Entries that were posted again, from an archive or by hand, by the posting transaction.

`replay_id` 0: nothing was posted, the entry was discarded.
"""

queue_staged = Table(
    "queue_staged",
    _shared,
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
    **_OPTIONS,
)
"""Rows that attempts of a job's tasks have written, to be posted when all tasks have ended; empty between jobs."""

queue_posted_runs = Table(
    "queue_posted_runs",
    _shared,
    Column("run", name(NAME_LENGTH), primary_key=True),
    Column("part", Integer, primary_key=True, autoincrement=False),
    Column("table_name", name(NAME_LENGTH), nullable=False),
    Column("entries", BigInteger, nullable=False),
    Column("posted_date", UtcDateTime, nullable=False),
    **_OPTIONS,
)
"""What runs of jobs have posted, by partition, entered by the transaction that posted it."""

SHARED_TABLES = (
    queue_nodes,
    queue_schedules,
    queue_archives,
    queue_replays,
    queue_staged,
    queue_posted_runs,
)


def in_schema(table: Table, schema: str | None) -> Table:
    """A shared table by its full name, which leads callers' sessions to it whatever their search path is.

    Made once for all statements: SQLAlchemy keeps texts by the table object.
    """
    return table if schema is None else table.to_metadata(MetaData(), schema=schema)


def metadata_for(*main_names: str) -> MetaData:
    """All tables of a database whose buses and services use `main_names`."""
    metadata = MetaData()
    for table in SHARED_TABLES:
        table.to_metadata(metadata)
    for main_name in main_names:
        entry_tables(main_name, metadata)
    return metadata
