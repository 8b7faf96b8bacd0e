"""A move on SQLite: one INSERT into a temporary view, whose trigger finishes and claims.

The reason is Python's lock. Each statement, and each row of an answer, lets go of it and has to get
it back, which takes up to 5 ms while handlers compute. A transaction that writes outcomes and
claims waits for it a hundred times, with the file's write lock in hand. A move as one statement is
over when that returns. ADR 0010 has the measurements.

SQLite has no procedures, and one of its statements changes one table. But a trigger holds many
statements, and a view with a trigger takes INSERTs. So a connection creates two views and two
tables before its first move on a main table, all of them temporary: no other connection sees them,
and they end with it. For `bus_events` they are

- `bus_events_move`, a view whose columns are the parameters of a move. An INSERT into it runs the
  trigger of `_finish_steps` if there is a batch, and that of `_claim_steps` if there is a claim.
  They read the parameters as `NEW."owner"`, `NEW."batch"` and so on. The order of the two triggers
  makes no difference: an entry that ends is not due.
- `bus_events_gone`, a view. An INSERT of an id into it runs a trigger that deletes the entry.
- `bus_events_ended`, a table: the outcomes that the last move has written.
- `bus_events_claims`, a table: the ids that the last move has claimed.

The INSERT commits by itself. The two tables are read after it, while others write.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from time import sleep
from typing import Any

from sqlalchemy import (
    BigInteger,
    BindParameter,
    Boolean,
    ColumnElement,
    Connection,
    Dialect,
    FromClause,
    Insert,
    Select,
    TableClause,
    Text,
    and_,
    bindparam,
    column,
    delete,
    false,
    func,
    insert,
    literal_column,
    or_,
    select,
    table,
    true,
)
from sqlalchemy.dialects import sqlite
from sqlalchemy.dialects.sqlite.base import SQLiteCompiler
from sqlalchemy.types import TypeEngine
from sqlalchemy.util import memoized_property

from sql.drivers.hot_path import send
from sql.sqlite.capabilities import SQLITE
from sql.statements.claims import (
    CLAIM_PARAMETERS,
    RESERVE_PARAMETERS,
    Claim,
    in_claim_order,
)
from sql.statements.entries import Moved, Statements
from sql.statements.outcomes import FINISH_COLUMNS, OUTCOME_COLUMNS, Batch
from sql.tables import ENTRY_COLUMNS

MOVES = "stickybus_moves"
"""In a connection's `info`: the main tables for whose moves it has views and triggers."""
_NO_CLAIM = dict.fromkeys([*CLAIM_PARAMETERS, *RESERVE_PARAMETERS])


class _InsideTrigger(SQLiteCompiler):
    """Writes a statement's parameters as columns of the row whose INSERT runs the trigger."""

    def visit_bindparam(
        self, bindparam: BindParameter[Any], *arguments: Any, **options: Any
    ) -> str:
        if bindparam.required:
            return f'NEW."{bindparam.key}"'
        written = super().visit_bindparam(bindparam, *arguments, **options)  # type: ignore[no-untyped-call]  # not typed there
        return str(written)


