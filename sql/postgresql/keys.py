"""PostgreSQL's statements on keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import FromClause, Insert, Select, text
from sqlalchemy.dialects.postgresql import insert

from sql.postgresql.inserts import record_fields
from sql.statements.keys import BATCH_COLUMNS, Keys


class PostgreSQLKeys(Keys):
    """See `Keys`."""

    def _listed(self) -> FromClause:
        fields = record_fields(BATCH_COLUMNS)
        # In the order in which they are locked, whatever the planner makes of it.
        source = text(
            f"SELECT * FROM json_to_recordset(CAST(:batch AS json)) AS fields({fields}) "
            "ORDER BY entry_key"
        )
        return source.columns(**BATCH_COLUMNS).subquery("batch")

    def _or_nothing(self, statement: Select[Any], names: Sequence[str]) -> Insert:
        return insert(self.table).from_select(list(names), statement).on_conflict_do_nothing()

    def _or_change(self, statement: Select[Any], names: Sequence[str]) -> Insert:
        put = insert(self.table).from_select(list(names), statement)
        keys = self.table.primary_key.columns
        values = {name: put.excluded[name] for name in names if name not in keys}
        return put.on_conflict_do_update(index_elements=list(keys), set_=values)
