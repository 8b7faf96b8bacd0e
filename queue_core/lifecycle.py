"""The lifecycle of one bus or service: how it joins the cluster, its loops, and how it leaves.

The claim loop takes what the pool has room for and hands it over; the finish loop writes what became of it. They work
on two connections, so that the database does both at the same time; where writers take turns, there are two finish
loops, whose transactions claim as well. What other processes tell of is claimed by the thread that hears of it. These are the
only places that claim, and that write outcomes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import datetime
from enum import Enum
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from queue_core.claiming.claimer import Claimer
from queue_core.claiming.hint_listener import Wakeup
from queue_core.claiming.hint_sender import Hints
from queue_core.claiming.parked_lane import ParkedLane
from queue_core.cluster import process_nodes
from queue_core.cluster.node import Node
from queue_core.cluster.redispatch import recover
from queue_core.errors import LifecycleError
from queue_core.finishing.finisher import Finisher
from queue_core.holding.announced_commits import AnnouncedCommits
from queue_core.holding.hand_over import HandOver
from queue_core.holding.holdings import Holdings
from queue_core.holding.ledger import Ledger
from queue_core.holding.sweep import Sweep
from queue_core.metrics import Metrics, Reading
from queue_core.model.entry import ANY_NODE, Entry
from queue_core.model.outcome import Outcome
from queue_core.running.dispatcher import Dispatcher
from queue_core.running.exactly_once import ExactlyOnce
from queue_core.running.subscriber import Router
from queue_core.running.watchdog import Watchdog
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
    """See the module. `router` knows the handlers."""

    def __init__(self, store: Store, router: Router, metrics: Metrics) -> None:
        self.store = store
        self.config = store.config
        self.clock = store.clock
        self.metrics = metrics
        self.phase = Phase.INITIALISED
        self.holdings = Holdings(store)
        self._router = router
        self._loop = Loop(f"{self.config.table}-claim", self.claim_turn, self.clock)
        self.claimer = Claimer(
            self.holdings,
            metrics,
            submit=self._submit,
            wake=self._loop.wake,
            unsure=self._sweep_soon,
        )
        self.finisher = Finisher(self.holdings, metrics, self.claimer, call=self._call)
        self.hand_over = HandOver(
            self.holdings,
            submit=self._submit,
            room=self.claimer.room,
            wake=self._loop.wake,
            look=self._look_at_all,
        )
        self._announced = AnnouncedCommits(self.holdings, self.hand_over, claim=self.claimer.wake)
        self._sweep = Sweep(self.holdings, self._announced)
        self._parked = ParkedLane(
            self.holdings, router, brought=self.claimer.wake, failed=self.finisher.failed
        )
        self._watchdog = Watchdog(self.config, self.finisher.complete)
        self.dispatcher = self._new_dispatcher()
        self._former: list[Dispatcher] = []
        """Pools of former starts, some of whose handlers may still run."""
        self._outliving: frozenset[tuple[int, int]] = frozenset()
        """Claims whose handlers ran on when this left its node, or whose outcomes were unwritten then."""
        self._late = self._new_late()
        self.hints = Hints(store)
        self.wakeup = Wakeup(store, wake=self.claimer.wake, hint=self.hear, owner=lambda: self.name)
        self._next_turn_at = math.inf
        """When the claim loop takes its next turn by itself; inf in a turn, after one that it missed, and before the first."""

    def _new_dispatcher(self) -> Dispatcher:
        return Dispatcher(
            self.config,
            self.clock,
            self.store.codecs,
            self._router,
            complete=self.finisher.complete,
            leases=self.holdings,
            waits=self.claimer,
            exactly_once=ExactlyOnce(self.store, lambda: self.name),
        )

    def _new_late(self) -> Loop:
        return Loop(f"{self.config.table}-late", self._late_turn, self.clock)

    # Each start has a pool of its own.
    def _submit(self, entries: Sequence[Entry], lease: int, taken: list[None] | None = None) -> None:
        self.dispatcher.submit(entries, lease, taken)

    def _sweep_soon(self) -> None:
        self._sweep.soon()

    def _look_at_all(self) -> None:
        self._sweep.soon()
        self.claimer.look()

    def _call(self, hook: Callable[[], None]) -> None:
        self.dispatcher.call(hook)

    # -- life ---------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Join the cluster and start the loops. Raises NodeNameTakenError, LifecycleError, ForkedError."""
        self.store.check_process()
        if self.phase in {Phase.RUNNING, Phase.STOPPING}:
            raise LifecycleError(
                f"{self.config.table}: it is {self.phase.value} already; stop it before the next start."
            )
        self._late.stop()  # the finish loops write what is left to it
        self.finisher.writer = self.finisher.loops[0]
        self._former = [pool for pool in [*self._former, self.dispatcher] if pool.running()]
        self.dispatcher = self._new_dispatcher()
        self.store.database.open_ahead()
        self.join()
        self.phase = Phase.RUNNING
        try:
            self.dispatcher.start()
            for loop in (self._loop, *self.finisher.loops):
                loop.start()
            self.wakeup.start()
        except BaseException:  # no thread more, mostly
            self.stop()
            raise
        self.claimer.wake()  # for what came since it last ran

    def join(self, make: process_nodes.MakeNode = Node) -> None:
        """Take part in the cluster without loops of its own (what `start` does first, and the test kit alone)."""
        node = process_nodes.join(self, self.config, make)
        self.claimer.forget(self._in_hand())
        try:
            recovered = recover(
                self.store,
                node.name,
                self.failed,
                crashed=node.follows_crash,
                besides=node.outliving(self.config.table),
            )
        except BaseException:
            process_nodes.leave(node, self)  # else its lane would have a live node that runs nothing
            raise
        if recovered:
            log.warning("entries_recovered", node=node.name, table=self.config.table, entries=recovered)
        process_nodes.forget(self)  # the ledger holds what outlived the last stop
        # Only from here on are events born claimed: recovery would take them for those of a crash.
        self.holdings.name, self.holdings.node, self.holdings.stopping = node.name, node, False
        self.look_at_parked()

    def stop(self, timeout_seconds: float | None = None) -> bool:
        """Stop claiming, let handlers finish, write all outcomes, give back the rest, and end the lease.

        `timeout_seconds` (default: `shutdown_timeout_seconds`) bounds the wait for handlers and, with what is left of it but
        a second at least, the giving back; and once more the wait for `on_failed` functions that are called last. Coroutines that still run then are cancelled, which is no failure.
        False if handlers still ran then, or if the database was away. Their outcomes are written when they end, also after
        another start, which runs none of it beside them; other nodes take their entries when the node's lease has ended.
        """
        if self.phase is not Phase.RUNNING or self.store.forked:
            return True
        limit = self.config.shutdown_timeout_seconds if timeout_seconds is None else timeout_seconds
        deadline = self.clock.monotonic() + limit
        dispatcher = self.dispatcher  # once it is STOPPED, a start may make a new one
        self.phase, self.holdings.stopping = Phase.STOPPING, True
        self.wakeup.stop()
        self._loop.stop()
        ended = dispatcher.stop(limit)
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
            # The rows still say that this node runs them: whoever reaps it, or takes its name, finds them there.
            log.exception("outcomes_unwritten", table=self.config.table)
            ended = False
        finally:
            if self._outliving:
                self._late = self.finisher.writer = self._new_late()
                self._late.start()
            self.phase = Phase.STOPPED
            self.hints.stop()
            dispatcher.take_left(limit)  # hooks of what has failed since the pool ended
        return ended

    def leave(self, seconds: float = math.inf) -> None:
        """Write what is unwritten, give back what has not run, and leave the cluster.

        What can't be given back in so many `seconds` is for the reapers of others, when the lease has ended.
        """
        node = self.node
        if node is None:
            return
        self.holdings.stopping = True
        try:
            self.finisher.write_all()
            in_hand = self._in_hand()
            # From the table, for it knows of the callers' commits too that nobody has looked up yet.
            if self.holdings.release(
                [claim for claim in self.holdings.standing() if claim not in in_hand], seconds
            ):
                self.hints.tell()
        finally:
            self.holdings.node = (
                None  # first: what is posted from here on is for other nodes, whatever fails below
            )
            self._outliving = frozenset(self._in_hand())
            self.ledger.keep(self._outliving)
            process_nodes.leave(node, self)

    def _in_hand(self) -> set[tuple[int, int]]:
        """Claims of what runs, in pools of former starts too, and of what has ended unwritten; while no outcome is written."""
        # In this order: a pool lets go of a run when its outcome is with the finisher.
        running = [entry for pool in [*self._former, self.dispatcher] for entry in pool.running()]
        return {entry.claim for entry in [*running, *self.finisher.unwritten]}

    def _late_turn(self) -> float:
        """After a stop: write the outcomes of handlers that outlive it. One turn; returns seconds until the next."""
        try:
            self.finisher.write_all()
        except SQLAlchemyError:
            if not self.store.database.closed:
                raise
            log.exception("outcomes_unwritten", table=self.config.table)
            self.ledger.keep(())  # nobody waits for it: other nodes, or the next start, take what is left
        self.dispatcher.take_left(0.0)  # hooks of what has failed
        if not self.outliving():
            process_nodes.forget(self)
            self._late.stop()
        return 60.0

    # -- what others ask ----------------------------------------------------------------------------------------

    @property
    def node(self) -> Node | None:
        """The node whose member this is; None if it takes no part in the cluster."""
        return self.holdings.node

    @property
    def name(self) -> str:
        """The node's name, or the last one's; empty before the first start."""
        return self.holdings.name

    @property
    def ledger(self) -> Ledger:
        """What this process holds."""
        return self.holdings.ledger

    @property
    def running(self) -> bool:
        """See `Holdings.running`."""
        return self.holdings.running

    def describe(self) -> dict[str, Any]:
        """See `node.Member`."""
        return {"table": self.config.table, "mode": self.config.mode.value, **self._router.describe()}

    def reading(self) -> Reading:
        """What a scrape of the metrics shows of this process."""
        node = self.node
        return Reading(
            in_flight=len(self.ledger),
            lease_left_seconds=node.lease.left_seconds if node is not None else 0.0,
            skew_seconds=node.skew_seconds if node is not None else 0.0,
        )

    def outliving(self) -> list[int]:
        """See `node.Member`."""
        held = set(self.ledger.held())
        return sorted(record_id for record_id, _ in self._outliving & held)

    def lease_lost(self) -> None:
        """See `node.Member`. What has not started comes back as Released from the pool, by `may_start`."""
        self.metrics.lease_lost()

    def reaped(self, queue_names: Sequence[str]) -> None:
        """See `node.Member`."""
        self.metrics.reaped(queue_names)
        self.claimer.wake()
        self.hints.tell()

    def failed(self, entries: Sequence[Entry]) -> None:
        """See `node.Member`."""
        for entry in entries:
            self.finisher.failed(entry, entry.last_error or "")

    def look_at_parked(self) -> None:
        """Handlers were added: look at all that is parked."""
        self._parked.look_at_all()
        self._loop.wake()

    # -- turns --------------------------------------------------------------------------------------------------

    def claim_turn(self) -> float:
        """Hand over what is due, as far as there is room. One turn; returns seconds until the next."""
        self._next_turn_at = math.inf  # first: who claims now wakes this loop at its end
        with self.holdings.gates.claiming() as may_claim:
            if not self.running or not may_claim:
                return self.config.poll_interval_seconds
            self.claimer.in_turn()
            pause = self._claim_turn()
            self._next_turn_at = self.clock.monotonic() + pause
            return pause

    def hear(self, lane: str) -> None:
        """Another process has committed entries in `lane`: claim them in this thread, rather than wake the claim loop.

        On a machine that has just woken up, each change of threads takes as long as a tenth of a claim.
        """
        self.claimer.hint(lane)
        pause = 0.0
        try:
            # Else the loop, which does more than claim, would never have its turn while hints keep coming.
            if self.clock.monotonic() < self._next_turn_at < math.inf:
                with self.holdings.gates.claiming() as may_claim:
                    if may_claim and self.running:
                        self.claimer.claim_known()
                        pause = self.claimer.pause()
        except SQLAlchemyError:
            pass  # the loop meets the error too, and knows how long to wait
        finally:
            if self.clock.monotonic() + pause < self._next_turn_at:
                self._loop.wake()

    def _claim_turn(self) -> float:
        if self._announced.look_up():
            self._sweep.soon()
        self.claimer.load_waiting()
        now = self.clock.monotonic()
        self.claimer.claim_due()
        if self._sweep.turn(now):
            self.claimer.wake()
        self._parked.turn(now, due=self.claimer.finds_parked)
        self._watchdog.turn(now, self.dispatcher)
        pause, look = self.claimer.pause(), self._announced.next_look()
        return pause if look is None else max(0.0, min(pause, look - self.clock.monotonic()))

    def run_due(self) -> list[Outcome]:
        """Run what is due now in the caller's thread, write the outcomes and return them; empty if nothing was due.

        One round, between `join` and `leave`, without `start`: what becomes due by it is left to the next.
        """
        self.claimer.look()
        self.claim_turn()
        self.dispatcher.run_submitted()
        outcomes = self.finisher.write_all()
        self.dispatcher.run_submitted()  # the hooks of what has ended FAILED
        return outcomes

    # -- posts --------------------------------------------------------------------------------------------------

    def announce(self, ids: list[int]) -> None:
        """A transaction that inserted `ids` (none: entries to be claimed) has ended, or is about to."""
        self._announced.add(ids)
        self._loop.wake()

    def rescheduled(self, date: datetime, given: Any) -> None:
        """The date of an entry was changed, in the caller's transaction if one is given: all nodes may be concerned."""
        if given is None:
            self.hints.tell()
            self.claimer.expect(date)
            return
        borrowed = self.store.borrow(given)
        self.store.inside_borrowed(
            borrowed, self.config.table, lambda _: self.hints.tell_inside(borrowed, ANY_NODE)
        )

        def ended() -> None:
            if date <= self.clock.now():
                self.announce([])
            else:
                self.claimer.expect(date)

        if borrowed.announces:
            borrowed.when_ended(ended)
        else:
            self.claimer.expect(date)
