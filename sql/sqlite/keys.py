"""SQLite's statements on keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import BigInteger, FromClause, Insert, Select, text, true
from sqlalchemy.dialects.sqlite import insert

from sql.statements.keys import BATCH_COLUMNS, Keys


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

    def _or_nothing(self, statement: Select[Any], names: Sequence[str]) -> Insert:
        # Without a WHERE, its parser takes ON for the beginning of a join.
        source = statement.where(true())
        return insert(self.table).from_select(list(names), source).on_conflict_do_nothing()

    def _or_change(self, statement: Select[Any], names: Sequence[str]) -> Insert:
        put = insert(self.table).from_select(list(names), statement.where(true()))
        keys = self.table.primary_key.columns
        values = {name: put.excluded[name] for name in names if name not in keys}
        return put.on_conflict_do_update(index_elements=list(keys), set_=values)
