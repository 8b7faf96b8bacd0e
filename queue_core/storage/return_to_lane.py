"""The return of an entry to a lane, as a retry or set aside: it commits with a batch's outcomes.

The row of such an entry stays in the main table. Whether and when it runs again is decided by
`queue_core.model.retry`.
"""

from __future__ import annotations

from sqlalchemy import Connection

from queue_core.model.entry import Entry
from queue_core.model.lanes import ANY_NODE, SUSPECT, Lane, circuit_lane
from queue_core.model.outcome import Retried, SetAside
from queue_core.model.states import State
from queue_core.storage.progress import write_progress
from queue_core.storage.store import Store


class ReturnToLane:
    """Returns an entry to the lane in which it waits, with its subscribers' progress.

    It waits for its retry, for a place, for the end of a pause, or until a circuit is closed.
    """

    def __init__(self, store: Store, owner: str, lane: Lane, outcome: Retried | SetAside) -> None:
        """`owner` holds the entry.

        Its retry waits in `lane`, or among the suspects if it is one.
        """
        self._statements, self._circuits = store.statements, store.circuits
        self._owner = owner
        self._circuit = Lane("")
        self._outcome = outcome
        self._opens = outcome.opens if isinstance(outcome, Retried) else None
        if self._opens is not None:
            self._circuit = circuit_lane(outcome.entry.queue_name, self._opens.handler)
            self._lane = self._circuit
        elif isinstance(outcome, SetAside) and outcome.lane != ANY_NODE:
            self._lane = outcome.lane
        else:
            self._lane = SUSPECT if outcome.entry.crash_count else lane

    @property
    def entry(self) -> Entry:
        """The entry."""
        return self._outcome.entry

    @property
    def record_id(self) -> int:
        """The id of the entry."""
        return self._outcome.entry.record_id

    @property
    def order(self) -> tuple[Lane, int]:
        """Returns are made by ascending circuit and id, in which rows are locked."""
        return self._circuit, self.record_id

    def apply(self, connection: Connection) -> bool:
        """Change the row, in the transaction of `connection`.

        False if the entry was taken over: then nothing was changed.
        """
        outcome, entry = self._outcome, self._outcome.entry
        due = {} if isinstance(outcome, SetAside) else {"effective_date": outcome.at}
        written = write_progress(
            self._statements,
            connection,
            self._owner,
            entry,
            outcome.progress or {},
            values={
                "processing_state": State.AVAILABLE.value,
                "processing_owner": None,
                "processing_available_date": None,
                "lane": self._lane,
                **due,
                "error_count": outcome.error_count,
            },
        )
        if written is None:
            return False
        self._circuits.went_on(connection, entry, written)
        if self._opens is not None:
            self._circuits.failed(connection, entry, self._opens)
        return True
