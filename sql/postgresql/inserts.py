"""The ways in which PostgreSQL inserts entries, and the one place that chooses among them.

Each is one statement, so that it may commit by itself. ADR 0006 has the measurements
behind them. A new column needs no change here: all ways go by the names of the rows. ON CONFLICT
would belong to each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Insert, Select, bindparam, cast, func, insert, select, true
from sqlalchemy.dialects import postgresql
from sqlalchemy.dialects.postgresql import REGCLASS
from sqlalchemy.engine.interfaces import Dialect as SqlalchemyDialect
from sqlalchemy.types import TypeEngine
from sqlalchemy.util import memoized_property

from sql.drivers.hot_path import Use, cut, driver_errors, send, use_of
from sql.postgresql.notify import tell_at_commit
from sql.statements.base import full_name
from sql.statements.entries import Statements
from sql.statements.outcomes import encoded
from sql.types import UtcDateTime
from sql.watching import Hint

if TYPE_CHECKING:
    from sql.postgresql.libpq import Inserts  # needs the driver

COPY_FROM = 20
"""Entries of one post from which COPY beats a multi-row INSERT."""
MOST_BY_JSON, SMALL = 1_000, 500
"""Limits of a post that is sent as one parameter: its entries, and their average length.

The length is in characters.

Larger ones are not, nor payloads of bytes: to read JSON costs the server more for each character.
"""
INSERTS = "stickybus_inserts"
"""In the `info` of a connection that only inserts: its `libpq.Inserts`."""

_RETURNING = " RETURNING record_id"

Rows = Sequence[Mapping[str, Any]]


class PostgreSQLInserts(Statements):
    """Inserts into the main table, and the ids for it."""

    def insert(self, connection: Connection, rows: Rows) -> list[int]:
        """See `Statements.insert`. Chooses: by SQLAlchemy, one row, JSON, VALUES or COPY."""
        if not _is_psycopg(connection):
            return self._by_sqlalchemy(connection, rows)
        if len(rows) == 1:
            names, [values] = self._insert_values(connection, rows)
            text = self._insert_text(connection, names) + _RETURNING
            return self._inserted(connection, text, values)
        if (
            len(rows) <= MOST_BY_JSON
            and all(map(_suits_json, rows))
            and _size(rows) <= SMALL * len(rows)
        ):
            return self._by_json(connection, rows)
        rows = self._with_ids(connection, rows)
        if len(rows) < COPY_FROM:
            self._by_values(connection, rows)
        else:
            self._by_copy(connection, rows)
        return [row["record_id"] for row in rows]

    def insert_and_tell(self, connection: Connection, rows: Rows, hint: Hint) -> list[int]:
        """See `Statements.insert_and_tell`. One row takes one statement for both."""
        if len(rows) == 1 and _is_psycopg(connection):
            names, [values] = self._insert_values(connection, rows)
            text = self._insert_text(connection, names) + f"{_RETURNING}, {self._notify}"
            answer = send(connection, text, (*values, *hint))
            return [row[0] for row in answer.fetchall()]
        ids = self.insert(connection, rows)
        tell_at_commit(connection, hint)
        return ids

    @property
    def _notify(self) -> str:
        return f"pg_notify({self.mark}, {self.mark})"

    def _by_sqlalchemy(self, connection: Connection, rows: Rows) -> list[int]:
        """By SQLAlchemy: the user's connection is another driver's.

        It takes neither psycopg's texts nor its COPY.
        """
        return list(connection.execute(self._insert, list(rows)).scalars())

    @memoized_property
    def _insert(self) -> Insert:
        return insert(self.main).returning(self.main.c.record_id, sort_by_parameter_order=True)

    def _by_values(self, connection: Connection, rows: Rows) -> None:
        names, many = self._insert_values(connection, rows)
        send(
            connection,
            self._insert_text(connection, names, len(rows)),
            tuple(chain.from_iterable(many)),
        )

    def _by_copy(self, connection: Connection, rows: Rows) -> None:
        driver: Any = connection.connection.dbapi_connection
        names, many = self._insert_values(connection, rows)
        copying = f"COPY {full_name(connection, self.main)} ({', '.join(names)}) FROM STDIN"
        with (
            driver_errors(connection, copying),
            driver.cursor() as cursor,
            cursor.copy(copying) as copy,
        ):
            for row in many:
                copy.write_row(row)

    def _by_json(self, connection: Connection, rows: Rows) -> list[int]:
        """Sends the values that the rows share as parameters, and the rest as JSON.

        COPY waits for a client that writes row by row, and has two more round trips.
        """
        shared, own = dict[str, Any](), dict[str, Sequence[Any]]()
        for name, column in zip(
            rows[0], zip(*[row.values() for row in rows], strict=True), strict=True
        ):
            if name == "event_json" or column.count(column[0]) < len(rows):
                own[name] = column
            elif column[0] is not None:
                shared[name] = column[0]
        known = (tuple(shared), tuple(own))
        statement = self._insert_texts.get(known)
        if statement is None:
            marks = ", ".join([self.mark] * len(shared) + list(own))
            fields = record_fields({name: self.main.c[name].type for name in own})
            # Ids are given in the order of a SELECT that has one.
            statement = self._insert_texts[known] = (
                f"INSERT INTO {full_name(connection, self.main)} ({', '.join((*shared, *own))}) "
                f"SELECT {marks} FROM ROWS FROM (json_to_recordset(CAST({self.mark} AS json)) AS "
                f"({fields})) WITH ORDINALITY AS fields({', '.join((*own, 'place'))}) ORDER BY "
                f"place{_RETURNING}"
            )
        batch = [dict(zip(own, values)) for values in zip(*own.values())]  # noqa: B905 -- of one length, and many
        ids = self._inserted(connection, statement, (*shared.values(), encoded(batch)))
        return list(own["record_id"]) if "record_id" in own else sorted(ids)

    def _inserted(self, connection: Connection, statement: str, values: Sequence[Any]) -> list[int]:
        """The ids that an INSERT returns. Text and values are the same on both ways."""
        if use_of(connection) is not Use.INSERTS:
            return [record_id for [record_id] in send(connection, statement, values).fetchall()]
        inserts: Inserts = connection.info[INSERTS]
        try:
            return inserts.run(statement, values)
        except BaseException as error:
            cut(connection, statement, error)
            raise

    def _with_ids(self, connection: Connection, rows: Rows) -> Rows:
        """The rows with ids of their own.

        To reserve them changes no row, and needs no transaction.
        """
        if "record_id" in rows[0]:
            return rows
        ids = self.reserve(connection, len(rows))
        return [{"record_id": record_id, **row} for record_id, row in zip(ids, rows, strict=True)]

    def reserve(self, connection: Connection, count: int) -> list[int]:
        """See `Statements.reserve`."""
        table = full_name(connection, self.main)
        return sorted(
            connection.execute(self._reserve, {"table": table, "count": count}).scalar_one()
        )

    @memoized_property
    def _reserve(self) -> Select[Any]:
        named = cast(func.pg_get_serial_sequence(bindparam("table"), "record_id"), REGCLASS).label(
            "sequence"
        )
        # Materialized: else the name would be looked up again for each number, at five times the
        # price.
        source = select(named).cte("source").prefix_with("MATERIALIZED")
        numbers = func.generate_series(1, bindparam("count")).table_valued("number")
        return select(func.array_agg(func.nextval(source.c.sequence))).select_from(
            source.join(numbers, true())
        )


def record_fields(kinds: Mapping[str, TypeEngine[Any]]) -> str:
    """Names and types, as the definition of a record has them."""
    dialect: SqlalchemyDialect = postgresql.dialect()  # type: ignore[no-untyped-call]  # not typed there
    return ", ".join(
        f"{name} "
        f"{'timestamptz' if isinstance(kind, UtcDateTime) else kind.compile(dialect=dialect)}"
        for name, kind in kinds.items()
    )


def _is_psycopg(connection: Connection) -> bool:
    driver = connection.connection.dbapi_connection
    return type(driver).__module__.partition(".")[0] == "psycopg"


def _suits_json(row: Mapping[str, Any]) -> bool:
    # Of a NUL the driver tells; the server, which can't store it either, would quote the payload in
    # its log.
    return (
        row["event_bytes"] is None
        and row["event_json"] is not None
        and "\0" not in row["event_json"]
    )


def _size(rows: Rows) -> int:
    return sum(len(row["event_json"]) + len(row.get("headers") or "") for row in rows)
