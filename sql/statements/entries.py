"""The statements on entries: posts, searches, changes, and those of the other modules together.

A module per database overrides those that it needs, or rewards, in another shape. Callers never ask
which database it is. Statements run on the connection given and never commit; every date is bound
by the caller, in UTC.

Lock order: rows are locked in claim order by claims (which skip locked rows and so never wait), and
in primary-key order by everything else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from operator import itemgetter
from typing import Any
from weakref import WeakKeyDictionary

from sqlalchemy import ColumnElement, Connection, Dialect, FromClause, Row, select, update
from sqlalchemy.sql import visitors
from sqlalchemy.util import memoized_property

from sql.drivers.hot_path import Write, writers
from sql.search_keys import RESERVED
from sql.statements.base import AVAILABLE, WAITING, batches, full_name
from sql.statements.by_search_key import BySearchKey
from sql.statements.claims import Claim, Claims
from sql.statements.companions import Companions
from sql.statements.lanes import Lanes
from sql.statements.limit_keys import LimitKeys
from sql.statements.outcomes import Batch, Outcomes
from sql.statements.overview import Overview
from sql.statements.places import Places
from sql.statements.statistics import Statistics
from sql.statements.windows import Windows
from sql.tables import ENTRY_COLUMNS
from sql.watching import Hint

Moved = Callable[[Connection], tuple[set[int], list[Sequence[Any]]]]
"""Asked of its connection, tells the ids that a move has ended, and the rows that it claimed."""


class Statements(
    Claims,
    LimitKeys,
    Places,
    Outcomes,
    Lanes,
    Windows,
    Overview,
    Statistics,
    BySearchKey,
    Companions,
):
    """All statements on one pair of tables.

    Those of its bases, and those for a user's posts, searches and changes.
    """

    mark = "%s"
    """A parameter's place in a text for the driver."""

    def insert(self, connection: Connection, rows: Sequence[Mapping[str, Any]]) -> list[int]:
        """Insert entries, and return their ids in the same order.

        All have the same keys, in one order.
        """
        raise NotImplementedError

    def insert_and_tell(
        self, connection: Connection, rows: Sequence[Mapping[str, Any]], hint: Hint
    ) -> list[int]:
        """As `insert`; the commit tells listeners the hint, where the database can."""
        del hint
        return self.insert(connection, rows)

    def reserve(self, connection: Connection, count: int) -> list[int]:
        """Ids that no other row will have, ascending.

        Rows that bring their ids may be inserted with them.
        """
        raise NotImplementedError

    def _insert_text(self, connection: Connection, names: Sequence[str], rows: int = 1) -> str:
        """A multi-row INSERT for the driver.

        SQLAlchemy would compile its parameters anew for each number of rows.
        """
        known = (*names, rows)
        text = self._insert_texts.get(known)
        if text is None:
            table = full_name(connection, self.main)
            marks = ", ".join(["(" + ", ".join([self.mark] * len(names)) + ")"] * rows)
            text = f"INSERT INTO {table} ({', '.join(names)}) VALUES {marks}"  # noqa: S608 -- the table's own names
            if rows == 1:  # else one for each size of a batch would be kept
                self._insert_texts[known] = text
        return text

    @memoized_property
    def _insert_texts(self) -> dict[tuple[object, ...], str]:
        return {}

    def _insert_values(
        self, connection: Connection, rows: Sequence[Mapping[str, Any]]
    ) -> tuple[list[str], list[tuple[Any, ...]]]:
        """The columns that any of the rows fills, and each row's values as the driver takes them.

        A third of an entry's columns is empty most of the time, and costs as much as the others.
        """
        processors = self._processors(connection.dialect)
        if len(rows) == 1:
            given = {name: value for name, value in rows[0].items() if value is not None}
            last = written = None
            for name, process in processors.items():
                value = given.get(name)
                if value is not None:
                    if value is not last:  # most are due when they are created
                        last, written = value, process(value)
                    given[name] = written
            return list(given), [tuple(given.values())]
        names = [name for name in rows[0] if any(row[name] is not None for row in rows)]
        values: list[tuple[Any, ...]] = list(map(itemgetter(*names), rows))
        # The rows of one post have few dates between them, and all of them one creation.
        known: dict[Any, dict[Any, Any]] = {}
        processed = [
            (place, processors[name], known.setdefault(processors[name], {}))
            for place, name in enumerate(names)
            if name in processors
        ]
        if processed:
            for number, row in enumerate(values):
                encoded = list(row)
                for place, process, results in processed:
                    value = encoded[place]
                    if value is not None:
                        if value not in results:
                            results[value] = process(value)
                        encoded[place] = results[value]
                values[number] = tuple(encoded)
        return names, values

    def _processors(self, dialect: Dialect) -> Mapping[str, Write]:
        """The conversions of values that the driver takes in another form, by column."""
        found = self._known_processors.get(dialect)
        if found is None:
            found = writers({column.name: column.type for column in self.main.c}, dialect)
            self._known_processors[dialect] = found
        return found

    @memoized_property
    def _known_processors(self) -> WeakKeyDictionary[Dialect, Mapping[str, Write]]:
        return WeakKeyDictionary()

    def move(
        self,
        connection: Connection,
        *,
        owner: str,
        batch: Batch | None = None,
        claim: Claim | None = None,
    ) -> Moved:
        """Finish a batch as `finish` does, then claim as `claim` does.

        The function that is returned tells the results of both.
        """
        ids = set[int]() if batch is None else self.finish(connection, owner=owner, batch=batch)
        rows = [] if claim is None else self.claim(connection, claim)
        return lambda _: (ids, rows)

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
        names = [
            *ENTRY_COLUMNS,
            *(("finished_date", "started_date", "last_error") if past else ()),
        ]
        conditions = where(table)
        named = {part for condition in conditions for part in visitors.iterate(condition)}
        # Not the bare column if keys are sought: PostgreSQL, told to avoid sorts, would walk all
        # ids in their order.
        by_id = table.c.record_id + 0 if table.c.search_key2 in named else table.c.record_id
        order = by_id.desc() if newest_first else by_id
        statement = (
            select(*(table.c[name] for name in names))
            .where(*conditions)
            .order_by(order)
            .limit(limit)
        )
        return list(connection.execute(statement))

    def lock_available(self, connection: Connection, *, ids: Sequence[int]) -> list[int]:
        """Lock by primary key those of `ids` that nobody runs, and return them.

        For ids that this transaction has read: InnoDB keeps rows that a snapshot shows, if only as
        deleted ones. A lock that finds nothing at all would be on the gap, in REPEATABLE READ, and
        past the last row no new id could be inserted.
        """
        main, locked = self.main, list[int]()
        for batch in batches(ids):
            statement = select(main.c.record_id).where(
                main.c.record_id.in_(batch), main.c.processing_state.in_((AVAILABLE, WAITING))
            )
            ordered = self._looked_up(statement.order_by(main.c.record_id))
            locked += connection.execute(ordered.with_for_update()).scalars()
        return locked

    def start_waiting(
        self, connection: Connection, *, record_id: int, lane: str, due: datetime | None = None
    ) -> bool:
        """Let a WAITING entry be claimed from `lane`; False if it waits no longer.

        It is `due` then (default: as it was).
        """
        main = self.main
        values: dict[str, Any] = {"processing_state": AVAILABLE, "lane": lane}
        values |= {} if due is None else {"effective_date": due}
        waits = (main.c.record_id == record_id, main.c.processing_state == WAITING)
        return connection.execute(update(main).where(*waits).values(**values)).rowcount == 1

    def locked_headers(self, connection: Connection, *, record_id: int) -> str | None:
        """The headers of an entry that this transaction has locked.

        They are the newest ones, not those of the transaction's snapshot.
        """
        main = self.main
        statement = select(main.c.headers).where(main.c.record_id == record_id).with_for_update()
        found: str | None = connection.execute(statement).scalar_one()
        return found

    def locked_marked(self, connection: Connection, *, ids: Sequence[int]) -> list[Row[Any]]:
        """Those of `ids`, which this transaction has locked, that carry a mark of the library.

        They are the newest rows, not those of the transaction's snapshot.
        """
        main, found = self.main, list[Row[Any]]()
        for batch in batches(ids):
            statement = self._looked_up(select(*self.columns)).where(
                main.c.record_id.in_(batch), main.c.headers.like(f'%"{RESERVED}%')
            )
            found += connection.execute(statement.order_by(main.c.record_id).with_for_update())
        return found

    def locked_progress(self, connection: Connection, *, ids: Sequence[int]) -> list[Row[Any]]:
        """Columns: record_id, subscribers_done. Those of `ids` of which a subscriber retries.

        This transaction has locked them. They are the newest rows, not those of its snapshot.
        """
        main, found = self.main, list[Row[Any]]()
        for batch in batches(ids):
            statement = self._looked_up(select(main.c.record_id, main.c.subscribers_done)).where(
                main.c.record_id.in_(batch), main.c.subscribers_done.like('%"due"%')
            )
            found += connection.execute(statement.order_by(main.c.record_id).with_for_update())
        return found

    def change(self, connection: Connection, *, record_id: int, values: Mapping[str, Any]) -> None:
        """Write `values` into an entry that this transaction has locked."""
        main = self.main
        connection.execute(update(main).where(main.c.record_id == record_id).values(**values))
