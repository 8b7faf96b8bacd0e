"""The shapes of statements on `queue_keys` that one database takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from sqlalchemy import BigInteger, ColumnElement, Double, FromClause, Select, String, Table
from sqlalchemy.types import TypeEngine

from sql.statements.base import IDS, S
from sql.statements.outcomes import encoded
from sql.tables import KEY_LENGTH, in_schema, queue_keys
from sql.types import name

PERIOD = "period"
"""The `keep` of a key that is kept for a time after its entry's end."""

BATCH_COLUMNS: dict[str, TypeEngine[Any]] = {
    "entry_key": name(KEY_LENGTH),
    "record_id": BigInteger(),
    "keep": String(16),
    "keep_seconds": Double(),
}
"""A `KeyRow`'s columns, in order."""


class KeyRow(msgspec.Struct):
    """A key that a post takes, and the entry that has it; None before the entry is inserted."""

    entry_key: str
    record_id: int | None
    keep: str
    keep_seconds: float | None


class KeyShapes:
    """With a `schema`, they find the table whatever the session's search path is."""

    def __init__(self, schema: str | None = None) -> None:
        self.table = in_schema(queue_keys, schema)

    def _listed(self) -> FromClause:
        """The bound JSON parameter `batch` as a table with `BATCH_COLUMNS`."""
        raise NotImplementedError

    def _listed_keys(self) -> FromClause:
        """The bound JSON parameter `keys` as a table with the column `entry_key`."""
        raise NotImplementedError

    def _listed_ids(self) -> FromClause:
        """The bound JSON parameter `ids` as a table with the column `record_id`."""
        raise NotImplementedError

    def _listed_values(self, values: Sequence[str | int]) -> Any:
        """The value of the parameter `keys`, or `ids`."""
        return encoded(values)

    def _looked_up(self, table: FromClause, statement: Select[Any]) -> Select[Any]:
        """The statement, made to look rows up in the primary key."""
        del table
        return statement

    def _for_each(
        self,
        listed: FromClause,
        table: Table,
        condition: ColumnElement[bool],
        statement: Select[Any],
    ) -> Select[Any]:
        """The statement on the rows of `table` that meet the condition with a row of `listed`.

        It is made to look them up for each row that is listed.
        """
        return statement.select_from(listed.join(table, condition))

    def _changed(self, table: Table, statement: S) -> S:
        """The same for a change."""
        del table
        return statement


def key_batches(items: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """Items, as many at a time as one statement takes."""
    for start in range(0, len(items), IDS):
        yield items[start : start + IDS]
