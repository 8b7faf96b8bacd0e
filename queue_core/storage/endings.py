"""The endings of entries in a transaction, with the links that follow them there."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection

from queue_core.links.link import Ending
from queue_core.model.entry import from_row
from queue_core.model.outcome import Finished
from queue_core.model.states import State
from queue_core.storage.progress import encode_progress, with_recorded
from queue_core.storage.store import Store
from sql.tables import ERROR_LENGTH


def endings_of(finished: Iterable[Finished], besides: Collection[int] = ()) -> Iterator[Ending]:
    """The endings that links are told, of outcomes that were written, `besides` some ids."""
    return (
        Ending(one.entry, one.state, one.keep)
        for one in finished
        if one.entry.record_id not in besides
    )


def end_awaited(store: Store, connection: Connection, owner: str, finished: Finished) -> bool:
    """End an entry by what its row says, and tell its links.

    `finished` may know of fewer links than the row, which is read anew, or of fewer successes.
    False if the entry was taken over.
    """
    entry, statements = finished.entry, store.statements
    row = statements.held(
        connection, owner=owner, record_id=entry.record_id, claim_count=entry.claim_count
    )
    if row is None or row.created_date != entry.created_date:
        return False
    held, progress = from_row(row), finished.progress
    if finished.may_have_succeeded:
        progress = with_recorded(progress, held)
    statements.to_history(
        connection,
        ids=[entry.record_id],
        values={
            "processing_state": finished.state.value,
            "finished_date": finished.finished_date,
            "started_date": finished.started_date,
            "error_count": finished.error_count,
            "subscribers_done": encode_progress(progress),
            "last_error": finished.last_error[:ERROR_LENGTH] if finished.last_error else None,
        },
    )
    store.links.ended(connection, [Ending(held, finished.state, finished.keep)])
    return True


def remove_locked(
    store: Store,
    connection: Connection,
    ids: Sequence[int],
    values: Mapping[str, Any],
    *,
    lent: bool = False,
) -> int:
    """Move locked entries to history with `values`, as REMOVED, and tell their links.

    They wait for others no longer. Returns how many. `lent`: the connection is a caller's.
    """
    marked = store.statements.locked_marked(connection, ids=ids)
    removed = store.statements.to_history(connection, ids=ids, values=values)
    endings = [Ending(from_row(row), State.REMOVED) for row in marked]
    store.links.ended(connection, endings, lent=lent)
    store.dependencies.removed(connection, ids, lent=lent)
    return removed
