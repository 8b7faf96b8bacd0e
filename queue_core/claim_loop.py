"""The claim loop: its turns look after all that a node comes by or has set aside."""

from __future__ import annotations

import math

from sqlalchemy.exc import SQLAlchemyError

from queue_core.claiming.backlog_watch import BacklogWatch
from queue_core.claiming.claimer import Claimer
from queue_core.claiming.limited_keys import LimitedKeys
from queue_core.claiming.limited_lanes import LimitedLanes
from queue_core.claiming.parked_lane import ParkedLane
from queue_core.claiming.paused_lanes import PausedLanes
from queue_core.claiming.repeated_look import RepeatedLook
from queue_core.holding.holdings import Holdings
from queue_core.holding.sweep import Sweep
from queue_core.model.lanes import ANY_NODE, Lane
from queue_core.posting.announced_commits import AnnouncedCommits
from queue_core.posting.commit_rate import GATHER_SECONDS
from queue_core.running.pools import Pools
from queue_core.running.watchdog import Watchdog
from queue_core.runtime.clock import SystemClock
from queue_core.runtime.loop import Loop
from queue_core.runtime.signal import Signal

_machine = SystemClock()


class ClaimLoop:
    """One thread of one bus or service.

    Other threads may take a part of its turn when they have heard of entries.
    """

    def __init__(
        self,
        holdings: Holdings,
        claimer: Claimer,
        announced: AnnouncedCommits,
        *,
        ordered: RepeatedLook,
        linked: RepeatedLook,
        parked: ParkedLane,
        paused: PausedLanes,
        limited: LimitedLanes,
        limited_keys: LimitedKeys,
        pools: Pools,
        watchdog: Watchdog,
        backlog: BacklogWatch,
        awake: Signal,
    ) -> None:
        self._holdings = holdings
        self._clock = holdings.clock
        self._claimer = claimer
        self.announced = announced
        self.sweep = Sweep(holdings, announced)
        self._ordered = ordered
        self._linked = linked
        self._parked = parked
        self.paused = paused
        self._limited = limited
        self._limited_keys = limited_keys
        self._pools = pools
        self._watchdog = watchdog
        self._backlog = backlog
        self.awake = awake
        self._loop = Loop(
            f"{holdings.config.table}-claim", self.turn_in_time, self._clock, signal=awake
        )
        self._next_turn_at = math.inf
        """Monotonic time of the next scheduled turn.

        Infinity while a turn runs, after one that found the gate closed, and before the first.
        """

    def start(self) -> None:
        """Start the thread."""
        self._loop.start()

    def stop(self) -> None:
        """Let the turn end and the thread with it."""
        self._loop.stop()

    def turn_in_time(self) -> float:
        """Take a turn, and let commits gather for a while if callers' transactions end quickly.

        Whatever else wakes the loop ends that while.
        """
        announced, gathered = self.announced, self.announced.gathering
        pause = self.turn()
        now = _machine.monotonic()
        announced.gathering = announced.rate.is_high(now)
        if announced.gathering:
            if not _machine.wait(self.awake, min(pause, GATHER_SECONDS)):
                announced.rate.gathered(now)
            return 0.0
        # Some may have been announced during the turn, and have left the next look to the loop.
        return 0.0 if gathered else pause

    def turn(self) -> float:
        """Hand over due entries, as far as there is room.

        One turn; returns seconds until the next.
        """
        holdings = self._holdings
        self._next_turn_at = math.inf  # first: a claim from here on wakes this loop at its end
        with holdings.gates.claiming() as may_claim:
            if not holdings.running or not may_claim:
                return holdings.config.poll_interval_seconds
            self._claimer.in_turn()
            pause = self._look_after_all()
            self._next_turn_at = self._clock.monotonic() + pause
            return pause

    def wake(self, since: float) -> None:
        """See `Claimer.wake`."""
        self._claimer.wake(since)

    def hear(self, payload: str) -> None:
        """Claim entries that another process has committed in a lane of this node's.

        In this thread: to wake the loop would take longer.

        On a machine that has just woken up, each change of threads takes as long as a tenth of a
        claim.
        """
        if payload not in {ANY_NODE, self._holdings.own_lane}:
            return
        self._claimer.hint(Lane(payload))
        pause = 0.0
        try:
            # Else the loop, which does more than claim, would never have its turn while hints keep
            # coming.
            if self._clock.monotonic() < self._next_turn_at < math.inf:
                with self._holdings.gates.claiming() as may_claim:
                    if may_claim and self._holdings.running:
                        self._claimer.claim_known()
                        pause = self._claimer.pause()
        except SQLAlchemyError:
            pass  # the loop meets the error too, and knows how long to wait
        finally:
            if self._clock.monotonic() + pause < self._next_turn_at:
                self.awake.set()

    def _look_after_all(self) -> float:
        now = self._clock.monotonic()
        self.paused.turn(now)
        self._limited.turn(now)
        self._limited_keys.turn(self._clock.monotonic())
        self.announced.look_up()
        self._ordered.turn(self._clock.monotonic())
        self._linked.turn(self._clock.monotonic())
        self._claimer.load_waiting()
        now = self._clock.monotonic()
        self._claimer.claim_due()
        if self.sweep.turn(now):
            self._claimer.wake()
        self._parked.turn(now)
        self._watchdog.turn(now, self._pools.current.runner)
        self._backlog.turn(now)
        looks = [
            self.paused.next_look,
            self._limited.next_look,
            self._limited_keys.next_look,
            self._ordered.next_look,
            self._linked.next_look,
        ]
        if (look := self.announced.next_look()) is not None:
            looks.append(look)
        return max(0.0, min(self._claimer.pause(), min(looks) - self._clock.monotonic()))
