"""The column `subscribers_done`: how far the subscribers of an entry are."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec
from sqlalchemy import Connection

from queue_core.model.entry import RetryDue, SubscriberProgress
from sql.statements.entries import Statements


def encode_progress(progress: SubscriberProgress) -> str | None:
    """The value of `subscribers_done`: whether each subscriber succeeded.

    False: it has used up its retries.
    """
    return msgspec.json.encode(progress).decode() if progress else None


def succeeded(column: str | None) -> str | None:
    """Those of a column `subscribers_done` that succeeded.

    None if there are none, or if the column can't be read.
    """
    try:
        done: SubscriberProgress = {
            name: True for name, how in msgspec.json.decode(column or "{}").items() if how is True
        }
    except (msgspec.MsgspecError, AttributeError, RecursionError):
        return None
    return encode_progress(done)


def move_retries(
    statements: Statements, connection: Connection, ids: Sequence[int], due: datetime
) -> None:
    """Let the retries of subscribers be `due`, of entries that this transaction has locked."""
    for row in statements.locked_progress(connection, ids=ids):
        values = {"subscribers_done": _due_at(row.subscribers_done, due)}
        statements.change(connection, record_id=row.record_id, values=values)


def _due_at(column: str, due: datetime) -> str:
    """A column `subscribers_done` whose retries are `due`; as it is, if it can't be read."""
    try:
        progress = msgspec.json.decode(column, type=SubscriberProgress)
    except (msgspec.MsgspecError, RecursionError):
        return column
    moved: SubscriberProgress = {
        name: RetryDue(how.failures, due) if isinstance(how, RetryDue) else how
        for name, how in progress.items()
    }
    return encode_progress(moved) or column
