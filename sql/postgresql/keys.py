"""PostgreSQL's statements on keys."""

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
    Text,
    any_,
    bindparam,
    func,
    literal_column,
    select,
    text,
    true,
)
from sqlalchemy.dialects.postgresql import ARRAY, insert
from sqlalchemy.util import memoized_property

from sql.postgresql.inserts import record_fields
from sql.statements.key_rows import Locking
from sql.statements.key_shapes import BATCH_COLUMNS
from sql.statements.keys import Keys, changing


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

    def _finding(self, locking: Locking) -> Select[Any]:
        found = locking.of(self._one(self.table), self.table).lateral("found")
        return select(found).select_from(self._key_list.join(found, true()))

    @memoized_property
    def _key_list(self) -> FromClause:
        keys = bindparam("keys", type_=ARRAY(Text()))
        return func.unnest(keys).table_valued("entry_key").render_derived(name="listed")

    def _one(self, *columns: Any) -> Select[Any]:
        """The row of one key that is listed.

        One at a time: while the planner takes the table for a small one, it would walk all keys of
        the queue for several.
        """
        chosen = select(*columns).select_from(self.table)
        return chosen.where(*self._is(self._key_list.c.entry_key)).limit(1)

    def _are(
        self, table_name: str, queue_name: str, keys: Sequence[str]
    ) -> list[ColumnElement[bool]]:
        place: ColumnElement[Any] = literal_column(f"{self.table.fullname}.ctid")
        found = self._one(place.label("place")).lateral("found")
        places = select(found.c.place).select_from(self._key_list.join(found, true()))
        given = {"table_name": table_name, "queue_name": queue_name, "keys": list(keys)}
        return [place == any_(func.array(places.params(**given).scalar_subquery()))]

    def _listed_values(self, values: Sequence[str | int]) -> Any:
        return list(values)

    def _by_ids(self, table: Table, statement: Select[Any]) -> Select[Any]:
        ids = bindparam("ids", type_=ARRAY(BigInteger()))
        return statement.where(table.c.record_id == any_(ids))

    def _or_change(self, statement: Select[Any], names: Sequence[str]) -> Insert:
        return changing(insert(self.table).from_select(list(names), statement), names)
