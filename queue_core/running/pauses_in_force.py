"""The pauses that this node obeys: those that its last look at the table has found."""

from __future__ import annotations

from collections.abc import Iterable

from queue_core.links.links import carries
from queue_core.links.ordering import KEY_MARK, order_key_of
from queue_core.model.entry import Entry
from queue_core.model.lanes import Lane, paused_lane
from queue_core.model.pause import Pause, is_in_force
from queue_core.running.run import Run
from queue_core.runtime.clock import Clock


class PausesInForce:
    """The present pauses of queues, handlers and keys. Any thread asks; the claim loop tells."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.known: dict[Lane, Pause] = {}
        """By lane; empty, as mostly, if nothing is paused. Some may have ended."""

    def learn(self, pauses: Iterable[Pause]) -> None:
        """These are the pauses now."""
        now = self._clock.now()
        self.known = {pause.lane: pause for pause in pauses if is_in_force(pause, now)}

    def holds(self, lane: Lane) -> bool:
        """Whether the entries of this lane still wait."""
        pause = self.known.get(lane)
        return pause is not None and is_in_force(pause, self._clock.now())

    def lane_of(self, queue_name: str, handler: str | None = None) -> Lane | None:
        """The lane in which an entry of a paused queue or handler waits; None if neither is."""
        if not self.known:
            return None
        lane = paused_lane(queue_name, handler)
        return lane if self.holds(lane) else None

    def lane_of_entry(self, entry: Entry) -> Lane | None:
        """The lane in which an entry of a paused queue or order key waits; None if neither is."""
        lane = self.lane_of(entry.queue_name)
        if lane is None and carries(entry.headers, KEY_MARK):
            of_key = paused_lane(entry.queue_name, order_key=order_key_of(entry.headers))
            lane = of_key if self.holds(of_key) else None
        return lane

    def stops(self, run: Run) -> bool:
        """Whether the next subscriber of a run may not start."""
        paused = self.lane_of_entry(run.entry)
        return (paused or self.lane_of(run.entry.queue_name, run.pending[0].name)) is not None

    def hold_back(self, run: Run) -> None:
        """Leave the paused subscribers of a run to another run."""
        lanes = [self.lane_of(run.entry.queue_name, one.name) for one in run.pending]
        run.paused_in = next((lane for lane in lanes if lane is not None), None)
        run.pending = [one for one, lane in zip(run.pending, lanes, strict=True) if lane is None]
