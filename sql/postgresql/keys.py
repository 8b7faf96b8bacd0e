"""PostgreSQL's statements on keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import (
    BigInteger,
    FromClause,
    Insert,
    Select,
    Table,
    Text,
    any_,
    bindparam,
    select,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, insert
from sqlalchemy.util import memoized_property

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

    @memoized_property
    def _find(self) -> Select[Any]:
        # Not a join, nor ordered by the bare column: told to avoid sorts, the planner would walk
        # all keys of the queue.
        table, keys = self.table, bindparam("keys", type_=ARRAY(Text()))
        return (
            select(table)
            .where(
                table.c.table_name == bindparam("table_name"),
                table.c.queue_name == bindparam("queue_name"),
                table.c.entry_key == any_(keys),
            )
            .order_by(table.c.entry_key.concat(""))
        )

    def _listed_values(self, values: Sequence[str | int]) -> Any:
        return list(values)

    def _by_ids(self, table: Table, statement: Select[Any]) -> Select[Any]:
        ids = bindparam("ids", type_=ARRAY(BigInteger()))
        return statement.where(table.c.record_id == any_(ids))

    def _or_nothing(self, statement: Select[Any], names: Sequence[str]) -> Insert:
        return insert(self.table).from_select(list(names), statement).on_conflict_do_nothing()

    def _or_change(self, statement: Select[Any], names: Sequence[str]) -> Insert:
        put = insert(self.table).from_select(list(names), statement)
        keys = self.table.primary_key.columns
        values = {name: put.excluded[name] for name in names if name not in keys}
        return put.on_conflict_do_update(index_elements=list(keys), set_=values)
