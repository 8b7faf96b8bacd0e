"""SQLite's statements on entries: ids are counted on, and batches are read by `json_each`.

Its moves of entries are in `moves`.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    FromClause,
    literal_column,
    text,
)

from sql.drivers.hot_path import send
from sql.sqlite.moves import SQLiteMoves
from sql.sqlite.raw import commits_each
from sql.statements.base import full_name
from sql.statements.outcomes import FINISH_COLUMNS, encoded
from sql.statements.statistics import Ranks, Span, Times
from sql.types import TEXT_LENGTH, UtcDateTime

FETCHED = 10_000
"""Values fetched at once, so that memory holds each as a number only."""


class SQLiteStatements(SQLiteMoves):
    """All statements on a pair of tables."""

    def processing_times(
        self, connection: Connection, span: Span, ranks: Ranks
    ) -> dict[str, Times]:
        """See `Statistics`; the values are sorted here.

        SQLite runs in this process, so it costs less to fetch a value than to have it grouped.
        """
        values: dict[str, array[int]] = {}
        with closing(connection.execute(self._timed(span))) as result:
            while rows := result.cursor.fetchmany(FETCHED):
                for queue_name, micros in rows:
                    if micros is not None:  # of a date that is none
                        values.setdefault(queue_name, array("q")).append(micros)
        found: dict[str, Times] = {}
        for queue_name, unsorted in values.items():
            ordered = sorted(unsorted)
            wanted = {rank: ordered[rank] for rank in ranks(len(ordered))}
            found[queue_name] = Times(len(ordered), sum(ordered), ordered[0], ordered[-1], wanted)
        return found

    def _batch(self) -> FromClause:
        fields = ", ".join(
            f"json_extract(value, '$[{place}]') AS {name}"
            for place, name in enumerate(FINISH_COLUMNS)
        )
        # SQLAlchemy reads ':batch' as the parameter; the names are this module's own.
        source = text(f"SELECT {fields} FROM json_each(:batch)")
        return source.columns(**FINISH_COLUMNS).subquery("batch")

    def _among(self) -> ColumnElement[bool]:
        # A list of parameters would be compiled anew each time.
        return self.main.c.record_id.in_(text("SELECT value FROM json_each(:ids)"))

    def _bound_ids(self, ids: list[int]) -> str:
        return encoded(ids)

    def _taken(self) -> dict[str, Any]:
        # The fence compares this date, and a row by hand may lack the fraction.
        whole = f"substr({self.main.c.created_date.name} || '.000000', 1, {TEXT_LENGTH})"
        return super()._taken() | {"created_date": literal_column(whole, UtcDateTime())}

    def _remove(self, connection: Connection, ids: Sequence[int]) -> int:
        # A list of parameters would be compiled anew each time.
        name = full_name(connection, self.main)
        listed = "SELECT value FROM json_each(?)"
        statement = f"DELETE FROM {name} WHERE record_id IN ({listed})"
        return int(send(connection, statement, (encoded(list(ids)),)).rowcount)

    def insert(self, connection: Connection, rows: Sequence[Mapping[str, Any]]) -> list[int]:
        """See `Statements.insert`. The first INSERT takes the write lock.

        So the ids after its own are free, and the other rows bring them.
        """
        if len(rows) > 1 and _commits_each_row(connection):
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


def _commits_each_row(connection: Connection) -> bool:
    driver: Any = connection.connection.driver_connection
    return commits_each(driver) and not driver.in_transaction
