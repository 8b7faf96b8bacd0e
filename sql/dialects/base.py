"""What every database does alike: the statements on entries, written once in SQLAlchemy Core.

A dialect overrides a method where its database needs, or rewards, another shape. Callers never ask which database
it is. Statements run on the connection given and never commit; every date is bound by the caller, in UTC.

Lock order: rows are locked in claim order by claims (which skip locked rows and so never wait), and in primary-key
order by everything else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import datetime
from functools import cached_property
from typing import Any

import msgspec
from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Engine,
    FromClause,
    Integer,
    Row,
    Select,
    String,
    Text,
    bindparam,
    case,
    delete,
    func,
    insert,
    literal,
    null,
    select,
    tuple_,
    update,
)
from sqlalchemy.exc import DBAPIError
from sqlalchemy.types import TypeEngine

from sql.tables import ENTRY_COLUMNS, EntryTables
from sql.types import UtcDateTime

AVAILABLE = "AVAILABLE"
IN_PROCESSING = "IN_PROCESSING"

LARGEST_COUNT = 2**31 - 1
"""What a count's column can hold."""


def raised(count: int) -> int:
    """The count after `count`. The largest is followed by 0: a row written by hand must not fail its whole batch."""
    return count + 1 if count < LARGEST_COUNT else 0


def _raised(count: ColumnElement[int]) -> ColumnElement[int]:
    return case((count < LARGEST_COUNT, count + 1), else_=0)


FINISH_COLUMNS: dict[str, TypeEngine[Any]] = {
    "record_id": BigInteger(),
    "claim_count": Integer(),
    "created_date": UtcDateTime(),
    "processing_state": String(16),
    "finished_date": UtcDateTime(),
    "started_date": UtcDateTime(),
    "error_count": Integer(),
    "subscribers_done": Text(),
    "last_error": Text(),
}
"""One outcome: the fence (with the owner, which is bound once a batch) and what history gets to know."""

_OUTCOME_COLUMNS = tuple(
    name for name in FINISH_COLUMNS if name not in {"record_id", "claim_count", "created_date"}
)


