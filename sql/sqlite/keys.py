"""SQLite's statements on keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    FromClause,
    Insert,
    Select,
    Table,
    false,
    func,
    text,
)
from sqlalchemy.dialects.sqlite import insert

from sql.statements.key_shapes import BATCH_COLUMNS
from sql.statements.keys import Keys, changing


class SQLiteKeys(Keys):
    """See `Keys`."""

    def _listed(self) -> FromClause:
        fields = ", ".join(f"json_extract(value, '$.{name}') AS {name}" for name in BATCH_COLUMNS)
        source = text(f"SELECT {fields} FROM json_each(:batch)")
        return source.columns(**BATCH_COLUMNS).subquery("batch")

    def _listed_keys(self) -> FromClause:
        source = text("SELECT value AS entry_key FROM json_each(:keys)")
        return source.columns(entry_key=BATCH_COLUMNS["entry_key"]).subquery("listed")

    def _listed_ids(self) -> FromClause:
        source = text("SELECT value AS record_id FROM json_each(:ids)")
        return source.columns(record_id=BigInteger()).subquery("listed")

    def _for_each(
        self,
        listed: FromClause,
        table: Table,
        condition: ColumnElement[bool],
        statement: Select[Any],
    ) -> Select[Any]:
        # See `SQLiteMoves._found`: SQLite 3.53 would read all keys of a queue.
        joined = listed.outerjoin(table, condition)
        return statement.select_from(joined).where(func.coalesce(condition, false()))

    def _or_change(self, statement: Select[Any], names: Sequence[str]) -> Insert:
        return changing(insert(self.table).from_select(list(names), statement), names)
