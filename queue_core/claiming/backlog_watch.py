"""Tells of queues in which more waits than somebody wants to.

Only a process that has asked for it pays: a read of the depths, as bounded as that of the metrics.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

import msgspec

from queue_core.reading.depths import QueueDepth, depths
from queue_core.running.pools import Pools
from queue_core.running.subscriber import Router
from queue_core.runtime.log import get_logger
from queue_core.storage.store import Store

log = get_logger(__name__)

LOOK_SECONDS = 10.0
"""Seconds between two counts of the waiting entries, while somebody watches.

No benchmark compares it with others.
"""

BacklogHook: TypeAlias = Callable[[QueueDepth], None]


def no_more(_depth: QueueDepth) -> None:
    """The hook of those to whom the log is enough."""


class _Watch(msgspec.Struct):
    hook: BacklogHook
    above: int
    pause_seconds: float
    told: dict[str, float] = {}
    """When (monotonic) it was told last, by queue."""


class BacklogWatch:
    """The queues that one bus or service serves, as one node sees them."""

    def __init__(self, store: Store, router: Router, pools: Pools) -> None:
        self._store = store
        self._router = router
        self._pools = pools
        self._watches = list[_Watch]()
        self._at = 0.0

    def add(self, hook: BacklogHook, above: int, pause_seconds: float) -> None:
        """Call `hook` for each queue in which more than `above` entries are due.

        It is called once in `pause_seconds` for each.
        """
        self._watches.append(_Watch(hook, above, pause_seconds))

    def turn(self, now: float) -> None:
        """Count if somebody watches, and if it is time to."""
        if not self._watches or now < self._at:
            return
        self._at = now + LOOK_SECONDS
        served = self._router.describe()["queues"]
        found = [depth for depth in depths(self._store) if depth.queue_name in served]
        for watch in self._watches:
            for depth in found:
                self._tell(watch, depth, now)

    def _tell(self, watch: _Watch, depth: QueueDepth, now: float) -> None:
        told = watch.told.get(depth.queue_name)
        if depth.ready <= watch.above or (told is not None and now - told < watch.pause_seconds):
            return
        watch.told[depth.queue_name] = now
        log.warning(
            "backlog",
            table=depth.table,
            queue_name=depth.queue_name,
            ready=depth.ready,
            oldest_age_seconds=round(depth.oldest_age_seconds, 1),
        )
        self._pools.call(partial(watch.hook, depth))
