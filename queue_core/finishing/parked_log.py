"""The log of parked entries. One line counts many of them."""

from __future__ import annotations

import math

from queue_core.runtime.clock import Clock
from queue_core.runtime.lock import Lock
from queue_core.runtime.log import get_logger

log = get_logger(__name__)

PARKED_LOG_SECONDS = 1.0
"""The shortest time between two lines.

While a deployment is incomplete, each batch of outcomes has some.
"""


class ParkedLog:
    """The lines about one table."""

    def __init__(self, table: str, clock: Clock) -> None:
        self._table = table
        self._clock = clock
        self._lock = Lock()
        self._untold, self._tell_at = 0, 0.0
        """Parked entries that are not logged yet, and the time of the next line."""

    def tell(self, entries: int = 0, *, now: bool = False) -> float:
        """Log how many entries were parked since the last line, `entries` more among them.

        It logs once in `PARKED_LOG_SECONDS`, or `now`. Returns the seconds until the next line may
        come; infinity if there is nothing to tell.
        """
        moment = self._clock.monotonic()
        with self._lock:
            self._untold += entries
            if not self._untold:
                return math.inf
            if moment < self._tell_at and not now:
                return self._tell_at - moment
            entries, self._untold = self._untold, 0
            self._tell_at = moment + PARKED_LOG_SECONDS
        log.warning("entries_parked", table=self._table, entries=entries)
        return math.inf
