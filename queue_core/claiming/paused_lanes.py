"""The lanes of paused entries, and the look at the pauses.

An entry of a paused queue or handler is claimed once and set aside in the lane of the pause, where
it costs nothing. Each node looks once a second which pauses there are and which of these lanes hold
entries. A lane without a pause is emptied, whoever has filled it, and when: a node that hears of
the end of a pause later than others may still set entries aside. So it is with the lanes of open
circuits, which look like those of pauses.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

from sqlalchemy import Row

from queue_core.claiming.aside_look import LOOK_SECONDS, AsideLook
from queue_core.claiming.claimer import Claimer
from queue_core.claiming.newest_read import NewestRead
from queue_core.claiming.set_aside import bring_back
from queue_core.holding.holdings import Holdings
from queue_core.model.lanes import RETURNING, Lane
from queue_core.model.pause import Pause
from queue_core.running.pauses_in_force import PausesInForce
from queue_core.runtime.log import get_logger
from queue_core.storage.pauses import StoredPauses

log = get_logger(__name__)


class PausedLanes:
    """The pauses and their entries, as one node sees them."""

    def __init__(
        self, holdings: Holdings, pauses: PausesInForce, claimer: Claimer, asides: AsideLook
    ) -> None:
        self._holdings = holdings
        self._asides = asides
        self._stored = StoredPauses(holdings.store)
        self.pauses = pauses
        self._claimer = claimer
        self._at = 0.0
        self._newest = NewestRead()
        self._circuits = dict[Lane, Row[Any]]()
        """The open circuits for which entries wait, by the last look."""
        self._found = False
        """Whether the last look has found that a pause has ended, or entries of one."""

    @property
    def next_look(self) -> float:
        """Monotonic time of the next look."""
        return self._at

    def look(self) -> None:
        """Learn in this thread which pauses there are; the claim loop's next turn brings back."""
        read = self._newest.begin()
        pauses = self._holdings.store.database.fetch(self._stored.all)
        self._newest.learn(read, partial(self._learn, pauses))
        self._at = 0.0
        self._claimer.turn_soon()

    def turn(self, now: float) -> None:
        """If it is time to: look, and bring back a page of each lane whose pause has ended."""
        self._asides.begin()
        if now < self._at:
            return
        read = self._newest.begin()
        known = self.pauses.known or self._circuits or self._found
        if not known and self._asides.finds_nothing():
            if self._newest.learn(read):
                self._at = now + LOOK_SECONDS
            return
        pauses, lanes = self._holdings.store.database.fetch(self._stored.all_and_lanes)
        if not self._newest.learn(read, partial(self._learn, pauses)):
            return  # and again in the next turn
        ended = {lane for lane in lanes if not self.pauses.holds(lane)}
        if self._chooses_probes():
            ended.add(RETURNING)
        self._learn_circuits(self._open_circuits() if ended else {})
        ended -= self._circuits.keys()
        more = bring_back(self._holdings, sorted(ended))
        if self._newest.is_newest(read):
            self._at = 0.0 if more else now + LOOK_SECONDS
        # Once more after the last: other nodes bring back entries to this one, too. Noted first: an
        # end that another thread hears of from here on is for the next turn.
        again = bool(ended)
        found, self._found = self._found, again
        if again or found:
            self._claimer.wake()

    def _learn(self, pauses: list[Pause]) -> None:
        before = self.pauses.known
        self.pauses.learn(pauses)
        self._found = self._found or bool(before.keys() - self.pauses.known.keys())
        for lane in before.keys() ^ self.pauses.known.keys():
            pause = before.get(lane) or self.pauses.known[lane]
            log.info(
                "resumed" if lane in before else "paused",
                table=pause.table,
                queue_name=pause.queue_name,
                subscriber=pause.handler,
                order_key=pause.order_key,
                by=pause.paused_by,
            )

    def _chooses_probes(self) -> bool:
        """Give each open circuit a probe that has none, or close it; whether there was any."""
        store = self._holdings.store
        lacking = bool(store.database.fetch(store.circuits.without_probe))
        if lacking:
            store.database.write(store.circuits.choose_others)
        return lacking

    def _open_circuits(self) -> dict[Lane, Row[Any]]:
        store = self._holdings.store
        circuits = store.database.fetch(store.circuits.all)
        return {Lane(circuit.lane): circuit for circuit in circuits}

    def _learn_circuits(self, found: dict[Lane, Row[Any]]) -> None:
        before, self._circuits = self._circuits, found
        for lane in before.keys() ^ found.keys():
            circuit = before.get(lane) or found[lane]
            log.log(
                logging.WARNING if lane in found else logging.INFO,
                "circuit_open" if lane in found else "circuit_closed",
                table=circuit.table_name,
                queue_name=circuit.queue_name,
                subscriber=circuit.handler,
                since=circuit.since.isoformat(),
            )
