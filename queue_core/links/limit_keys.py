"""Limit keys: the queue's limit says how many entries of one key run at once.

A claim takes a place of the key (`storage.key_places`). An entry that finds none waits in the lane
of its key, from which nobody claims, so that it costs the entries of other keys nothing. The end of
a claim lets the first one go that waits there, in the same transaction. That one has no place yet:
in any case the places are counted when it is claimed.

A claim that takes places of a key, and the end of one, lock the row of the key first. So an entry
that has just been refused is seen by him who frees the place that it was refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from sqlalchemy import Connection

from queue_core.links.link import Ending, RetryByHand
from queue_core.links.links import carries
from queue_core.model.entry import Entry
from queue_core.model.lanes import SUSPECT, Lane, keyed_lane
from queue_core.runtime.clock import Clock
from sql.search_keys import RESERVED, texts
from sql.statements.entries import Statements

_NAME = "limit_key"
LIMIT_KEY_MARK = RESERVED + _NAME
"""The mark of an entry with a limit key. Its text is the key."""


class LimitKeyLink:
    """The limit keys of one main table, as the claims of their entries end."""

    mark = LIMIT_KEY_MARK

    def __init__(self, entries: Statements, clock: Clock) -> None:
        self._entries = entries
        self._clock = clock

    def ended(self, connection: Connection, endings: Sequence[Ending], *, lent: bool) -> None:
        """See `Link.ended`. A caller's transaction must not hold up entries of the key."""
        if not lent:
            self.freed(connection, [one.entry for one in endings])

    def freed(self, connection: Connection, entries: Sequence[Entry]) -> None:
        """Claims of entries have ended: let as many others go, where some wait."""
        ended = Counter(
            lane_of_key(entry) for entry in entries if carries(entry.headers, LIMIT_KEY_MARK)
        )
        rows = self._entries.lock_keys(connection, lanes=ended) if ended else {}
        if not rows:
            return
        ids = [entry.record_id for entry in entries]
        self._entries.free_key_places(connection, lanes=rows, ids=ids)
        now = self._clock.now()
        # At its rate, a start is refused before the date for which the key waits.
        self.wake(
            connection,
            {
                lane: ended[Lane(lane)]
                for lane, row in rows.items()
                if row.look_date is None or row.look_date <= now
            },
        )

    def wake(self, connection: Connection, counts: Mapping[str, int]) -> int:
        """Let the first entries of each lane go, up to its number. Their keys are locked."""
        first = self._entries.first_of_keys(connection, lanes=counts) if counts else {}
        ids = list[int]()
        for lane, record_id in first.items():
            if counts[lane] == 1:
                ids.append(record_id)
            else:
                page = self._entries.free_page(connection, lane=lane, limit=counts[lane])
                ids += [row.record_id for row in page]
        return self._entries.wake(connection, ids=ids, suspect_lane=SUSPECT) if ids else 0

    def retried(self, connection: Connection, retry: RetryByHand, *, lent: bool) -> None:
        """See `Link.retried`. The copy takes a place when it is claimed."""

    def discarded(self, connection: Connection, old: Entry, *, lent: bool) -> None:
        """See `Link.discarded`. It has no place."""

    def renewed(self, connection: Connection, old: Entry, new_id: int) -> None:
        """See `Link.renewed`. The copy takes a place when it is claimed."""


def limit_key_of(headers: str | None) -> str:
    """The limit key of an entry whose headers carry the mark."""
    return texts(headers).get(_NAME, "")


def lane_of_key(entry: Entry) -> Lane:
    """The lane in which an entry that carries the mark waits for a place of its key."""
    return keyed_lane(entry.queue_name, limit_key_of(entry.headers))
