"""Writes the outcomes of runs.

A turn writes those that have gathered since the last turn, in one transaction.

While the database works, outcomes gather: batches grow with the load by themselves, and an idle
system writes one by one. Outcomes are kept until they are written; a batch whose COMMIT gave no
answer is written again, and what turns out to have been recorded already counts as written.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from sqlalchemy.exc import DataError

from queue_core.claiming.claimer import Claimer
from queue_core.claiming.hint_sender import HintSender
from queue_core.errors import HistoryConflictError
from queue_core.finishing.feeds import Feeds
from queue_core.holding.holdings import Holdings, claims_of
from queue_core.metrics import Metrics
from queue_core.model.entry import Entry, State
from queue_core.model.outcome import ENDED, Finished, Outcome, Parked, Paused, Released, Retried
from queue_core.running.failures import Failures
from queue_core.runtime.clock import SystemClock
from queue_core.runtime.lock import Lock
from queue_core.runtime.log import get_logger
from queue_core.runtime.loop import Loop
from queue_core.runtime.signal import Signal
from queue_core.storage.effects import Effect, Wait
from queue_core.storage.moves import Written
from sql.database import COMMITTED
from sql.statements.claims import Claim

log = get_logger(__name__)
_standard_log = logging.getLogger(__name__)
"""The same log. The other makes an object whenever it is asked for anything."""
_machine = SystemClock()

BATCH = 1_000
BATCH_CHARACTERS = 1_000_000
"""Characters of error messages from which a batch takes no more outcomes.

Escaped, they must fit a packet of MySQL (16 MB).
"""
GATHERED = 20
"""Outcomes that are written at once; fewer wait for others while the last turn is fresh."""
GATHER_TURNS, GATHER_SECONDS = 3.0, 0.01
"""How long they wait at most: so many times the last turn's duration.

Posts have the database meanwhile.
"""
IDLE_SECONDS = 60.0
PARKED_LOG_SECONDS = 1.0
"""The shortest time between two log lines about parked entries.

While a deployment is incomplete, each batch has some.
"""

_OF_ONE = (DataError, HistoryConflictError, ValueError, TypeError, OverflowError)
"""Errors of the database or of encoding that are about an outcome itself.

