"""The column `subscribers_done`: how far the subscribers of an entry are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

import msgspec
from sqlalchemy import Connection

from queue_core.model.entry import Entry, RetryDue, SubscriberProgress, from_row
from sql.statements.entries import Statements

_NOTHING: Mapping[str, Any] = {}


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


def with_recorded(progress: SubscriberProgress, row: Entry) -> SubscriberProgress:
    """`progress`, and the successes that an entry's locked row has beside it.

    An exactly-once handler's transaction may have recorded one though its run counts as failed: the
    COMMIT gave no answer, or came when the run had been cut.
    """
    return progress | {name: True for name, so_far in row.progress.items() if so_far is True}


def write_progress(
    statements: Statements,
    connection: Connection,
    owner: str,
    entry: Entry,
    progress: SubscriberProgress,
    *,
    values: Mapping[str, Any] = _NOTHING,
) -> SubscriberProgress | None:
    """Write the progress of an entry that `owner` runs, and other `values` of its row.

    Successes that were recorded since it was claimed stay. Returns what was written; None if the
    entry was taken over.
    """
    change = partial(
        statements.change_claimed,
        connection,
        owner=owner,
        record_id=entry.record_id,
        claim_count=entry.claim_count,
        created_date=entry.created_date,
    )
    read = {"subscribers_done": entry.subscribers_done}
    if change(values={**values, "subscribers_done": encode_progress(progress)}, known=read):
        return progress
    # Taken over, or a success was recorded meanwhile.
    row = statements.held(
        connection, owner=owner, record_id=entry.record_id, claim_count=entry.claim_count
    )
    if row is None:
        return None
    merged = with_recorded(progress, from_row(row))
    changed = change(values={**values, "subscribers_done": encode_progress(merged)})
    return merged if changed else None
