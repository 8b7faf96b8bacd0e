"""Writes the outcomes of runs.

A turn writes those that have gathered since the last turn, in one transaction.

While the database works, outcomes gather: batches grow with the load by themselves, and an idle
system writes one by one. Outcomes are kept until they are written; a batch whose COMMIT gave no
answer is written again, and an outcome that turns out to be recorded counts as written.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import partial

from sqlalchemy.exc import DataError, IntegrityError

from queue_core.claiming.claimer import Claimer
from queue_core.claiming.hint_sender import HintSender
from queue_core.errors import HistoryConflictError
from queue_core.finishing.feeds import Feeds
from queue_core.finishing.parked_log import ParkedLog
from queue_core.finishing.processed_log import tell_processed, tells_each
from queue_core.finishing.unwritten_outcomes import UnwrittenOutcomes, one_each
from queue_core.holding.holdings import Holdings, claims_of
from queue_core.metrics import Metrics
from queue_core.model.entry import Entry
from queue_core.model.outcome import (
    ENDED,
    Finished,
    Lost,
    Outcome,
    Parked,
    Released,
    Retried,
    SetAside,
    seconds_of,
)
from queue_core.model.states import State
from queue_core.running.failed_hooks import FailedHooks
from queue_core.runtime.clock import SystemClock
from queue_core.runtime.log import get_logger
from queue_core.runtime.loop import Loop
from queue_core.runtime.signal import Signal
from queue_core.storage.moves import Written
from queue_core.storage.places import Claimed
from queue_core.storage.return_to_lane import ReturnToLane
from sql.database import COMMITTED
from sql.statements.claims import Claim

log = get_logger(__name__)
_machine = SystemClock()

GATHERED = 20
"""Outcomes that are written at once; fewer wait for others while the last turn is fresh."""
GATHER_TURNS, GATHER_SECONDS = 3.0, 0.01
"""The longest wait: this many times the last turn's duration, and no more than these seconds.

Posts have the database meanwhile.
"""
IDLE_SECONDS = 60.0
"""The pause of a loop that has no outcomes; the next one wakes it."""

_OF_ONE = (
    *(DataError, IntegrityError, HistoryConflictError),
    *(ValueError, TypeError, OverflowError),
)
"""Errors of the database or of encoding that are about an outcome itself.

