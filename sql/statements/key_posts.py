"""The statements by which posts take keys."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import (
    ColumnElement,
    Connection,
    Executable,
    Insert,
    Row,
    Select,
    String,
    bindparam,
    case,
    literal,
    null,
    select,
    true,
)
from sqlalchemy.util import memoized_property

from sql.statements.insert_new import InsertNew
from sql.statements.key_rows import KeyRows
from sql.statements.key_shapes import PERIOD, KeyRow, key_batches
from sql.types import UtcDateTime


class KeyPosts(KeyRows):
    """Takes keys, and gives them to entries."""

    def add(
        self,
        connection: Connection,
        table_name: str,
        queue_name: str,
        *,
        rows: Sequence[KeyRow],
        taken_by: str,
        look: datetime | None = None,
    ) -> list[Row[Any]] | None:
        """Take keys that nobody has: they are `taken_by` this post then. Lock all of them.

        They must be in order. It waits for other transactions that have just taken one. Those that
        are kept for a time are looked after from the date `look` on.

        Returns:
            The rows of all keys; None if all of them were free.
        """
        given: dict[str, Any] = {
            "table_name": table_name,
            "queue_name": queue_name,
            "taken_by": taken_by,
        }
        added = 0
        for batch in key_batches(rows):
            values = {**given, "batch": _encoded(batch), "look": look}
            added += connection.execute(self._add, values).rowcount
        if added == len(rows):
            return None
        return self.find(
            connection, table_name, queue_name, keys=[row.entry_key for row in rows], lock=True
        )

    def make(
        self,
        connection: Connection,
        table_name: str,
        queue_name: str,
        *,
        keys: Sequence[str],
        taken_by: str,
        look: datetime,
    ) -> None:
        """Enter keys that nobody has, and that nobody is to have yet: they can be locked then.

        Those that are free still at the date `look` are deleted. It waits for who enters one at
        this moment, and not for who has locked one that is there.
        """
        given = {"table_name": table_name, "queue_name": queue_name, "taken_by": taken_by}
        for batch in key_batches(keys):
            rows = [KeyRow(key, None, PERIOD, None) for key in batch]
            connection.execute(self._make, {**given, "batch": _encoded(rows), "look": look})

    def put(
        self,
        connection: Connection,
        table_name: str,
        queue_name: str,
        *,
        rows: Sequence[KeyRow],
        taken_by: str,
        look: datetime,
    ) -> None:
        """Give keys that this transaction has locked to the entries in `rows`.

        Those that are kept for a time after the end are looked after from the date `look` on.
        """
        given = {
            "table_name": table_name,
            "queue_name": queue_name,
            "taken_by": taken_by,
            "look": look,
        }
        for batch in key_batches(rows):
            connection.execute(self._put, {**given, "batch": _encoded(batch)})

    @memoized_property
    def _rows(self) -> dict[str, ColumnElement[Any]]:
        batch = self._listed()
        look = bindparam("look", type_=UtcDateTime())
        return {
            "table_name": bindparam("table_name", type_=String()),
            "queue_name": bindparam("queue_name", type_=String()),
            "taken_by": bindparam("taken_by", type_=String()),
            **{column.name: column for column in batch.c},
            "ended_state": null(),
            "ended_date": null(),
            "look_date": case((batch.c.keep == literal(PERIOD), look), else_=null()),
            "requeue": null(),
        }

    @memoized_property
    def _source(self) -> Select[Any]:
        source = select(*(value.label(name) for name, value in self._rows.items()))
        # Without a WHERE, some parsers take ON CONFLICT for the beginning of a join.
        return source.where(true())

    @memoized_property
    def _add(self) -> Insert:
        added = InsertNew(self.table).from_select(list(self._rows), self._source)
        return added.execution_options(preserve_rowcount=True)

    @property
    def _make(self) -> Insert:
        return self._add

    @memoized_property
    def _put(self) -> Executable:
        return self._or_change(self._source, list(self._rows))

    def _or_change(self, statement: Select[Any], names: Sequence[str]) -> Insert:
        """An INSERT of the rows of `statement`, which change keys that are there."""
        raise NotImplementedError


def _encoded(rows: Sequence[KeyRow]) -> str:
    return msgspec.json.encode(rows).decode()
