"""MySQL's and MariaDB's statements on keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import FromClause, Insert, Select, text
from sqlalchemy.dialects.mysql import insert

from sql.mysql.statements import written
from sql.statements.keys import BATCH_COLUMNS, Keys


class MySQLKeys(Keys):
    """See `Keys`."""

    def _listed(self) -> FromClause:
        fields = ", ".join(
            f"{name} {written(kind)} PATH '$.{name}'" for name, kind in BATCH_COLUMNS.items()
        )
        source = text(f"SELECT * FROM JSON_TABLE(:batch, '$[*]' COLUMNS ({fields})) AS fields")
        return source.columns(**BATCH_COLUMNS).subquery("batch")

    def _or_nothing(self, statement: Select[Any], names: Sequence[str]) -> Insert:
        # Not IGNORE, which takes a shared lock on a key that is there: two posts that have it both
        # would wait for each other as soon as they change the row.
        add = insert(self.table).from_select(list(names), statement)
        return add.on_duplicate_key_update(taken_by=self.table.c.taken_by)

    def _or_change(self, statement: Select[Any], names: Sequence[str]) -> Insert:
        put = insert(self.table).from_select(list(names), statement)
        keys = self.table.primary_key.columns
        return put.on_duplicate_key_update(
            {name: put.inserted[name] for name in names if name not in keys}
        )
