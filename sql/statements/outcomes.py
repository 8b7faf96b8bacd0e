"""The statements that move entries to history, each with its end.

`storage.moves` sends them, by `Statements.move`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Delete,
    FromClause,
    Insert,
    Integer,
    Select,
    String,
    Text,
    bindparam,
    delete,
    insert,
    literal,
    null,
    select,
)
from sqlalchemy.types import TypeEngine
from sqlalchemy.util import memoized_property

from sql.search_keys import AWAITED
from sql.statements.base import PairStatements, batches
from sql.tables import ENTRY_COLUMNS
from sql.types import TEXT_LENGTH, UtcDateTime

FENCE_COLUMNS: dict[str, TypeEngine[Any]] = {
    "record_id": BigInteger(),
    "claim_count": Integer(),
    "created_date": UtcDateTime(),
}
OUTCOME_COLUMNS: dict[str, TypeEngine[Any]] = {
    "processing_state": String(16),
    "finished_date": UtcDateTime(),
    "started_date": UtcDateTime(),
    "error_count": Integer(),
    "subscribers_done": Text(),
    "last_error": Text(),
}
FINISH_COLUMNS = FENCE_COLUMNS | OUTCOME_COLUMNS
"""A `FinishRow`'s columns, in order."""


class FinishRow(msgspec.Struct):
    """One outcome: the fence, and the columns that history gets.

    The owner is part of the fence; it is bound once a batch.
    """

    record_id: int
    claim_count: int
    created_date: datetime
    processing_state: str
    finished_date: datetime
    started_date: datetime | None = None
    error_count: int = 0
    subscribers_done: str | None = None
    last_error: str | None = None


class Batch(msgspec.Struct):
    """Endings as they are sent.

    They are made ahead of the transaction: on SQLite all other writers wait for it.
    """

    text: str
    ids: list[int]
    kept: bool = True
    """Whether they go to history; else they are deleted."""


_DATES = [
    place for place, kind in enumerate(FINISH_COLUMNS.values()) if isinstance(kind, UtcDateTime)
]


