"""The lifecycle of one bus or service: the order in which its parts start and stop.

The claim loop takes entries as the pool has room and hands them over; the finish loop writes their
outcomes. They work on two connections, so that the database does both at the same time; where
writers take turns, there are two finish loops, whose transactions claim as well. The thread that
hears a hint of another process claims at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from sqlalchemy.exc import SQLAlchemyError

from queue_core.claim_loop import ClaimLoop
from queue_core.claiming.claimer import Claimer
from queue_core.claiming.hint_listener import HintListener
from queue_core.claiming.hint_sender import HintSender
from queue_core.claiming.limited_lanes import LimitedLanes
from queue_core.claiming.paused_lanes import PausedLanes
from queue_core.cluster.health import Health
from queue_core.cluster.node import Node
from queue_core.errors import LifecycleError
from queue_core.finishing.finisher import Finisher
from queue_core.holding.holdings import Holdings
from queue_core.holding.ledger import Ledger
from queue_core.membership import Membership
from queue_core.metrics import Reading
from queue_core.model.config_keys import ChangeableSettings
from queue_core.model.outcome import Outcome
from queue_core.running.handler_pool import HandlerPool
from queue_core.running.pools import Pools
from queue_core.runtime.arguments import not_allowed
from queue_core.runtime.log import get_logger
from queue_core.runtime.loop import Loop
from queue_core.storage.store import Store

log = get_logger(__name__)


GIVE_BACK_SECONDS = 1.0
"""A stop gives back what has not run for so long at least, when handlers have used its time up."""


class Phase(Enum):
    """The phases of a bus or service from its start to its stop."""

    INITIALISED = "initialised"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"


class Lifecycle:
    """Starts and stops the parts that others have put together."""

    def __init__(
        self,
        store: Store,
        *,
        membership: Membership,
        holdings: Holdings,
        pools: Pools,
        claimer: Claimer,
        claim_loop: ClaimLoop,
        paused: PausedLanes,
        limited: LimitedLanes,
        finisher: Finisher,
        hints: HintSender,
        hint_listener: HintListener,
    ) -> None:
        self.store = store
        self.config = store.config
        self.clock = store.clock
        self.membership = membership
        self.holdings = holdings
        self.pools = pools
        self.claimer = claimer
        self.claim_loop = claim_loop
        self.paused = paused
        self.limited = limited
        self.finisher = finisher
        self.hints = hints
        self.hint_listener = hint_listener
        self.phase = Phase.INITIALISED
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
                f"{self.config.table}: it is {self.phase.value} already; stop it before the next "
                "start."
            )
        self._late.stop()  # the finish loops write its remaining outcomes
        self.finisher.writer = self.finisher.loops[0]
        self.pools.renew()
        self.store.database.open_ahead()
        self.membership.join()
        self.phase = Phase.RUNNING
        try:
            self.pools.current.start()
            self.claim_loop.start()
            for loop in self.finisher.loops:
                loop.start()
            self.hint_listener.start()
        except BaseException:  # no thread more, mostly
            self.stop()
            raise
        self.claimer.wake()  # for entries that came since it last ran

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
        self.hint_listener.stop()
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
            self.membership.leave(max(GIVE_BACK_SECONDS, deadline - self.clock.monotonic()))
        except Exception:
            # The rows still say that this node runs them: a node that reaps it, or takes its name,
            # finds them there.
            log.exception("outcomes_unwritten", table=self.config.table)
            ended = False
        finally:
            if self.membership.unfinished:
                self._late = self.finisher.writer = self._new_late()
                self._late.start()
            self.phase = Phase.STOPPED
            self.hints.stop()
            pool.take_left(limit)  # hooks of entries that failed since the pool ended
        return ended

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
            # Nobody waits for it: other nodes, or the next start, take the rest.
            self.ledger.keep(())
        self.pool.take_left(0.0)  # hooks of failed entries
        if not self.membership.outliving():
            self.membership.be_forgotten()
            self._late.stop()
        return 60.0

    # -- questions of others ----------------------------------------------------------------------

    @property
    def health(self) -> Health:
        """Whether the node's beats reach the database."""
        return self.membership.health

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
        """The entries that this process holds."""
        return self.holdings.ledger

    @property
    def running(self) -> bool:
        """See `Holdings.running`."""
        return self.holdings.running

    def reading(self) -> Reading:
        """The figures of this process for a scrape of the metrics."""
        node = self.node
        return Reading(
            in_flight=len(self.ledger),
            lease_left_seconds=node.lease.left_seconds if node is not None else 0.0,
            skew_seconds=node.skew_seconds if node is not None else 0.0,
        )

    # -- turns ------------------------------------------------------------------------------------

    def run_due(self, *, posts_wait: bool = False) -> list[Outcome]:
        """Run the due entries in the caller's thread, write the outcomes and return them.

        One round of a member without loops. Entries that become due by it are left to the next.
        `posts_wait`: it is the last round, and posts of handlers are not begun.
        """
        self.paused.look()
        self.limited.look()
        self.claimer.look()
        self.claim_loop.turn()
        if posts_wait:
            self.holdings.stopping = True
        self.pool.run_submitted()
        outcomes = self.finisher.write_all()
        self.pool.run_submitted()  # the hooks of entries that ended FAILED
        return outcomes