Another try would meet them again.
"""


class Finisher:
    """Keeps the outcomes of runs until a turn has written them, in batches.

    `claimer` is told of entries that run again, and that less is held.
    """

    def __init__(
        self,
        holdings: Holdings,
        metrics: Metrics,
        claimer: Claimer,
        failed_hooks: FailedHooks,
        *,
        hints: HintSender,
    ) -> None:
        self._holdings = holdings
        self.metrics = metrics
        self._claimer = claimer
        self._hints = hints
        self._failed_hooks = failed_hooks
        self.feeds = Feeds()
        self._outcomes = UnwrittenOutcomes()
        self._parked_log = ParkedLog(holdings.config.table, holdings.clock)
        self._writing = set[int]()
        """The threads of the loops that are in a turn."""
        self._gathered = Signal()
        self._next_turn = 0.0
        self.writer: Loop
        """The loop that is woken for outcomes.

        It is the first of `loops`, or after a stop the one that writes late outcomes.
        """
        # With one writer at a time, two: the database has one's statement while Python has the
        # other.
        names = (
            ["finish", "finish-2"]
            if holdings.store.database.dialect.capabilities.one_writer
            else ["finish"]
        )
        self.loops = [
            Loop(f"{holdings.config.table}-{name}", self.turn_in_time, holdings.clock)
            for name in names
        ]
        self.writer = self.loops[0]

    @property
    def unwritten(self) -> list[Entry]:
        """The entries whose outcomes are to be written; while no loop is in a turn."""
        return self._outcomes.entries()

    def complete(self, outcome: Outcome) -> None:
        """Write `outcome`, soon."""
        self._outcomes.add(outcome)
        self.writer.wake()
        if len(self._outcomes) >= GATHERED:
            self._gathered.set()
            self.loops[-1].wake()

    def write_all(self) -> list[Outcome]:
        """Write the present outcomes in the caller's thread, and return them."""
        written = list[Outcome]()
        while batch := self._turn(claim=False):
            written += batch
        self._parked_log.tell(now=True)
        return written

    def turn_in_time(self) -> float:
        """Take a turn, but let outcomes gather for a while after one that wrote few.

        Each turn is a commit.
        """
        if len(self._outcomes) < GATHERED:
            if self._writing:
                return IDLE_SECONDS  # for the other loop, which goes on when it has written
            # In real time: this is about the load of machines, which no manual clock moves.
            if (pause := self._next_turn - _machine.monotonic()) > 0:
                _machine.wait(self._gathered, pause)
        began = _machine.monotonic()
        self._writing.add(threading.get_ident())
        try:
            pause = self.turn()
        finally:
            self._writing.discard(threading.get_ident())
        ended = _machine.monotonic()
        self._next_turn = ended + min(GATHER_TURNS * (ended - began), GATHER_SECONDS)
        return 0.0 if self._outcomes else pause  # a woken thread left them to this turn

    def turn(self) -> float:
        """Write the outcomes that have gathered. One turn; returns seconds until the next."""
        written = self._turn(claim=True)
        # After several, others are likely to follow: the loop gathers them without being woken.
        if len(written) > 1 or self._outcomes:
            return 0.0
        return min(IDLE_SECONDS, self._parked_log.tell())

    def _turn(self, *, claim: bool) -> list[Outcome]:
        if not self._outcomes:
            return []
        with self._outcomes.dequeued() as taken:
            batch = one_each(taken)
            if not batch:  # the other loop has them
                return []
            written = taken.copy()
            write = partial(self._write_batch, batch, taken)
            if claim:
                self._claimer.claim_along([one.entry.record_id for one in batch], write)
            else:
                write(None)
        self._claimer.freed()
        return written

    def _write_batch(
        self, batch: Sequence[Outcome], taken: list[Outcome], claim: Claim | None
    ) -> Claimed | None:
        """Write a batch, with a `claim` in its transaction; the entries that it claimed, if any.

        `taken`, from which the batch was made, is empty once that can't be written again.
        """
        with self.metrics.statement("finish"):
            (lost, claimed), unwritable = self._write_by_kind(batch, claim)
        # Outcomes that can't be written keep their entries held: given back these would run again
        # and again.
        ended = _besides(batch, unwritable)
        self._holdings.ledger.give_up(claims_of([one.entry for one in ended]))
        if any(isinstance(one, Lost) for one in ended):
            self._holdings.doubt()
        taken.clear()
        self._tell_written(ended, lost)
        return claimed

    def _write_by_kind(
        self, batch: Sequence[Outcome], claim: Claim | None
    ) -> tuple[Written, set[int]]:
        """The written outcomes, and the ids of entries whose outcome the database refuses."""
        holdings = self._holdings
        finished = [outcome for outcome in batch if isinstance(outcome, Finished)]
        others = batch if len(finished) < len(batch) else ()
        returns = [
            ReturnToLane(holdings.store, holdings.name, holdings.return_lane, outcome)
            for outcome in others
            if isinstance(outcome, Retried)
            or (isinstance(outcome, SetAside) and outcome.progress is not None)
        ]
        released = [outcome.entry for outcome in others if isinstance(outcome, Released)]
        parked = [outcome.entry for outcome in others if isinstance(outcome, Parked)]
        answer = (
            self._record(finished, returns, claim)
            if finished or returns
            else (Written(set(), None), set[int]())
        )
        if released:
            holdings.release(claims_of(released))
        if parked:
            holdings.park(claims_of(parked))
            self._parked_log.tell(len(parked))
        unchanged = [one for one in others if isinstance(one, SetAside) and one.progress is None]
        for lane in {one.lane for one in unchanged}:
            holdings.set_aside(lane, [one.entry.claim for one in unchanged if one.lane == lane])
        return answer

    def _record(
        self,
        finished: Sequence[Finished],
        returns: Sequence[ReturnToLane],
        claim: Claim | None = None,
    ) -> tuple[Written, set[int]]:
        holdings = self._holdings
        try:
            return holdings.moves.record(holdings.name, finished, returns, claim), set()
        except _OF_ONE as error:
            if COMMITTED in getattr(error, "__notes__", ()):
                raise  # the next try finds them written
            if claim is None and len(finished) + len(returns) == 1:
                record_id = finished[0].entry.record_id if finished else returns[0].record_id
                log.exception(
                    "outcome_unwritable", record_id=record_id, table=holdings.config.table
                )
                return Written(set(), None), {record_id}
        if claim is not None:
            holdings.doubt()  # of several transactions, that of the claim may have been committed
        # One of them spoils the batch: each by itself.
        parts = [self._record([one], []) for one in finished]
        parts += [self._record([], [one]) for one in returns]
        lost = set[int]().union(*(written.lost for written, _ in parts))
        return Written(lost, None), set[int]().union(*(refused for _, refused in parts))

    def _tell_written(self, batch: Sequence[Outcome], lost: set[int]) -> None:
        holdings = self._holdings
        # An entry that did not run says nothing of this node's pace.
        ran = [one for one in batch if not isinstance(one, (Parked, SetAside, Released))]
        holdings.pace.ended(len(ran), seconds_of(ran))
        for record_id in lost:
            log.warning(
                "claim_lost", record_id=record_id, node=holdings.name, table=holdings.config.table
            )
        self.metrics.finished(batch, lost)
        if self.feeds:
            self.feeds.tell(batch, lost)
        concern = holdings.store.links.concern
        if [
            outcome
            for outcome in batch
            if outcome.entry.headers is not None and concern(outcome.entry.headers)
        ]:
            # Their ends may have let others start, here or elsewhere.
            self._claimer.wake()
            self._hints.tell()
        now, tells_all = holdings.clock.now(), tells_each()
        for outcome in batch:
            if tells_all or outcome.entry.error_count:
                tell_processed(outcome, lost, now)
            if isinstance(outcome, Retried):
                # At `at`, or at another date if it waits for a circuit: then a look tells.
                self._claimer.expect(now if outcome.opens else max(now, outcome.at))
            elif (
                isinstance(outcome, ENDED)
                and outcome.state is State.FAILED
                and outcome.entry.record_id not in lost
            ):
                self._failed_hooks.tell(
                    outcome.entry, outcome.last_error or "", outcome.error_count
                )


def _besides(batch: Sequence[Outcome], ids: set[int]) -> list[Outcome]:
    return [outcome for outcome in batch if outcome.entry.record_id not in ids] if ids else [*batch]
