"""The membership of one bus or service in its node, from the join to the leave.

A member that leaves may still run handlers that hang: the node goes on telling the cluster of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from queue_core.claiming.claimer import Claimer
from queue_core.claiming.hint_sender import HintSender
from queue_core.claiming.limited_lanes import LimitedLanes
from queue_core.claiming.parked_lane import ParkedLane
from queue_core.claiming.paused_lanes import PausedLanes
from queue_core.cluster import process_nodes
from queue_core.cluster.health import Health
from queue_core.cluster.node import Node
from queue_core.cluster.redispatch import recover
from queue_core.finishing.finisher import Finisher
from queue_core.holding.holdings import Holdings
from queue_core.metrics import Metrics
from queue_core.model.entry import Entry
from queue_core.running.failed_hooks import FailedHooks
from queue_core.running.pools import Pools
from queue_core.running.subscriber import Router
from queue_core.runtime.log import get_logger
from queue_core.storage.store import Store

log = get_logger(__name__)


class Membership:
    """The `cluster.member.Member` of one bus or service."""

    def __init__(
        self,
        store: Store,
        router: Router,
        *,
        holdings: Holdings,
        pools: Pools,
        claimer: Claimer,
        parked: ParkedLane,
        paused: PausedLanes,
        limited: LimitedLanes,
        finisher: Finisher,
        failed_hooks: FailedHooks,
        hints: HintSender,
        metrics: Metrics,
    ) -> None:
        self.store = store
        self._config = store.config
        self._router = router
        self._holdings = holdings
        self._pools = pools
        self._claimer = claimer
        self._parked = parked
        self._paused = paused
        self._limited = limited
        self._finisher = finisher
        self._failed_hooks = failed_hooks
        self._hints = hints
        self._metrics = metrics
        self.health = Health(self._config.table, self._config.node, store.clock, pools.call)
        self.unfinished: frozenset[tuple[int, int]] = frozenset()
        """Claims that had not ended, or whose outcomes were unwritten, when this left its node."""

    def join(self, make: process_nodes.MakeNode = Node) -> None:
        """Take part in the cluster, without loops.

        Raises NodeNameTakenError, LifecycleError, ConfigurationError.
        """
        self.health.start()
        try:
            node = process_nodes.join(self, self._config, make)
        except BaseException:
            self.health.stop()
            raise
        self.health.succeeded()  # a node that was there has not beaten since
        self._claimer.forget(self._in_hand())
        try:
            self._paused.look()  # before anything can be claimed
            self._limited.look()
            recovered = recover(
                self.store,
                node.name,
                self.failed,
                crashed=node.former_crashed,
                besides=node.outliving(self._config.table),
            )
        except BaseException:
            self.health.stop()
            # Else its lane would have a live node that runs nothing.
            process_nodes.leave(node, self)
            raise
        if recovered:
            log.warning(
                "entries_recovered", node=node.name, table=self._config.table, entries=recovered
            )
        self.be_forgotten()  # the ledger holds runs that outlived the last stop
        # Only from here on are events born claimed: recovery would take them for those of a crash.
        self._holdings.take_part(node)
        self._parked.look_at_all()

    def leave(self, seconds: float = math.inf) -> None:
        """Write the unwritten outcomes, give back the rest, and leave the cluster.

        Entries that can't be given back in `seconds` are for the reapers of others, when the lease
        has ended.
        """
        node = self._holdings.node
        if node is None:
            return
        self._holdings.stopping = True
        try:
            self._finisher.write_all()
            if self._holdings.release(self._not_begun(), seconds):
                self._hints.tell()
        finally:
            # First: posts from here on are for other nodes, even if a step below fails.
            self._holdings.node = None
            self.health.stop()
            self.unfinished = frozenset(self._in_hand())
            self._holdings.ledger.keep(self.unfinished)
            process_nodes.leave(node, self)

    def be_forgotten(self) -> None:
        """Let its node report it no longer: nothing outlives it, or it is a member again."""
        process_nodes.forget(self)

    def _in_hand(self) -> set[tuple[int, int]]:
        """The claims of running handlers, and of ended ones whose outcomes are unwritten.

        Handlers in pools of former starts count, too. No outcome is written meanwhile.
        """
        # In this order: a pool lets go of a run when its outcome is with the finisher.
        running = self._pools.running()
        return {entry.claim for entry in [*running, *self._finisher.unwritten]}

    def _not_begun(self) -> list[tuple[int, int]]:
        """The claims that are to be given back."""
        in_hand = self._in_hand()
        # From the table: callers may have committed entries that nobody has looked up yet.
        return [claim for claim in self._holdings.in_processing() if claim not in in_hand]

    def describe(self) -> dict[str, Any]:
        """See `member.Member`."""
        history = self._config.history
        return {
            "table": self._config.table,
            "mode": self._config.mode.value,
            **({} if history == "all" else {"history": history}),
            **self._router.describe(),
        }

    def outliving(self) -> list[int]:
        """See `member.Member`."""
        held = set(self._holdings.ledger.held())
        return sorted(record_id for record_id, _ in self.unfinished & held)

    def lease_lost(self) -> None:
        """See `member.Member`.

        Entries that have not started come back as Released from the pool, by `may_start`.
        """
        self._metrics.lease_lost()

    def beaten(self) -> None:
        """See `member.Member`."""
        self.health.succeeded()

    def beat_failed(self, error: BaseException) -> None:
        """See `member.Member`."""
        self.health.failed(error)

    def reaped(self, queue_names: Sequence[str]) -> None:
        """See `member.Member`."""
        self._metrics.reaped(queue_names)
        self._claimer.wake()
        self._hints.tell()

    def failed(self, entries: Sequence[Entry]) -> None:
        """See `member.Member`."""
        for entry in entries:
            self._failed_hooks.tell(entry, entry.last_error or "")