class Outcomes(PairStatements):
    """Entries that end."""

    def _batch(self) -> FromClause:
        """The bound JSON parameter `batch` as a table named `batch` with `FINISH_COLUMNS`."""
        raise NotImplementedError

    def _encode(self, endings: Sequence[FinishRow]) -> str:
        """The value of the parameter `batch`."""
        rows = [list(msgspec.structs.astuple(ending)) for ending in endings]
        for place in _DATES:
            for row, text in zip(rows, _texts([row[place] for row in rows]), strict=True):
                row[place] = text
        return encoded(rows)

    def _looked_up(self, statement: Select[Any]) -> Select[Any]:
        """The statement, made to find each row of the main table by its primary key."""
        return statement

    def _held(self, batch: FromClause) -> list[ColumnElement[bool]]:
        return [self._has_id(batch.c.record_id), *self._claim_holds(batch)]

    def _claim_holds(self, batch: FromClause) -> list[ColumnElement[bool]]:
        """Whether an entry that was looked up by its id has still the claim that the batch ends."""
        main = self.main
        return [
            main.c.processing_owner == bindparam("owner"),
            main.c.claim_count == batch.c.claim_count,
            main.c.created_date == batch.c.created_date,
            # An entry that others wait for ends in a transaction that releases them; its runner
            # may have read it before they came.
            main.c.headers.is_(None) | main.c.headers.not_like(f'%"{AWAITED}"%'),
        ]

    @memoized_property
    def _finish_insert(self) -> Insert:
        batch = self._batch()
        values = {name: self.main.c[name] for name in ENTRY_COLUMNS} | {
            name: batch.c[name] for name in OUTCOME_COLUMNS
        }
        source = self._looked_up(select(*values.values()).select_from(batch))
        source = source.where(*self._held(batch)).with_for_update(of=self.main)
        return insert(self.past).from_select(list(values), source)

    @memoized_property
    def _still_held(self) -> Select[Any]:
        batch = self._batch()
        return select(self.main.c.record_id).where(*self._held(batch))

    @memoized_property
    def _lock_held(self) -> Select[Any]:
        batch = self._batch()
        found = self._looked_up(select(self.main.c.record_id).select_from(batch))
        return found.where(*self._held(batch)).with_for_update(of=self.main)

    @memoized_property
    def _delete(self) -> Delete:
        return delete(self.main).where(self.main.c.record_id.in_(bindparam("ids", expanding=True)))

    def batch(self, endings: Sequence[FinishRow], *, kept: bool = True) -> Batch:
        """Rows as `finish` takes them, by ascending id."""
        return Batch(self._encode(endings), [ending.record_id for ending in endings], kept)

    def finish(self, connection: Connection, *, owner: str, batch: Batch) -> set[int]:
        """Move entries to history with their outcomes, and return the ids moved.

        Those of a batch that is not `kept` are deleted.

        The finish loop calls it by way of `Statements.move`. On PostgreSQL it is one statement;
        SQLite has its own `move`.

        An id that is missing had been taken over: its fence no longer held, and nothing of it was
        changed.
        """
        parameters = {"batch": batch.text, "owner": owner}
        if not batch.kept:
            return self._end_unkept(connection, parameters)
        copied = self._change(connection, self._finish_insert, parameters)
        ids = set(batch.ids)
        if copied != len(ids):
            # The copied rows are locked by this transaction, so that the same fence finds the same
            # rows.
            ids = {row[0] for row in self._rows(connection, self._still_held, parameters)}
        self._remove_copied(connection, sorted(ids), copied)
        return ids

    def _end_unkept(self, connection: Connection, parameters: Mapping[str, Any]) -> set[int]:
        """Delete the entries of a batch; returns their ids."""
        ids = sorted(row[0] for row in self._rows(connection, self._lock_held, parameters))
        if ids:
            self._remove(connection, ids)
        return set(ids)

    def _remove_copied(self, connection: Connection, ids: Sequence[int], copied: int) -> None:
        removed = self._remove(connection, ids) if ids else 0
        if removed != copied:
            message = (
                f"{copied} entries of {self.main.name} copied to history, {removed} removed: "
                "rolled back"
            )
            raise RuntimeError(message)

    def _remove(self, connection: Connection, ids: Sequence[int]) -> int:
        """Delete entries; return how many there were."""
        return connection.execute(self._delete, {"ids": list(ids)}).rowcount

    def to_history(
        self, connection: Connection, *, ids: Sequence[int], values: Mapping[str, Any]
    ) -> int:
        """Move entries that this transaction has locked to history, and return how many.

        `values` are changed on the way.
        """
        overrides = {"started_date": null(), "last_error": null()} | {
            name: literal(value, self.past.c[name].type) if value is not None else null()
            for name, value in values.items()
        }
        source = {name: self.main.c[name] for name in ENTRY_COLUMNS} | overrides
        total = 0
        for batch in batches(ids):
            rows = self._looked_up(select(*source.values()).where(self.main.c.record_id.in_(batch)))
            copies = insert(self.past).from_select(list(source), rows)
            copied = connection.execute(copies.execution_options(preserve_rowcount=True)).rowcount
            self._remove_copied(connection, batch, copied)
            total += copied
        return total


def _texts(dates: Sequence[datetime | None]) -> list[str | None]:
    """Dates in UTC as columns of text hold them.

    JSON makes them in a sixth of the time that `isoformat` takes.
    """
    texts = msgspec.json.encode(dates).replace(b"T", b" ").replace(b"Z", b"")
    return [
        text if text is None or len(text) == TEXT_LENGTH else f"{text}.000000"
        for text in msgspec.json.decode(texts)
    ]


def encoded(value: Any) -> str:
    """JSON text."""
    return msgspec.json.encode(value).decode()
