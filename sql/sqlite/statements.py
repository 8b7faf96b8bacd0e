"""SQLite's statements on entries: batches are read by `json_each`, ids are counted on, and a move is one statement.

Each statement, and each row of an answer, lets go of Python's lock and has to get it back, which
takes up to 5 ms while handlers compute. A transaction that writes outcomes and claims waits for it
a hundred times, with the write lock in hand. A move does the same as an INSERT into a view, by the
view's trigger, and is over when that returns; what it has ended and claimed is read while others
write.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from time import sleep
from typing import Any

from sqlalchemy import (
    BigInteger,
    BindParameter,
    ColumnElement,
    Connection,
    Dialect,
    FromClause,
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
    select,
    table,
    text,
    true,
)
from sqlalchemy.dialects import sqlite
from sqlalchemy.dialects.sqlite.base import SQLiteCompiler
from sqlalchemy.util import memoized_property

from sql.drivers.hot_path import send
from sql.sqlite.capabilities import SQLITE
from sql.sqlite.raw import commits_each
from sql.statements import Moved, Statements
from sql.statements.claims import CLAIM_PARAMETERS, Claim, in_claim_order
from sql.statements.outcomes import FINISH_COLUMNS, OUTCOME_COLUMNS, Batch, encoded
from sql.tables import ENTRY_COLUMNS
from sql.types import TEXT_LENGTH, UtcDateTime

MOVES = "stickybus_moves"
"""In a connection's `info`: the tables whose moves it knows."""
_NO_CLAIM, _NO_BATCH = dict.fromkeys(CLAIM_PARAMETERS) | {"limit": 0}, Batch("[]", [])


class _InsideTrigger(SQLiteCompiler):
    """Writes the parameters of a statement as the columns of the row that a trigger is run for."""

    def visit_bindparam(
        self, bindparam: BindParameter[Any], *arguments: Any, **options: Any
    ) -> str:
        if bindparam.required:
            return f'NEW."{bindparam.key}"'
        return str(super().visit_bindparam(bindparam, *arguments, **options))  # type: ignore[no-untyped-call]


