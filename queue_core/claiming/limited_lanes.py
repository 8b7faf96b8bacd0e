"""The lanes of limited queues, and the look at the limits.

An entry that a claim finds no place for is set aside in the lane of its queue's limit, where it
costs the other queues nothing. Each node looks once a second which limits there are and which of
these lanes hold entries, and claims from those. A lane without a limit is emptied.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial

from queue_core.claiming.aside_look import LOOK_SECONDS, AsideLook
from queue_core.claiming.claimer import Claimer
from queue_core.claiming.limited_keys import LimitedKeys
from queue_core.claiming.newest_read import NewestRead
from queue_core.claiming.set_aside import bring_back
from queue_core.holding.holdings import Holdings
from queue_core.model.limit import Limit
from queue_core.reading.nodes import live_nodes, served_by
from queue_core.running.pools import Pools
from queue_core.runtime.log import get_logger
from queue_core.storage.limits import StoredLimits

log = get_logger(__name__)


class LimitedLanes:
    """The limits and the entries that wait for places, as one node sees them."""

    def __init__(
        self,
        holdings: Holdings,
        pools: Pools,
        claimer: Claimer,
        served_queues: Callable[[], Collection[str]],
        asides: AsideLook,
        *,
        keys: LimitedKeys,
    ) -> None:
        self._holdings = holdings
        self._asides = asides
        self._stored = StoredLimits(holdings.store)
        self._pools = pools
        self._claimer = claimer
        self._served_queues = served_queues
        self.keys = keys
        self._of_keys = list[Limit]()
        """The limits of keys, as the last look has found them."""
        self._at = 0.0
        self._newest = NewestRead()
        self._registered = set[str]()
        """Limits whose earlier runs here are counted: a queue's lane, for keys its name."""

    @property
    def next_look(self) -> float:
        """Monotonic time of the next look."""
        return self._at

    def look(self) -> None:
        """Learn in this thread which limits there are; the claim loop's next turn does the rest."""
        read = self._newest.begin()
        limits = self._holdings.store.database.fetch(self._stored.all)
        self._newest.learn(read, partial(self._learn, limits))
        self._at = 0.0
        self._claimer.turn_soon()

    def turn(self, now: float) -> None:
        """If it is time to: look, claim where entries wait, and empty lanes whose limit is gone."""
        if now < self._at:
            return
        holdings, read = self._holdings, self._newest.begin()
        if not self._registered and self._asides.finds_nothing():
            if self._newest.learn(read):
                self._at = now + LOOK_SECONDS
            return
        limits, lanes = holdings.store.database.fetch(self._stored.all_and_lanes)
        if not self._newest.learn(read, partial(self._learn, limits)):
            return  # and again in the next turn
        limited = {limit.lane: limit for limit in limits if limit.limits_queue}
        served = self._served_queues()
        for lane in lanes:
            limit = limited.get(lane)
            if limit is None or limit.queue_name not in served:
                continue
            if holdings.places.lane_of_pause(limit.queue_name) is None:
                self._claimer.hint(lane)
        if limits:
            holdings.places.nodes = self._nodes()
        ended = [lane for lane in lanes if lane not in limited]
        more = bring_back(holdings, ended)
        if self._newest.is_newest(read):
            self._at = 0.0 if more else now + LOOK_SECONDS
        if ended:
            self._claimer.wake()

    def _nodes(self) -> int:
        """The number of nodes that run entries of this table."""
        table = self._holdings.config.table
        live = live_nodes(self._holdings.store)
        return max(1, sum(bool(served_by(node, table)) for node in live))

    def _learn(self, limits: list[Limit]) -> None:
        places = self._holdings.places
        names = {limit.queue_name for limit in limits}
        before = places.lanes.keys() | places.keys.queues
        for name in names ^ before:
            log.info(
                "unlimited" if name in before else "limited",
                table=self._holdings.config.table,
                queue_name=name,
            )
        places.learn(limits)  # first: from here on, nothing starts without a place
        of_keys = [limit for limit in limits if limit.limits_keys]
        if of_keys != self._of_keys:
            self.keys.changed()
        self._of_keys = of_keys
        limited = {*places.lanes.values(), *places.keys.queues}
        new = limited - self._registered
        if new:
            running = [
                entry
                for entry in self._pools.running()
                if self._holdings.lane_without_place(entry) is not None
            ]
            self._holdings.moves.register(self._holdings.name, running)
        self._registered = limited