Another try would meet them again.
"""


class Finisher:
    """Keeps the outcomes of runs until a turn has written them, in batches.

    `claimer` is told what runs again, and that less is held.
    """

    def __init__(
        self,
        holdings: Holdings,
        metrics: Metrics,
        claimer: Claimer,
        failures: Failures,
        *,
        hints: HintSender,
    ) -> None:
        self._holdings = holdings
        self.metrics = metrics
        self._claimer = claimer
        self._hints = hints
        self._failures = failures
        self.feeds = Feeds()
        self._outcomes = deque[Outcome]()
        self._writing = set[int]()
        """The threads of the loops that are in a turn."""
        self._gathered = Signal()
        self._next_turn = 0.0
        self._queue_lock = Lock()
        """Held while outcomes leave their queue, or come back to its beginning.

        The two loops do so at the same time.
        """
        self._telling = Lock()
        self._untold, self._tell_at = 0, 0.0
        """Parked entries that the log does not tell of yet, and when it does."""
        self.writer: Loop
        """The loop that is woken for outcomes.

        It is the first of `loops`, or after a stop the one that writes late outcomes.
        """
        # Where one writes at a time, two: the database has the one's statement while Python has the
        # other.
        names = (
            ["finish", "finish-2"]
            if holdings.store.database.dialect.capabilities.one_writer
            else ["finish"]
        )
        self.loops = [
            Loop(f"{holdings.config.table}-{name}", self._turn_in_time, holdings.clock)
            for name in names
        ]
        self.writer = self.loops[0]

    @property
    def unwritten(self) -> list[Entry]:
        """The entries whose outcomes are to be written; while no loop is in a turn."""
        return [outcome.entry for outcome in list(self._outcomes)]

    def complete(self, outcome: Outcome) -> None:
        """Write `outcome`, soon."""
        self._outcomes.append(outcome)
        self.writer.wake()
        if len(self._outcomes) >= GATHERED:
            self._gathered.set()
            self.loops[-1].wake()

    def write_all(self) -> list[Outcome]:
        """Write what there is in the caller's thread, and return it."""
        written = list[Outcome]()
        while batch := self._turn(claim=False):
            written += batch
        self._tell_of_parked(now=True)
        return written

    def _turn_in_time(self) -> float:
        """Take a turn, but let outcomes gather for a while after one that wrote few.

        Each turn is a commit.
        """
        if len(self._outcomes) < GATHERED:
            if self._writing:
                return IDLE_SECONDS  # for the other loop, which goes on when it has written
            # In real time: this is about the load of machines, which no manual clock moves.
            _machine.wait(self._gathered, self._next_turn - _machine.monotonic())
        began = _machine.monotonic()
        self._writing.add(threading.get_ident())
        try:
            pause = self.turn()
        finally:
            self._writing.discard(threading.get_ident())
        ended = _machine.monotonic()
        self._next_turn = ended + min(GATHER_TURNS * (ended - began), GATHER_SECONDS)
        return 0.0 if self._outcomes else pause  # who was woken for them has left them to this turn

    def turn(self, *, claim: bool = True) -> float:
        """Write the outcomes that have gathered. One turn; returns seconds until the next.

        `claim`: the transaction may claim as well.
        """
        return 0.0 if self._turn(claim=claim) else self._tell_of_parked()

    def _turn(self, *, claim: bool) -> list[Outcome]:
        if not self._outcomes:
            return []
        with self._dequeued() as taken:
            # A handler that was cut may have come to its end since: of two outcomes of a claim the
            # first counts.
            batch = list({outcome.entry.claim: outcome for outcome in reversed(taken)}.values())
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
    ) -> list[Entry] | None:
        """Write a batch, with a `claim` in its transaction; the entries that were claimed, if any.

        `taken`, from which the batch was made, is empty once that can't be written again.
        """
        with self.metrics.statement("finish"):
            (lost, claimed), unwritable = self._write(batch, claim)
        # What can't be written stays held: given back it would run again and again.
        ended = _besides(batch, unwritable)
        self._holdings.ledger.give_up(claims_of([one.entry for one in ended]))
        taken.clear()
        self._written(ended, lost)
        return claimed

    @contextmanager
    def _dequeued(self) -> Iterator[list[Outcome]]:
        """Outcomes to write.

        Those that the block leaves in the list are the first of the next turn.
        """
        taken = list[Outcome]()
        try:
            with self._queue_lock:
                self._dequeue(taken)
            yield taken
        finally:
            with self._queue_lock:
                self._outcomes.extendleft(reversed(taken))

    def _dequeue(self, taken: list[Outcome]) -> None:
        size = 0
        while self._outcomes and len(taken) < BATCH and size < BATCH_CHARACTERS:
            outcome = self._outcomes[0]
            size += _error_length(outcome)
            # In this order: an exception in between leaves it in both, of which the first counts,
            # and not in none.
            taken.append(outcome)
            self._outcomes.popleft()

    def _write(self, batch: Sequence[Outcome], claim: Claim | None) -> tuple[Written, set[int]]:
        """What was written, and the ids of the entries whose outcome the database refuses."""
        holdings = self._holdings
        finished = [outcome for outcome in batch if isinstance(outcome, Finished)]
        others = batch if len(finished) < len(batch) else ()
        effects = [
            Wait(holdings.store, holdings.name, holdings.return_lane, outcome)
            for outcome in others
            if isinstance(outcome, Retried)
            or (isinstance(outcome, Paused) and outcome.progress is not None)
        ]
        released = [outcome.entry for outcome in others if isinstance(outcome, Released)]
        parked = [outcome.entry for outcome in others if isinstance(outcome, Parked)]
        answer = (
            self._record(finished, effects, claim)
            if finished or effects
            else (Written(set(), None), set[int]())
        )
        if released:
            holdings.release(claims_of(released))
        if parked:
            holdings.park(claims_of(parked))
            self._tell_of_parked(len(parked))
        unchanged = [one for one in others if isinstance(one, Paused) and one.progress is None]
        for lane in {one.lane for one in unchanged}:
            holdings.set_aside(lane, [one.entry.claim for one in unchanged if one.lane == lane])
        return answer

    def _tell_of_parked(self, entries: int = 0, *, now: bool = False) -> float:
        """Log how many entries were parked since the last line.

        It logs once in `PARKED_LOG_SECONDS`, or `now`. Returns the seconds until the next line may
        come.
        """
        moment = self._holdings.clock.monotonic()
        with self._telling:
            self._untold += entries
            if not self._untold:
                return IDLE_SECONDS
            if moment < self._tell_at and not now:
                return self._tell_at - moment
            entries, self._untold = self._untold, 0
            self._tell_at = moment + PARKED_LOG_SECONDS
        log.warning("entries_parked", table=self._holdings.config.table, entries=entries)
        return IDLE_SECONDS

    def _record(
        self, finished: Sequence[Finished], effects: Sequence[Effect], claim: Claim | None = None
    ) -> tuple[Written, set[int]]:
        holdings = self._holdings
        try:
            return holdings.moves.record(holdings.name, finished, effects, claim), set()
        except _OF_ONE as error:
            if COMMITTED in getattr(error, "__notes__", ()):
                raise  # the next try finds them written
            if claim is None and len(finished) + len(effects) == 1:
                record_id = finished[0].entry.record_id if finished else effects[0].record_id
                log.exception(
                    "outcome_unwritable", record_id=record_id, table=holdings.config.table
                )
                return Written(set(), None), {record_id}
        # One of them spoils the batch: each by itself.
        parts = [self._record([one], []) for one in finished]
        parts += [self._record([], [one]) for one in effects]
        lost = set[int]().union(*(written.lost for written, _ in parts))
        return Written(lost, None), set[int]().union(*(refused for _, refused in parts))

    def _written(self, batch: Sequence[Outcome], lost: set[int]) -> None:
        holdings = self._holdings
        # What did not run says nothing of how much this node gets done.
        holdings.pace.ended(
            sum(not isinstance(outcome, (Parked, Paused, Released)) for outcome in batch)
        )
        for record_id in lost:
            log.warning(
                "claim_lost", record_id=record_id, node=holdings.name, table=holdings.config.table
            )
        self.metrics.finished(batch, lost)
        if self.feeds:
            self.feeds.tell(batch, lost)
        now, tells_all = holdings.clock.now(), _standard_log.isEnabledFor(logging.DEBUG)
        for outcome in batch:
            if tells_all:
                _tell_processed(outcome, lost)
            headers = outcome.entry.headers
            if headers is not None and holdings.store.links.concern(headers):
                # Its end may have let another start, here or elsewhere.
                self._claimer.wake()
                self._hints.tell()
            if isinstance(outcome, Retried):
                # At `at`, or at another date if it waits for a circuit: then a look tells.
                self._claimer.expect(now if outcome.opens else max(now, outcome.at))
            elif (
                isinstance(outcome, ENDED)
                and outcome.state is State.FAILED
                and outcome.entry.record_id not in lost
            ):
                self._failures.tell(outcome.entry, outcome.last_error or "", outcome.error_count)


def _tell_processed(outcome: Outcome, lost: set[int]) -> None:
    entry = outcome.entry
    if (
        isinstance(outcome, ENDED)
        and outcome.state is State.PROCESSED
        and entry.record_id not in lost
    ):
        log.debug(
            "entry_processed",
            record_id=entry.record_id,
            queue_name=entry.queue_name,
            class_name=entry.class_name,
            user_token=entry.user_token,
            error_count=outcome.error_count,
        )


def _besides(batch: Sequence[Outcome], ids: set[int]) -> list[Outcome]:
    return [outcome for outcome in batch if outcome.entry.record_id not in ids] if ids else [*batch]


def _error_length(outcome: Outcome) -> int:
    return len(outcome.last_error) if isinstance(outcome, Finished) and outcome.last_error else 0
