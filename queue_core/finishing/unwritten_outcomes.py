"""The outcomes that wait to be written, in the order in which their runs have ended."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from operator import attrgetter

from queue_core.model.entry import Entry
from queue_core.model.outcome import Finished, Outcome
from queue_core.runtime.lock import Lock

BATCH = 1_000
"""Outcomes of one batch at most."""
BATCH_CHARACTERS = 1_000_000
"""Characters of error messages from which a batch takes no more outcomes.

Escaped, they must fit a packet of MySQL (16 MB).
"""

_CLAIM_COUNT = attrgetter("entry.claim_count")


class UnwrittenOutcomes:
    """A queue that gives out batches, and takes back unwritten outcomes."""

    def __init__(self) -> None:
        self._queue = deque[Outcome]()
        self.add = self._queue.append
        """Let an outcome wait, as the last. As each entry needs it, it is no method."""
        self._lock = Lock()
        """Held while outcomes leave the queue, or come back to its beginning.

        The two loops do so at the same time.
        """

    def __len__(self) -> int:
        return len(self._queue)

    def entries(self) -> list[Entry]:
        """The entries whose outcomes are here."""
        return [outcome.entry for outcome in list(self._queue)]

    @contextmanager
    def dequeued(self) -> Iterator[list[Outcome]]:
        """A batch to write.

        Outcomes that the block leaves in the list are the first of the next batch.
        """
        taken = list[Outcome]()
        try:
            with self._lock:
                self._dequeue(taken)
            yield taken
        finally:
            with self._lock:
                self._queue.extendleft(reversed(taken))

    def _dequeue(self, taken: list[Outcome]) -> None:
        size = 0
        while self._queue and len(taken) < BATCH and size < BATCH_CHARACTERS:
            outcome = self._queue[0]
            size += _error_length(outcome)
            # In this order: an exception in between leaves it in both, of which the first counts,
            # and not in none.
            taken.append(outcome)
            self._queue.popleft()


def one_each(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Of each entry the outcome that counts: of its newest claim, the first.

    A run that was cut may come to its end when its entry runs once more, or has.
    """
    newest_first = sorted(outcomes, key=_CLAIM_COUNT, reverse=True)
    return list({one.entry.record_id: one for one in reversed(newest_first)}.values())


def _error_length(outcome: Outcome) -> int:
    return len(outcome.last_error) if isinstance(outcome, Finished) and outcome.last_error else 0