class SQLiteStatements(Statements):
    """See the module. What a move needs is temporary: each connection has its own."""

    mark = "?"
    capabilities = SQLITE

    def _batch(self) -> FromClause:
        fields = ", ".join(
            f"json_extract(value, '$[{place}]') AS {name}"
            for place, name in enumerate(FINISH_COLUMNS)
        )
        # SQLAlchemy reads ':batch' as the parameter; the names are this module's own.
        source = text(f"SELECT {fields} FROM json_each(:batch)")
        return source.columns(**FINISH_COLUMNS).subquery("batch")

    def _taken(self) -> dict[str, Any]:
        # The fence compares this date, and a row by hand may lack the fraction.
        whole = f"substr({self.main.c.created_date.name} || '.000000', 1, {TEXT_LENGTH})"
        return super()._taken() | {"created_date": literal_column(whole, UtcDateTime())}

    def _remove(self, connection: Connection, ids: Sequence[int]) -> int:
        # A list of parameters would be compiled anew each time.
        name = connection.dialect.identifier_preparer.quote(self.main.name)
        listed = "SELECT value FROM json_each(?)"
        statement = f"DELETE FROM {name} WHERE record_id IN ({listed})"
        return int(send(connection, statement, (encoded(list(ids)),)).rowcount)

    def insert(self, connection: Connection, rows: Sequence[Mapping[str, Any]]) -> list[int]:
        """The first INSERT takes the write lock, so that the ids after its own are ours to hand out."""
        driver: Any = connection.connection.driver_connection
        if len(rows) > 1 and commits_each(driver) and not driver.in_transaction:
            # An application's own: all of them, or none; and no id between them is another's.
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            try:
                ids = self._insert(connection, rows)
            except BaseException:
                connection.exec_driver_sql("ROLLBACK")
                raise
            connection.exec_driver_sql("COMMIT")
            return ids
        return self._insert(connection, rows)

    def _insert(self, connection: Connection, rows: Sequence[Mapping[str, Any]]) -> list[int]:
        names, values = self._insert_values(connection, rows)
        statement = self._insert_text(connection, names)
        first = int(send(connection, statement, values[0]).lastrowid)
        if len(rows) == 1:
            return [first]
        rest = [(first + place, *row) for place, row in enumerate(values[1:], start=1)]
        connection.exec_driver_sql(self._insert_text(connection, ["record_id", *names]), rest)
        return list(range(first, first + len(rows)))

    # -- moves -------------------------------------------------------------------------------------

    def move(
        self,
        connection: Connection,
        *,
        owner: str,
        batch: Batch | None = None,
        claim: Claim | None = None,
    ) -> Moved:
        driver: Any = connection.connection.driver_connection
        if driver.in_transaction:  # if it is rolled back, so is what a move would create
            return super().move(connection, owner=owner, batch=batch, claim=claim)
        known: set[str] = connection.info.setdefault(MOVES, set())
        if self.main.name not in known:
            for statement in self._creation(connection.dialect):
                send(connection, statement, ())
            known.add(self.main.name)
        given = _NO_CLAIM if claim is None else claim.parameters()
        ended = _NO_BATCH if batch is None else batch
        self._change(connection, self._move, {**given, "owner": owner, "batch": ended.text})

        def moved(connection: Connection) -> tuple[set[int], list[Sequence[Any]]]:
            sleep(0)  # whoever is to write next needs Python's lock for it
            ids = {row[0] for row in self._rows(connection, self._ended_ids, {})}
            rows = (
                self._rows(connection, self._claimed_rows, {"owner": owner})
                if claim is not None
                else []
            )
            return ids, in_claim_order(rows)

        return moved

    @memoized_property
    def _view(self) -> TableClause:
        """Its columns are the parameters of a move."""
        given = {"batch": Text(), **CLAIM_PARAMETERS}
        return table(f"{self.main.name}_move", *(column(*one) for one in given.items()))

    @memoized_property
    def _ended(self) -> TableClause:
        """What the last move has ended."""
        return table(f"{self.main.name}_ended", *(column(*one) for one in FINISH_COLUMNS.items()))

    @memoized_property
    def _claims(self) -> TableClause:
        """What the last move has claimed."""
        return table(f"{self.main.name}_claims", column("record_id", BigInteger()))

    @memoized_property
    def _gone(self) -> TableClause:
        """A view: who inserts an id deletes the entry."""
        return table(f"{self.main.name}_gone", column("record_id", BigInteger()))

    @memoized_property
    def _move(self) -> Any:
        return insert(self._view)

    @memoized_property
    def _ended_ids(self) -> Any:
        return select(self._ended.c.record_id)

    @memoized_property
    def _claimed_rows(self) -> Any:
        # Not what was taken over since.
        mine = self.main.c.processing_owner == bindparam("owner")
        return self._found(self._claims, self.columns, mine)

    def _found(
        self,
        ids: FromClause,
        columns: Iterable[ColumnElement[Any]],
        *conditions: ColumnElement[bool],
    ) -> Select[Any]:
        """The columns of entries with these ids that meet the conditions, each looked up by its id.

        Statistics of a time when there were few entries say that to read all of them costs less. An
        outer join keeps its order, unless SQLite sees that the conditions leave out what was not
        found: it sees through no function.
        """
        found = ids.outerjoin(self.main, self._has_id(ids.c.record_id))
        return (
            select(*columns)
            .select_from(found)
            .where(func.coalesce(and_(true(), *conditions), false()))
        )

    def _creation(self, dialect: Dialect) -> Iterator[str]:
        """The statements that create what a move needs."""

        def sql(statement: Any) -> str:
            return str(_InsideTrigger(dialect, statement, compile_kwargs={"literal_binds": True}))

        main, ended, claims, batch = self.main, self._ended, self._claims, self._batch()
        history = {name: main.c[name] for name in ENTRY_COLUMNS} | {
            name: ended.c[name] for name in OUTCOME_COLUMNS
        }
        held = self._found(batch, batch.c, *self._held(batch))
        source = self._found(ended, history.values(), main.c.record_id.is_not(None))
        # What stands there already is changed.
        some = {"record_id": claims.c.record_id} | dict.fromkeys(
            ("class_name", "created_date", "effective_date"), literal_column("''")
        )
        taken = sqlite.insert(main).from_select(
            list(some), select(*some.values()).where(literal_column("1")), include_defaults=False
        )
        body = (
            delete(ended),
            insert(ended).from_select(list(FINISH_COLUMNS), held),
            insert(self.past).from_select(list(history), source),
            insert(self._gone).from_select(["record_id"], select(ended.c.record_id)),
            delete(claims),
            insert(claims).from_select(["record_id"], self._due(main.c.record_id)),
            taken.on_conflict_do_update(index_elements=[main.c.record_id], set_=self._taken()),
        )
        quoted = dialect.identifier_preparer.quote
        for made in (ended, claims):
            names = ", ".join(made.c.keys()).replace("record_id", "record_id INTEGER PRIMARY KEY")
            yield f"CREATE TEMP TABLE {quoted(made.name)} ({names})"
        one = delete(main).where(main.c.record_id == bindparam("record_id", required=True))
        for view, statements in ((self._gone, (one,)), (self._view, body)):
            columns = ", ".join(f'NULL AS "{parameter.name}"' for parameter in view.c)
            yield f"CREATE TEMP VIEW {quoted(view.name)} AS SELECT {columns}"
            texts = "; ".join(map(sql, statements))
            yield (
                f"CREATE TEMP TRIGGER {quoted(view.name + 'd')} INSTEAD OF INSERT ON {quoted(view.name)} "
                f"BEGIN {texts}; END"
            )
