"""MySQL's and MariaDB's statements on keys."""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Executable,
    FromClause,
    Insert,
    Select,
    Table,
    bindparam,
    not_,
    select,
    text,
)
from sqlalchemy.util import memoized_property

from sql.mysql.statements import written
from sql.statements.base import S
from sql.statements.insert_new import InsertNew
from sql.statements.key_shapes import BATCH_COLUMNS, PERIOD
from sql.statements.keys import Keys
from sql.types import UtcDateTime


class MySQLKeys(Keys):
    """See `Keys`."""

    @property
    def _batch(self) -> str:
        fields = ", ".join(
            f"{name} {written(kind)} PATH '$.{name}'" for name, kind in BATCH_COLUMNS.items()
        )
        return f"SELECT * FROM JSON_TABLE(:batch, '$[*]' COLUMNS ({fields})) AS fields"

    def _listed(self) -> FromClause:
        return text(self._batch).columns(**BATCH_COLUMNS).subquery("batch")

    def _listed_keys(self) -> FromClause:
        kind = written(BATCH_COLUMNS["entry_key"])
        source = f"SELECT * FROM JSON_TABLE(:keys, '$[*]' COLUMNS (entry_key {kind} PATH '$')) AS t"
        return text(source).columns(entry_key=BATCH_COLUMNS["entry_key"]).subquery("listed")

    def _listed_ids(self) -> FromClause:
        source = "SELECT * FROM JSON_TABLE(:ids, '$[*]' COLUMNS (record_id BIGINT PATH '$')) AS t"
        return text(source).columns(record_id=BigInteger()).subquery("listed")

    def _looked_up(self, table: FromClause, statement: Select[Any]) -> Select[Any]:
        # A scan, which the optimisers prefer while the table is small, would lock all rows.
        return statement.with_hint(table, "FORCE INDEX (PRIMARY)")

    def _for_each(
        self,
        listed: FromClause,
        table: Table,
        condition: ColumnElement[bool],
        statement: Select[Any],
    ) -> Select[Any]:
        found = super()._for_each(listed, table, condition, self._looked_up(table, statement))
        return found.prefix_with("STRAIGHT_JOIN")

    def _changed(self, table: Table, statement: S) -> S:
        return statement.prefix_with(f"/*+ INDEX({table.name} PRIMARY) */")

    @memoized_property
    def _make(self) -> Insert:
        # The INSERT would wait for who has locked a key that is there. This read locks nothing.
        there = self.table.alias("there")
        names = ("table_name", "queue_name", "entry_key")
        same = select(there.c.entry_key).where(*(there.c[one] == self._rows[one] for one in names))
        new = self._source.where(not_(self._looked_up(there, same).exists()))
        return InsertNew(self.table).from_select(list(self._rows), new)

    @memoized_property
    def _put(self) -> Executable:
        # Not an INSERT that changes existing rows: in REPEATABLE READ it would lock the gap before
        # each key, too, in which others could take none.
        keys = ("table_name", "queue_name")
        values = {
            "taken_by": ":taken_by",
            **{name: f"batch.{name}" for name in BATCH_COLUMNS if name != "entry_key"},
            "look_date": f"CASE WHEN batch.keep = '{PERIOD}' THEN :look END",
            **dict.fromkeys(("ended_state", "ended_date", "requeue"), "NULL"),
        }
        table = self.table.fullname
        changes = ", ".join(f"{table}.{name} = {value}" for name, value in values.items())
        found = " AND ".join(f"{table}.{name} = :{name}" for name in keys)
        statement = text(
            f"UPDATE ({self._batch}) AS batch STRAIGHT_JOIN {table} FORCE INDEX (PRIMARY) "
            f"ON {found} AND {table}.entry_key = batch.entry_key SET {changes}"
        )
        return statement.bindparams(bindparam("look", type_=UtcDateTime()))
