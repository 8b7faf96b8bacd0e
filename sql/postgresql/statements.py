"""PostgreSQL's statements on entries, where they differ: one statement finishes.

The claim, also one statement, is that of `sql.statements.claims`.

`inserts` holds the ways in which it inserts.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    FromClause,
    Insert,
    UpdateBase,
    any_,
    bindparam,
    delete,
    insert,
    select,
    text,
)
from sqlalchemy.dialects import postgresql
from sqlalchemy.util import memoized_property

from sql.postgresql.capabilities import POSTGRESQL
from sql.postgresql.inserts import PostgreSQLInserts, record_fields
from sql.postgresql.places import PostgreSQLPlaces
from sql.statements.base import full_name
from sql.statements.outcomes import FINISH_COLUMNS, OUTCOME_COLUMNS, Batch, FinishRow, encoded
from sql.tables import ENTRY_COLUMNS

_GUESSED = text("""
SELECT coalesce(sum(greatest(c.reltuples, 0)), 0)::bigint FROM pg_class AS c
WHERE c.relkind = 'r' AND (
    c.oid = CAST(:name AS regclass)
    OR c.oid IN (SELECT inhrelid FROM pg_inherits WHERE inhparent = CAST(:name AS regclass))
)
""")
"""The rows of a table, or of all its partitions."""


class PostgreSQLStatements(PostgreSQLInserts, PostgreSQLPlaces):
    """All statements on a pair of tables."""

    capabilities = POSTGRESQL

    def _has_id(self, record_id: ColumnElement[int]) -> ColumnElement[bool]:
        # Not as an equality, by which both sides could be merged: where statistics say that the
        # table is empty, the planner would rather walk the whole primary key, dead entries
        # included, than look each row up.
        return self.main.c.record_id == any_(postgresql.array([record_id]))

    def _among(self) -> ColumnElement[bool]:
        return self.main.c.record_id == any_(bindparam("ids", type_=postgresql.ARRAY(BigInteger())))

    def _batch(self) -> FromClause:
        source = text(
            "SELECT * FROM json_to_recordset(CAST(:batch AS json)) AS "
            f"fields({record_fields(FINISH_COLUMNS)})"
        )
        return source.columns(**FINISH_COLUMNS).subquery("batch")

    def _encode(self, endings: Sequence[FinishRow]) -> str:
        return encoded(endings)

    @memoized_property
    def _finish(self) -> Insert:
        past, batch = self.past, self._batch()
        outcome = {name: batch.c[name].label(f"outcome_{name}") for name in OUTCOME_COLUMNS}
        finished = delete(self.main).where(*self._held(batch))
        gone = finished.returning(*self.columns, *outcome.values()).cte("gone")
        values = {name: gone.c[name] for name in ENTRY_COLUMNS} | {
            name: gone.c[label.name] for name, label in outcome.items()
        }
        moved = insert(past).from_select(list(values), select(*values.values()))
        return moved.returning(past.c.record_id)

    @memoized_property
    def _finish_unkept(self) -> UpdateBase:
        held = self._held(self._batch())
        return delete(self.main).where(*held).returning(self.main.c.record_id)

    def finish(self, connection: Connection, *, owner: str, batch: Batch) -> set[int]:
        statement = self._finish if batch.kept else self._finish_unkept
        rows = self._rows(connection, statement, {"batch": batch.text, "owner": owner})
        return {row[0] for row in rows}

    def empty_history(self, connection: Connection, recent_since: datetime) -> int | None:
        connection.execute(text("SET LOCAL lock_timeout = '50ms'"))
        connection.execute(text("SET LOCAL enable_seqscan = on"))
        name = full_name(connection, self.past)
        connection.execute(text(f"LOCK TABLE {name} IN ACCESS EXCLUSIVE MODE"))
        return self._empty_locked(connection, name, recent_since)

    def guessed_history(self, connection: Connection) -> int:
        name = {"name": full_name(connection, self.past)}
        return int(connection.execute(_GUESSED, name).scalar_one())