class SQLiteMoves(Statements):
    """Moves on a pair of tables."""

    mark = "?"
    capabilities = SQLITE

    def move(
        self,
        connection: Connection,
        *,
        owner: str,
        batch: Batch | None = None,
        claim: Claim | None = None,
    ) -> Moved:
        """See `Statements.move`. Inside a transaction, it is as on all databases."""
        driver: Any = connection.connection.driver_connection
        if driver.in_transaction:  # its rollback would remove the views and tables of a move
            return super().move(connection, owner=owner, batch=batch, claim=claim)
        known: set[str] = connection.info.setdefault(MOVES, set())
        if self.main.name not in known:
            for statement in self._creation(connection.dialect):
                send(connection, statement, ())
            known.add(self.main.name)
        given = {} if claim is None else claim.parameters()
        text, kept = (None, None) if batch is None else (batch.text, batch.kept)
        given = {**_NO_CLAIM, **given, "owner": owner, "batch": text, "kept": kept}
        self._change(connection, self._move, given)

        def moved(connection: Connection) -> tuple[set[int], list[Sequence[Any]]]:
            sleep(0)  # the next writer needs Python's lock for it
            ids, rows = set[int](), list[Sequence[Any]]()
            if batch is not None:
                ids = {row[0] for row in self._rows(connection, self._ended_ids, {})}
            if claim is not None:
                rows = self._rows(connection, self._claimed_rows, {"owner": owner})
            return ids, in_claim_order(rows)

        return moved

    # -- statements of a move ---------------------------------------------------------------------

    @memoized_property
    def _move(self) -> Insert:
        return insert(self._move_view)

    @memoized_property
    def _ended_ids(self) -> Select[Any]:
        return select(self._ended.c.record_id)

    @memoized_property
    def _claimed_rows(self) -> Select[Any]:
        # Not those that were taken over since.
        mine = self.main.c.processing_owner == bindparam("owner")
        return self._found(self._claimed, self.columns, mine)

    def _found(
        self,
        ids: FromClause,
        columns: Iterable[ColumnElement[Any]],
        *conditions: ColumnElement[bool],
    ) -> Select[Any]:
        """The columns of entries with these ids that meet the conditions, each looked up by its id.

        Statistics of a time when there were few entries say that to read all of them costs less. An
        outer join keeps its order, unless SQLite sees that the conditions leave out ids without
        an entry: it sees through no function.
        """
        found = ids.outerjoin(self.main, self._has_id(ids.c.record_id))
        return (
            select(*columns)
            .select_from(found)
            .where(func.coalesce(and_(true(), *conditions), false()))
        )

    # -- creation, on each connection -------------------------------------------------------------

    @memoized_property
    def _move_view(self) -> TableClause:
        given: dict[str, TypeEngine[Any]] = {
            "batch": Text(),
            "kept": Boolean(),
            **CLAIM_PARAMETERS,
            **RESERVE_PARAMETERS,
        }
        return table(f"{self.main.name}_move", *(column(*one) for one in given.items()))

    @memoized_property
    def _gone_view(self) -> TableClause:
        return table(f"{self.main.name}_gone", column("record_id", BigInteger()))

    @memoized_property
    def _ended(self) -> TableClause:
        return table(f"{self.main.name}_ended", *(column(*one) for one in FINISH_COLUMNS.items()))

    @memoized_property
    def _claimed(self) -> TableClause:
        return table(f"{self.main.name}_claims", column("record_id", BigInteger()))

    def _creation(self, dialect: Dialect) -> Iterator[str]:
        """The statements that create the tables, the views and their triggers."""

        def sql(statement: Any) -> str:
            return str(_InsideTrigger(dialect, statement, compile_kwargs={"literal_binds": True}))

        quoted = dialect.identifier_preparer.quote
        for made in (self._ended, self._claimed):
            names = ", ".join(made.c.keys()).replace("record_id", "record_id INTEGER PRIMARY KEY")
            yield f"CREATE TEMP TABLE {quoted(made.name)} ({names})"
        for view in (self._gone_view, self._move_view):
            columns = ", ".join(f'NULL AS "{parameter.name}"' for parameter in view.c)
            yield f"CREATE TEMP VIEW {quoted(view.name)} AS SELECT {columns}"
        deletion = delete(self.main).where(self._has_id(bindparam("record_id", required=True)))
        for view, given, steps in (
            (self._gone_view, "record_id", [deletion]),
            (self._move_view, "batch", self._finish_steps()),
            (self._move_view, "limit", self._claim_steps()),
        ):
            yield (
                f"CREATE TEMP TRIGGER {quoted(f'{view.name}_{given}')} "
                f"INSTEAD OF INSERT ON {quoted(view.name)} "
                f'WHEN NEW."{given}" IS NOT NULL BEGIN {"; ".join(map(sql, steps))}; END'
            )

    def _finish_steps(self) -> list[Any]:
        """The statements that do the work of `finish`, in order."""
        main, ended, batch = self.main, self._ended, self._batch()
        held = self._found(batch, batch.c, *self._claim_holds(batch))
        history = {name: main.c[name] for name in ENTRY_COLUMNS} | {
            name: ended.c[name] for name in OUTCOME_COLUMNS
        }
        rows_of_ended = self._found(ended, history.values(), main.c.record_id.is_not(None)).where(
            bindparam("kept", required=True, type_=Boolean())
        )
        return [
            # Outcomes whose fence still holds are kept,
            delete(ended),
            insert(ended).from_select(list(FINISH_COLUMNS), held),
            # their entries copied to history, if it keeps them,
            insert(self.past).from_select(list(history), rows_of_ended),
            # and deleted, one by one.
            insert(self._gone_view).from_select(["record_id"], select(ended.c.record_id)),
        ]

    def _claim_steps(self) -> list[Any]:
        """The statements that do the work of `claim`, in order."""
        main, claimed = self.main, self._claimed
        unreserved = bindparam("reserve_id", required=True, type_=BigInteger()).is_(None)
        allowed = or_(unreserved, self._reserve_stands())
        return [
            # The first due entries of the lane are listed,
            delete(claimed),
            insert(claimed).from_select(["record_id"], self._due(main.c.record_id).where(allowed)),
            # and taken.
            self._take_claimed(),
        ]

    def _take_claimed(self) -> Insert:
        """Marks the claimed entries as taken, by an INSERT of ids that are there already.

        An UPDATE may not look each of them up by its id: that depends on statistics.
        """
        claimed = self._claimed
        # The rows are there, so that none is inserted, and these values are never written.
        given = {"record_id": claimed.c.record_id} | dict.fromkeys(
            ("class_name", "created_date", "effective_date"), literal_column("''")
        )
        # SQLite's grammar wants a WHERE before ON CONFLICT.
        source = select(*given.values()).where(literal_column("1"))
        taken = sqlite.insert(self.main).from_select(list(given), source, include_defaults=False)
        return taken.on_conflict_do_update(
            index_elements=[self.main.c.record_id], set_=self._taken()
        )
