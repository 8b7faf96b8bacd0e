"""The lifecycle of one bus or service: the order in which its parts start and stop.

The claim loop takes what the pool has room for and hands it over; the finish loop writes what
became of it. They work on two connections, so that the database does both at the same time; where
writers take turns, there are two finish loops, whose transactions claim as well. What other
processes tell of is claimed by the thread that hears of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from queue_core.claim_loop import ClaimLoop
from queue_core.claiming.backlog_watch import BacklogWatch
from queue_core.claiming.claimer import Claimer
from queue_core.claiming.hint_listener import HintListener
from queue_core.claiming.hint_sender import HintSender
from queue_core.claiming.parked_lane import ParkedLane
from queue_core.claiming.paused_lanes import PausedLanes
from queue_core.cluster import process_nodes
from queue_core.cluster.health import Health
from queue_core.cluster.node import Node
from queue_core.cluster.redispatch import recover
from queue_core.errors import LifecycleError
from queue_core.finishing.finisher import Finisher
from queue_core.holding.holdings import Holdings
from queue_core.holding.ledger import Ledger
from queue_core.metrics import Metrics, Reading
from queue_core.model.config import ChangeableSettings
from queue_core.model.entry import Entry
from queue_core.model.outcome import Outcome
from queue_core.running.failures import Failures
from queue_core.running.handler_pool import HandlerPool
from queue_core.running.pools import Pools
from queue_core.running.subscriber import Router
from queue_core.runtime.arguments import not_allowed
from queue_core.runtime.log import get_logger
from queue_core.runtime.loop import Loop
from queue_core.storage.store import Store

log = get_logger(__name__)


GIVE_BACK_SECONDS = 1.0
"""A stop gives back what has not run for so long at least, when handlers have used its time up."""


class Phase(Enum):
    """Where a bus or service is between its start and its stop."""

    INITIALISED = "initialised"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"


class Lifecycle:
    """A member of the process's node.

    It starts and stops the parts that others have put together.
    """

    def __init__(
        self,
        store: Store,
        router: Router,
        *,
        holdings: Holdings,
        pools: Pools,
        claimer: Claimer,
        claim_loop: ClaimLoop,
        parked: ParkedLane,
        paused: PausedLanes,
        finisher: Finisher,
        failures: Failures,
        hints: HintSender,
        wakeup: HintListener,
        backlog: BacklogWatch,
        metrics: Metrics,
    ) -> None:
        self.store = store
        self.config = store.config
        self.clock = store.clock
        self._router = router
        self.holdings = holdings
        self.pools = pools
        self.claimer = claimer
        self.claim_loop = claim_loop
        self.parked = parked
        self.paused = paused
        self.finisher = finisher
        self.failures = failures
        self.hints = hints
        self.wakeup = wakeup
        self.backlog = backlog
        self.metrics = metrics
        self.health = Health(self.config.table, self.config.node, self.clock, self.pools.call)
        self.phase = Phase.INITIALISED
        self._outliving: frozenset[tuple[int, int]] = frozenset()
        """Claims that had not ended, or whose outcomes were unwritten, when this left its node."""
        self._late = self._new_late()

    def _new_late(self) -> Loop:
        return Loop(f"{self.config.table}-late", self._late_turn, self.clock)

    # -- life -------------------------------------------------------------------------------------

    def start(self) -> None:
        """Join the cluster and start the loops.

        Raises NodeNameTakenError, LifecycleError, ForkedError.
        """
        self.store.check_process()
        if self.phase in {Phase.RUNNING, Phase.STOPPING}:
            raise LifecycleError(
                f"{self.config.table}: it is {self.phase.value} already; stop it before the next start."
            )
        self._late.stop()  # the finish loops write what is left to it
        self.finisher.writer = self.finisher.loops[0]
        self.pools.renew()
        self.store.database.open_ahead()
        self.join()
        self.phase = Phase.RUNNING
        try:
            self.pools.current.start()
            self.claim_loop.start()
            for loop in self.finisher.loops:
                loop.start()
            self.wakeup.start()
        except BaseException:  # no thread more, mostly
            self.stop()
            raise
        self.claimer.wake()  # for what came since it last ran

    def reconfigure(self, changes: Mapping[str, object]) -> None:
        """Change settings, which the next start takes.

        Raises ConfigurationError, and LifecycleError while it runs. Nothing was changed then.
        """
        fixed = [key for key in changes if key not in ChangeableSettings.__annotations__]
        if fixed:
            raise not_allowed(
                fixed[0],
                changes[fixed[0]],
                "in reconfigure "
                + ", ".join(ChangeableSettings.__annotations__)
                + ". For another key close this bus or service, and build a new one",
            )
        if self.phase in {Phase.RUNNING, Phase.STOPPING}:
            raise LifecycleError(
                f"{self.config.table}: it is {self.phase.value}. Nothing was changed. Stop it, "
                "reconfigure it, and start it."
            )
        changed = {key: value for key, value in changes.items() if value is not None}
        self.config._become(self.config._with_changes(changed))  # noqa: SLF001 -- its owner
        self.claimer.reconfigured()

    def join(self, make: process_nodes.MakeNode = Node) -> None:
        """Take part in the cluster without running loops.

        `start` does this first; the test kit does only this.
        """
        self.health.start()
        try:
            node = process_nodes.join(self, self.config, make)
        except BaseException:
            self.health.stop()
            raise
        self.health.succeeded()  # a node that was there has not beaten since
        self.claimer.forget(self._in_hand())
        try:
            self.paused.look()  # before anything can be claimed
            recovered = recover(
                self.store,
                node.name,
                self.failed,
                crashed=node.former_crashed,
                besides=node.outliving(self.config.table),
            )
        except BaseException:
            self.health.stop()
            process_nodes.leave(
                node, self
            )  # else its lane would have a live node that runs nothing
            raise
        if recovered:
            log.warning(
                "entries_recovered", node=node.name, table=self.config.table, entries=recovered
            )
        process_nodes.forget(self)  # the ledger holds what outlived the last stop
        # Only from here on are events born claimed: recovery would take them for those of a crash.
        self.holdings.take_part(node)
        self.parked.look_at_all()

    def stop(self, timeout_seconds: float | None = None) -> bool:
        """Stop claiming, let handlers finish, write outcomes, give back the rest, end the lease.

        `timeout_seconds` (default: `shutdown_timeout_seconds`) bounds the wait for handlers. The
        rest of it, but a second at least, bounds the giving back. It also bounds the wait for
        `on_failed` functions that are called last. Coroutines that still run after it are
        cancelled, without a failure.

        Returns False if handlers still ran, or if the database was away. The outcomes of such
        handlers are written when they end, also after another start, which does not run their
        entries beside them. Other nodes take the entries when the node's lease has ended.
        """
        if self.phase is not Phase.RUNNING or self.store.forked:
            return True
        limit = self.config.shutdown_timeout_seconds if timeout_seconds is None else timeout_seconds
        deadline = self.clock.monotonic() + limit
        pool = self.pools.current  # once it is STOPPED, a start may make a new one
        self.phase, self.holdings.stopping = Phase.STOPPING, True
        self.wakeup.stop()
        self.claim_loop.stop()
        ended = pool.stop(limit)
        for loop in self.finisher.loops:
            loop.stop()
        if not ended:
            log.error(
                "handlers_still_running",
                table=self.config.table,
                timeout_seconds=limit,
                entries=len(self.ledger),
            )
        try:
            self.leave(max(GIVE_BACK_SECONDS, deadline - self.clock.monotonic()))
        except Exception:
            # The rows still say that this node runs them: whoever reaps it, or takes its name,
            # finds them there.
            log.exception("outcomes_unwritten", table=self.config.table)
            ended = False
        finally:
            if self._outliving:
                self._late = self.finisher.writer = self._new_late()
                self._late.start()
            self.phase = Phase.STOPPED
            self.hints.stop()
            pool.take_left(limit)  # hooks of what has failed since the pool ended
        return ended

    def leave(self, seconds: float = math.inf) -> None:
        """Write what is unwritten, give back what has not run, and leave the cluster.

        What can't be given back in so many `seconds` is for the reapers of others, when the lease
        has ended.
        """
        node = self.node
        if node is None:
            return
        self.holdings.stopping = True
        try:
            self.finisher.write_all()
            in_hand = self._in_hand()
            # From the table, for it knows of the callers' commits too that nobody has looked up
            # yet.
            if self.holdings.release(
                [claim for claim in self.holdings.in_processing() if claim not in in_hand], seconds
            ):
                self.hints.tell()
        finally:
            # First: what is posted from here on is for other nodes, whatever fails below.
            self.holdings.node = None
            self.health.stop()
            self._outliving = frozenset(self._in_hand())
            self.ledger.keep(self._outliving)
            process_nodes.leave(node, self)

    def _in_hand(self) -> set[tuple[int, int]]:
        """The claims of running handlers, and of ended ones whose outcomes are unwritten.

        Handlers in pools of former starts count, too. No outcome is written meanwhile.
        """
        # In this order: a pool lets go of a run when its outcome is with the finisher.
        running = self.pools.running()
        return {entry.claim for entry in [*running, *self.finisher.unwritten]}

    def _late_turn(self) -> float:
        """After a stop: write the outcomes of handlers that outlive it.

        One turn; returns seconds until the next.
        """
        try:
            self.finisher.write_all()
        except SQLAlchemyError:
            if not self.store.database.closed:
                raise
            log.exception("outcomes_unwritten", table=self.config.table)
            self.ledger.keep(
                ()
            )  # nobody waits for it: other nodes, or the next start, take what is left
        self.pool.take_left(0.0)  # hooks of what has failed
        if not self.outliving():
            process_nodes.forget(self)
            self._late.stop()
        return 60.0

    # -- what others ask --------------------------------------------------------------------------

    @property
    def node(self) -> Node | None:
        """The node whose member this is; None if it takes no part in the cluster."""
        return self.holdings.node

    @property
    def name(self) -> str:
        """The node's name, or the last one's; empty before the first start."""
        return self.holdings.name

    @property
    def pool(self) -> HandlerPool:
        """The pool of this start, or of the last one."""
        return self.pools.current

    @property
    def ledger(self) -> Ledger:
        """What this process holds."""
        return self.holdings.ledger

    @property
    def running(self) -> bool:
        """See `Holdings.running`."""
        return self.holdings.running

    def describe(self) -> dict[str, Any]:
        """See `member.Member`."""
        return {
            "table": self.config.table,
            "mode": self.config.mode.value,
            **self._router.describe(),
        }

    def reading(self) -> Reading:
        """What a scrape of the metrics shows of this process."""
        node = self.node
        return Reading(
            in_flight=len(self.ledger),
            lease_left_seconds=node.lease.left_seconds if node is not None else 0.0,
            skew_seconds=node.skew_seconds if node is not None else 0.0,
        )

    def outliving(self) -> list[int]:
        """See `member.Member`."""
        held = set(self.ledger.held())
        return sorted(record_id for record_id, _ in self._outliving & held)

    def lease_lost(self) -> None:
        """See `member.Member`.

        What has not started comes back as Released from the pool, by `may_start`.
        """
        self.metrics.lease_lost()

    def beaten(self) -> None:
        """See `member.Member`."""
        self.health.succeeded()

    def beat_failed(self, error: BaseException) -> None:
        """See `member.Member`."""
        self.health.failed(error)

    def reaped(self, queue_names: Sequence[str]) -> None:
        """See `member.Member`."""
        self.metrics.reaped(queue_names)
        self.claimer.wake()
        self.hints.tell()

    def failed(self, entries: Sequence[Entry]) -> None:
        """See `member.Member`."""
        for entry in entries:
            self.failures.tell(entry, entry.last_error or "")

    # -- turns ------------------------------------------------------------------------------------

    def run_due(self, *, posts_wait: bool = False) -> list[Outcome]:
        """Run the due entries in the caller's thread, write the outcomes and return them.

        One round, between `join` and `leave`, without `start`: what becomes due by it is left to
        the next. `posts_wait`: it is the last round, and what handlers post is not begun.
        """
        self.paused.look()
        self.claimer.look()
        self.claim_loop.turn()
        if posts_wait:
            self.holdings.stopping = True
        self.pool.run_submitted()
        outcomes = self.finisher.write_all()
        self.pool.run_submitted()  # the hooks of what has ended FAILED
        return outcomes