class Dialect:
    """A database's ways. One instance an engine."""

    name: str
    claim_hint: tuple[str, str] | None = None
    """An optimiser hint for the claim and the dialect name that takes it; `%(index)s` is the claim index."""

    def connect_options(self, *, statement_timeout_seconds: float, application_name: str) -> dict[str, Any]:
        """Arguments of `create_engine` for our own connections."""
        raise NotImplementedError

    def prepare(self, engine: Engine) -> None:
        """Attach to an engine of our own what its connections need when they open."""

    def closed(self) -> None:
        """The engine that was prepared is disposed of."""

    def writing(self) -> AbstractContextManager[None]:
        """Held around a write transaction of ours: nothing, where the server queues writers itself."""
        return nullcontext()

    def reading(self, connection: Connection) -> Connection:
        """Make `connection`'s next transaction one that only reads."""
        return connection

    def is_transient(self, error: DBAPIError) -> bool:
        """Whether the same transaction may succeed when it is run again."""
        raise NotImplementedError

    def instant(self, value: datetime) -> str:
        """An instant as it is written inside a batch."""
        return value.replace(tzinfo=None).isoformat(" ", "microseconds")

    def batch(self, columns: Mapping[str, TypeEngine[Any]]) -> FromClause:
        """The bound JSON parameter `batch` as a table named `batch` with `columns`."""
        raise NotImplementedError

    def encode_batch(self, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
        """The value of the parameter `batch`."""
        del columns
        return encode([[self._scalar(value) for value in row] for row in rows])

    def _scalar(self, value: Any) -> Any:
        return self.instant(value) if isinstance(value, datetime) else value

    def looked_up(self, statement: Select[Any], table: FromClause) -> Select[Any]:
        """The statement, made to find each row of `table` by its primary key."""
        del table
        return statement

    def database_now(self, connection: Connection) -> datetime | None:
        """The server's clock in UTC, or None where it is this machine's."""
        del connection
        return None

    def insert(
        self, connection: Connection, tables: EntryTables, rows: Sequence[Mapping[str, Any]]
    ) -> list[int]:
        """Insert entries (all with the same keys, in order) and return their ids in the same order."""
        main = tables.main
        statement = insert(main).returning(main.c.record_id, sort_by_parameter_order=True)
        return list(connection.execute(statement, list(rows)).scalars())

    def history_limits(self, connection: Connection) -> None:
        """Prepare a connection so that a lock on history is waited for only briefly."""

    def empty_history(
        self, connection: Connection, tables: EntryTables, recent_since: datetime
    ) -> int | None:
        """Empty history at once under its exclusive lock, and return the number of rows not older than `recent_since`.

        The lock is waited for at most 50 ms: an error for which `is_transient` holds says that it was not had.
        None: this database can't; delete in batches.
        """
        del connection, tables, recent_since
        return None

    @contextmanager
    def named_lock(self, connection: Connection, name: str, *, wait: bool) -> Iterator[bool]:
        """Hold a lock of the whole database on `connection`; yields whether it was had (always, with `wait`).

        Taken by migrations, and by truncation and archive of one history. SQLite's write lock serves there.
        """
        del connection, name, wait
        yield True

    def notify(self, connection: Connection, channel: str, payload: str) -> None:
        """Tell listeners in the connection's transaction, where the database can."""

    def statements(self, tables: EntryTables) -> Statements:
        """The statements on one pair of tables, as this database writes them."""
        return Statements(self, tables)


def encode(value: Any) -> str:
    """JSON text."""
    return msgspec.json.encode(value).decode()


class Statements:
    """The statements on one pair of tables."""

    def __init__(self, dialect: Dialect, tables: EntryTables) -> None:
        self.dialect = dialect
        self.tables = tables
        self.main = tables.main
        self.past = tables.history
        self.columns = [self.main.c[name] for name in ENTRY_COLUMNS]

    # -- post ---------------------------------------------------------------------------------------------------

    def insert(self, connection: Connection, rows: Sequence[Mapping[str, Any]]) -> list[int]:
        """See `Dialect.insert`."""
        return self.dialect.insert(connection, self.tables, rows)

    # -- claim --------------------------------------------------------------------------------------------------

    @cached_property
    def _due(self) -> Any:
        main = self.main
        statement = (
            select(*self.columns)
            .where(
                main.c.lane == bindparam("from_lane"),
                main.c.processing_state == AVAILABLE,
                main.c.effective_date <= bindparam("now"),
            )
            .order_by(main.c.effective_date, main.c.record_id)
            .limit(bindparam("limit"))
            .with_for_update(skip_locked=True)
        )
        if self.dialect.claim_hint:
            hint, dialect_name = self.dialect.claim_hint
            statement = statement.with_hint(main, hint % {"index": self.tables.claim_index}, dialect_name)
        return statement

    @cached_property
    def _take(self) -> Any:
        main = self.main
        return (
            update(main).where(main.c.record_id.in_(bindparam("ids", expanding=True))).values(**self._taken())
        )

    def _taken(self) -> dict[str, Any]:
        return {
            "processing_state": IN_PROCESSING,
            "processing_owner": bindparam("owner"),
            "processing_available_date": bindparam("until"),
            "claim_count": _raised(self.main.c.claim_count),
            "lane": bindparam("to_lane"),
        }

    def claim(
        self, connection: Connection, *, lane: str, owner: str, now: datetime, until: datetime, limit: int
    ) -> list[Row[Any]]:
        """Take up to `limit` due entries of `lane`, oldest first, into the owner's lane.

        The rows returned are as they were before: the claim count in the table is higher by one.
        """
        rows = list(connection.execute(self._due, {"from_lane": lane, "now": now, "limit": limit}))
        if rows:
            taken = {
                "ids": sorted(row.record_id for row in rows),
                "owner": owner,
                "until": until,
                "to_lane": owner,
            }
            connection.execute(self._take, taken)
        return rows

    @cached_property
    def _owned(self) -> Any:
        main = self.main
        return select(*self.columns).where(
            main.c.record_id.in_(bindparam("ids", expanding=True)),
            main.c.processing_owner == bindparam("owner"),
            main.c.processing_state == IN_PROCESSING,
        )

    def owned(self, connection: Connection, *, ids: Sequence[int], owner: str) -> list[Row[Any]]:
        """Those of `ids` that stand in the table as run by `owner`: what proves that their transaction committed."""
        return list(connection.execute(self._owned, {"ids": list(ids), "owner": owner}))

    @cached_property
    def _next_due(self) -> Any:
        main = self.main
        return (
            select(main.c.effective_date)
            .where(main.c.lane == bindparam("lane"), main.c.effective_date > bindparam("now"))
            .order_by(main.c.effective_date)
            .limit(1)
        )

    def next_due(self, connection: Connection, *, lane: str, now: datetime) -> datetime | None:
        """The earliest effective date in `lane` after `now`."""
        found: datetime | None = connection.execute(self._next_due, {"lane": lane, "now": now}).scalar()
        return found

    # -- outcomes -----------------------------------------------------------------------------------------------

    def _held(self, batch: FromClause) -> list[ColumnElement[bool]]:
        main = self.main
        return [
            main.c.record_id == batch.c.record_id,
            main.c.processing_owner == self._owner(batch),
            main.c.claim_count == batch.c.claim_count,
            main.c.created_date == batch.c.created_date,
        ]

    def _owner(self, batch: FromClause) -> ColumnElement[str]:
        """The owner whose claims a batch finishes."""
        del batch
        return bindparam("owner", type_=String())

    @cached_property
    def _finish_insert(self) -> Any:
        batch = self.dialect.batch(FINISH_COLUMNS)
        values = {name: self.main.c[name] for name in ENTRY_COLUMNS} | {
            name: batch.c[name] for name in _OUTCOME_COLUMNS
        }
        source = self.dialect.looked_up(select(*values.values()).select_from(batch), self.main)
        source = source.where(*self._held(batch)).with_for_update(of=self.main)
        return insert(self.past).from_select(list(values), source).execution_options(preserve_rowcount=True)

    @cached_property
    def _still_held(self) -> Any:
        batch = self.dialect.batch(FINISH_COLUMNS)
        return select(self.main.c.record_id).where(*self._held(batch))

    @cached_property
    def _delete(self) -> Any:
        return delete(self.main).where(self.main.c.record_id.in_(bindparam("ids", expanding=True)))

    def finish(self, connection: Connection, *, owner: str, outcomes: Sequence[Sequence[Any]]) -> set[int]:
        """Move entries to history with their outcomes (rows of `FINISH_COLUMNS`, by id), and return the ids moved.

        An id that is missing had been taken over: its fence no longer held, and nothing of it was changed.
        """
        batch = {"batch": self.dialect.encode_batch(tuple(FINISH_COLUMNS), outcomes), "owner": owner}
        copied = connection.execute(self._finish_insert, batch).rowcount
        ids = {outcome[0] for outcome in outcomes}
        if copied != len(ids):
            # The copied rows are locked by this transaction, so that the same fence finds the same rows.
            ids = set(connection.execute(self._still_held, batch).scalars())
        self._remove_copied(connection, sorted(ids), copied)
        return ids

    def _remove_copied(self, connection: Connection, ids: Sequence[int], copied: int) -> None:
        removed = connection.execute(self._delete, {"ids": list(ids)}).rowcount if ids else 0
        if removed != copied:
            message = (
                f"{copied} entries of {self.main.name} copied to history, {removed} removed: rolled back"
            )
            raise RuntimeError(message)

    def held(
        self, connection: Connection, *, owner: str, record_id: int, claim_count: int
    ) -> Row[Any] | None:
        """The entry, locked, if `owner` still runs this claim of it."""
        statement = select(*self.columns).where(*self._fence(owner, record_id, claim_count)).with_for_update()
        return connection.execute(statement).one_or_none()

    def _fence(self, owner: str, record_id: int, claim_count: int) -> list[ColumnElement[bool]]:
        main = self.main
        return [
            main.c.record_id == record_id,
            main.c.processing_owner == owner,
            main.c.claim_count == claim_count,
            main.c.processing_state == IN_PROCESSING,
        ]

    def change_claimed(
        self,
        connection: Connection,
        *,
        owner: str,
        record_id: int,
        claim_count: int,
        created_date: datetime,
        values: Mapping[str, Any],
    ) -> bool:
        """Write `values` into an entry that `owner` runs; False if its fence no longer holds."""
        main = self.main
        held = [*self._fence(owner, record_id, claim_count), main.c.created_date == created_date]
        return connection.execute(update(main).where(*held).values(**values)).rowcount == 1

    # -- entries of a lane ----------------------------------------------------------------------------------------

    def in_processing(self, connection: Connection, *, lane: str) -> list[tuple[int, int]]:
        """(record id, claim count) of the entries of a lane that are IN_PROCESSING."""
        main = self.main
        statement = select(main.c.record_id, main.c.claim_count).where(
            main.c.lane == lane, main.c.processing_state == IN_PROCESSING
        )
        return [(row.record_id, row.claim_count) for row in connection.execute(statement)]

    def release(
        self, connection: Connection, *, owner: str, lane: str, claims: Sequence[tuple[int, int]]
    ) -> int:
        """Put entries that `owner` holds, named by (record id, claim count), into `lane`; their fence is raised."""
        main = self.main
        released = 0
        for record_id, claim_count in sorted(claims):
            values = {
                "processing_state": AVAILABLE,
                "processing_owner": None,
                "processing_available_date": None,
                "claim_count": raised(claim_count),
                "lane": lane,
            }
            statement = update(main).where(*self._fence(owner, record_id, claim_count)).values(**values)
            released += connection.execute(statement).rowcount
        return released

    def lanes(self, connection: Connection) -> list[str]:
        """The distinct lanes, one index seek each, however many entries they hold."""
        main, found = self.main, list[str]()
        lane = connection.execute(select(func.min(main.c.lane))).scalar()
        while lane is not None:
            found.append(lane)
            following = select(main.c.lane).where(main.c.lane > lane).order_by(main.c.lane).limit(1)
            lane = connection.execute(following).scalar()
        return found

    def page(
        self,
        connection: Connection,
        *,
        lane: str,
        after: tuple[datetime, int] | None,
        limit: int,
    ) -> list[Row[Any]]:
        """Ids, names and dates of one page of a lane in claim order, locking nothing."""
        main = self.main
        names = ("record_id", "queue_name", "class_name", "created_date", "effective_date")
        statement = select(*(main.c[name] for name in names)).where(main.c.lane == lane)
        if after is not None:
            seen_date, seen_id = after
            later = (main.c.effective_date > seen_date) | (
                (main.c.effective_date == seen_date) & (main.c.record_id > seen_id)
            )
            statement = statement.where(main.c.effective_date >= seen_date, later)
        ordered = statement.order_by(main.c.effective_date, main.c.record_id).limit(limit)
        return list(connection.execute(ordered))

    def standing(
        self, connection: Connection, *, lane: str, until: datetime | None, limit: int
    ) -> list[Row[Any]]:
        """(queue_name, entries, oldest effective date) of what is AVAILABLE among a lane's first `limit` entries.

        `until` leaves out what is due later.
        """
        main = self.main
        first = select(main.c.queue_name, main.c.processing_state, main.c.effective_date).where(
            main.c.lane == lane
        )
        if until is not None:
            first = first.where(main.c.effective_date <= until)
        some = first.order_by(main.c.effective_date, main.c.record_id).limit(limit).subquery()
        statement = select(
            some.c.queue_name, func.count().label("entries"), func.min(some.c.effective_date).label("oldest")
        )
        return list(
            connection.execute(
                statement.where(some.c.processing_state == AVAILABLE).group_by(some.c.queue_name)
            )
        )

    def move_lane(self, connection: Connection, *, ids: Sequence[int], from_lane: str, to_lane: str) -> int:
        """Move entries that are AVAILABLE from one lane to another."""
        main = self.main
        # Not the bare column: SQLite would rather read the whole lane than look up the ids.
        lane = func.coalesce(main.c.lane, "")
        statement = update(main).where(
            main.c.record_id.in_(sorted(ids)), lane == from_lane, main.c.processing_state == AVAILABLE
        )
        return connection.execute(statement.values(lane=to_lane)).rowcount

    def locked_page(
        self,
        connection: Connection,
        *,
        lane: str,
        state: str,
        limit: int,
        due_by: datetime | None = None,
        due_after: datetime | None = None,
    ) -> list[Row[Any]]:
        """Lock and return up to `limit` entries of a lane in claim order, skipping what others hold."""
        main = self.main
        statement = select(*self.columns).where(main.c.lane == lane, main.c.processing_state == state)
        if due_by is not None:
            statement = statement.where(main.c.effective_date <= due_by)
        if due_after is not None:
            statement = statement.where(main.c.effective_date > due_after)
        ordered = statement.order_by(main.c.effective_date, main.c.record_id).limit(limit)
        return list(connection.execute(ordered.with_for_update(skip_locked=True)))

    def copy_anew(self, connection: Connection, *, ids: Sequence[int], lane: str, crashes: int) -> int:
        """Insert AVAILABLE copies, with new ids, of entries that this transaction has locked: the next of their chains."""
        if not ids:
            return 0
        main = self.main
        values: dict[str, Any] = {name: main.c[name] for name in ENTRY_COLUMNS if name != "record_id"} | {
            "processing_state": literal(AVAILABLE),
            "processing_owner": null(),
            "processing_available_date": null(),
            "lane": literal(lane),
            "claim_count": literal(0),
            "redispatch_count": _raised(main.c.redispatch_count),
            "crash_count": main.c.crash_count + crashes,
            "origin_id": func.coalesce(main.c.origin_id, main.c.record_id),
        }
        rows = select(*values.values()).where(main.c.record_id.in_(sorted(ids))).order_by(main.c.record_id)
        copies = insert(main).from_select(list(values), rows).execution_options(preserve_rowcount=True)
        return connection.execute(copies).rowcount

    def to_history(self, connection: Connection, *, ids: Sequence[int], values: Mapping[str, Any]) -> int:
        """Move entries that this transaction has locked to history with `values` changed; return how many."""
        if not ids:
            return 0
        overrides = {"started_date": null(), "last_error": null()} | {
            name: literal(value, self.past.c[name].type) if value is not None else null()
            for name, value in values.items()
        }
        source = {name: self.main.c[name] for name in ENTRY_COLUMNS} | overrides
        rows = select(*source.values()).where(self.main.c.record_id.in_(sorted(ids)))
        copies = insert(self.past).from_select(list(source), rows).execution_options(preserve_rowcount=True)
        copied = connection.execute(copies).rowcount
        self._remove_copied(connection, sorted(ids), copied)
        return copied

    # -- reads and changes by the user ----------------------------------------------------------------------------

    def search(
        self,
        connection: Connection,
        *,
        past: bool,
        where: Callable[[FromClause], Sequence[ColumnElement[bool]]],
        limit: int | None,
        newest_first: bool = False,
    ) -> list[Row[Any]]:
        """Entries of the main or the history table that match, in the order of their ids."""
        table = self.past if past else self.main
        names = [*ENTRY_COLUMNS, *(("finished_date", "started_date", "last_error") if past else ())]
        order = table.c.record_id.desc() if newest_first else table.c.record_id
        statement = (
            select(*(table.c[name] for name in names)).where(*where(table)).order_by(order).limit(limit)
        )
        return list(connection.execute(statement))

    def lock_available(self, connection: Connection, *, ids: Sequence[int]) -> list[int]:
        """Lock by primary key those of `ids` that nobody runs, and return them."""
        main = self.main
        statement = select(main.c.record_id).where(
            main.c.record_id.in_(sorted(ids)), main.c.processing_state == AVAILABLE
        )
        return list(connection.execute(statement.order_by(main.c.record_id).with_for_update()).scalars())

    def change_available(
        self, connection: Connection, *, record_id: int, queue_name: str | None, values: Mapping[str, Any]
    ) -> bool:
        """Write `values` into an entry (of a queue, if one is named) that nobody runs; False if there is none such."""
        main = self.main
        statement = update(main).where(main.c.record_id == record_id, main.c.processing_state == AVAILABLE)
        if queue_name is not None:
            statement = statement.where(main.c.queue_name == queue_name)
        return connection.execute(statement.values(**values)).rowcount == 1

    # -- history ------------------------------------------------------------------------------------------------

    def history_page(
        self, connection: Connection, *, before: datetime | None, states: Sequence[str] | None, limit: int
    ) -> list[tuple[int, datetime]]:
        """Keys of one page of history to be deleted, locking nothing."""
        past = self.past
        statement = select(past.c.record_id, past.c.finished_date).where(*self._past(before, states))
        rows = connection.execute(statement.order_by(past.c.record_id).limit(limit))
        return [(row.record_id, row.finished_date) for row in rows]

    def delete_history(self, connection: Connection, keys: Sequence[tuple[int, datetime]]) -> int:
        """Delete rows of history by their keys, and return how many."""
        past = self.past
        key = tuple_(past.c.record_id, past.c.finished_date)
        return connection.execute(delete(past).where(key.in_(sorted(keys)))).rowcount

    def count_history(
        self, connection: Connection, *, before: datetime | None, states: Sequence[str] | None
    ) -> int:
        """How many rows of history ended before a date, in some states."""
        statement = select(func.count()).select_from(self.past).where(*self._past(before, states))
        return int(connection.execute(statement).scalar_one())

    def _past(self, before: datetime | None, states: Sequence[str] | None) -> list[ColumnElement[bool]]:
        where: list[ColumnElement[bool]] = []
        if before is not None:
            where.append(self.past.c.finished_date < before)
        if states is not None:
            where.append(self.past.c.processing_state.in_(states))
        return where
