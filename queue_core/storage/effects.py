"""Effects: changes that commit together with the outcomes of a batch.

The first is the retry of a failed entry, whose row stays in the main table. Whether and when it
runs again is decided by `queue_core.model.retry`.
"""

from __future__ import annotations

from typing import Any, Protocol

from sqlalchemy import Connection

from queue_core.model.entry import State
from queue_core.model.lanes import SUSPECT, Lane
from queue_core.model.outcome import Paused, Retried
from queue_core.storage.progress import encode_progress
from queue_core.storage.store import Store


class Effect(Protocol):
    """A change that belongs to the outcome of one entry."""

    @property
    def record_id(self) -> int:
        """The entry's. Effects are applied by ascending id, in which rows are locked."""
        ...

    def apply(self, connection: Connection) -> bool:
        """Make the change, in the transaction of `connection`.

        False if the entry was taken over: then nothing was changed.
        """
        ...


class Wait:
    """Lets an entry wait, with its subscribers' progress: for its retry, or for a pause's end."""

    def __init__(self, store: Store, owner: str, lane: Lane, outcome: Retried | Paused) -> None:
        """`owner` holds the entry.

        Its retry waits in `lane`, or among the suspects if it is one.
        """
        self._statements = store.statements
        self._owner = owner
        self._lane = lane
        self._outcome = outcome

    @property
    def record_id(self) -> int:
        """See `Effect.record_id`."""
        return self._outcome.entry.record_id

    def apply(self, connection: Connection) -> bool:
        """See `Effect.apply`."""
        outcome, entry = self._outcome, self._outcome.entry
        waiting: dict[str, Any] = (
            {"lane": outcome.lane}
            if isinstance(outcome, Paused)
            else {
                "lane": SUSPECT if entry.crash_count else self._lane,
                "effective_date": outcome.at,
            }
        )
        return self._statements.change_claimed(
            connection,
            owner=self._owner,
            record_id=entry.record_id,
            claim_count=entry.claim_count,
            created_date=entry.created_date,
            values={
                "processing_state": State.AVAILABLE.value,
                "processing_owner": None,
                "processing_available_date": None,
                **waiting,
                "error_count": outcome.error_count,
                "subscribers_done": encode_progress(outcome.progress or {}),
            },
        )
