"""The lifecycle of entries in one bus or service: the only place that claims, and the only one that writes outcomes.

Two loops on two connections. The claim loop takes what the pool has room for and hands it over; the finish loop
writes the outcomes that have gathered since its last turn in one transaction. While the database works, outcomes
gather: batches grow with the load by themselves, and an idle system answers one by one.

Every way into the pool goes through the ledger, so that the sweep can tell what nobody here knows of.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from functools import partial
from math import inf
from typing import Any

from sqlalchemy.exc import DataError, SQLAlchemyError

from queue_core import node as nodes
from queue_core.clock import Signal, SystemClock
from queue_core.config import Mode
from queue_core.dispatcher import Dispatcher
from queue_core.entry import ANY_NODE, PARKED, SUSPECT, Entry, State
from queue_core.errors import ConfigurationError, HistoryConflictError, LifecycleError
from queue_core.exactly_once import ExactlyOnce
from queue_core.handler import Router
from queue_core.ledger import Ledger
from queue_core.log import get_logger
from queue_core.loop import Loop
from queue_core.metrics import Metrics, Reading
from queue_core.outcome import Finished, Outcome, Parked, Released, Retried
from queue_core.reaper import recover
from queue_core.store import Store
from queue_core.wakeup import Wakeup

log = get_logger(__name__)
_machine = SystemClock()

FROM_MEMORY = 2_000
"""Entries that may be handed to the pool from memory before they are kept by id only."""
LARGE_PAYLOAD = 8_192
"""Characters from which a payload is not kept in memory while its entry waits."""
FINISH_BATCH = 1_000
FINISH_CHARACTERS = 1_000_000
"""Characters of error messages from which a batch takes no more: escaped, they must fit a packet of MySQL (16 MB)."""
GATHERED = 20
"""Outcomes that are written at once; fewer wait for others while the last turn is fresh."""
GATHER_TURNS, GATHER_SECONDS = 3.0, 0.01
"""How long they wait at most: so many times the last turn's duration. Posts have the database meanwhile."""
FAIR_SHARE = 2
"""Entries per handler thread that a node holds of those which any node may run."""
FIRST_LOOK_SECONDS = 0.0005
LOOKS = 12
"""An announced commit is looked for after 0, 0.5, 1, 2 … ms; then it is left to the sweep (about 1 s in all)."""
SWEEP_SHARE = 50
"""A sweep is followed by a pause of at least this many times its own duration."""
PARKED_PAGE = 1_000


class Phase(Enum):
    """Where a bus or service is between its start and its stop."""

    INITIALISED = "initialised"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"


@dataclass
class _Announced:
    """Entries of a caller's transaction that may have committed."""

    ids: list[int]
    looks: int = 0
    next_look: float = 0.0


class Lifecycle:
    """See the module. `router` knows the handlers."""

    def __init__(self, store: Store, router: Router, metrics: Metrics) -> None:
        self.store = store
        self.config = store.config
        self.clock = store.clock
        self.metrics = metrics
        self.phase = Phase.INITIALISED
        self.ledger = Ledger(self.config.queue_capacity)
        self.node: nodes.Node | None = None
        self.name = ""
        self._router = router
        self._outcomes: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
        self._unwritten: list[Outcome] = []
        self._announced: list[_Announced] = []
        self._announced_lock = threading.Lock()
        self._next_due: datetime | None = None
        self._claim_at = 0.0
        self._finish_at = 0.0
        self._gathered = Signal()
        self._sweep_at = 0.0
        self._look_ahead_at = 0.0
        self._parked_at = 0.0
        self._watch_at = 0.0
        self._overdue = set[tuple[int, int]]()
        self._cut = set[tuple[int, int]]()
        self._parked_after: tuple[datetime, int] | None = None
        self._suspects = set[int]()
        self._shared = set[int]()
        """Entries in hand that were claimed from those for any node."""
        self._unemptied = set[str]()
        """Lanes whose last claim was full, or that were not asked since something came."""
        self._exhausted: list[Callable[[Entry, str], None]] = []
        self._claims = Loop(f"{self.config.table}-claim", self.claim_turn, self.clock)
        self._finishes = Loop(f"{self.config.table}-finish", self._finish_in_time, self.clock)
        self.dispatcher = self._new_dispatcher()
        self.wakeup = Wakeup(store, self.hint, lambda: self.name)

    def _new_dispatcher(self) -> Dispatcher:
        return Dispatcher(
            self.config,
            self.clock,
            self.store.codecs,
            self._router,
            exactly_once=ExactlyOnce(self.store, lambda: self.name),
            may_start=self._may_start,
            complete=self._complete,
        )

    # -- life ---------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Join the cluster and start the loops. Raises NodeNameTakenError, LifecycleError, ForkedError."""
        self.store.check_process()
        if self.phase in {Phase.RUNNING, Phase.STOPPING}:
            raise LifecycleError(
                f"{self.config.table}: it is {self.phase.value} already; stop it before the next start."
            )
        self.dispatcher = self._new_dispatcher()
        self.join()
        self.dispatcher.start()
        self.phase = Phase.RUNNING
        self._claims.start()
        self._finishes.start()
        self.wakeup.start()
        self.hint()  # for what came since it last ran

    def join(self, make: Callable[..., nodes.Node] = nodes.Node) -> None:
        """Take part in the cluster without loops of its own (what `start` does first, and the test kit alone)."""
        node = nodes.join(self, self.config, make)
        self.ledger.clear()
        self._suspects.clear()
        self._shared.clear()
        try:
            recovered = recover(self.store, node.name)
        except BaseException:
            nodes.leave(node, self)  # else its lane would have a live node that runs nothing
            raise
        if recovered:
            log.warning("entries_recovered", node=node.name, table=self.config.table, entries=recovered)
        # Only from here on are events born claimed: recovery would take them for those of a crash.
        self.name, self.node = node.name, node
        self.look_at_parked()

    def stop(self, timeout_seconds: float | None = None) -> bool:
        """Stop claiming, let handlers finish, write all outcomes, give back the rest, and end the lease.

        `timeout_seconds` (default: `shutdown_timeout_seconds`) bounds the wait for handlers. False if some still ran
        then, or if the database was away: their entries are given to other nodes when the lease has ended.
        """
        if self.phase is not Phase.RUNNING or self.store.forked:
            return True
        limit = self.config.shutdown_timeout_seconds if timeout_seconds is None else timeout_seconds
        self.phase = Phase.STOPPING
        self.wakeup.stop()
        self._claims.stop()
        ended = self.dispatcher.stop(limit)
        self._finishes.stop()
        if not ended:
            log.error(
                "handlers_still_running",
                table=self.config.table,
                timeout_seconds=limit,
                entries=len(self.ledger),
            )
        try:
            self.leave()
        except SQLAlchemyError:
            # The rows still say that this node runs them: whoever reaps it, or takes its name, finds them there.
            log.exception("outcomes_unwritten", table=self.config.table)
            ended = False
        finally:
            self.phase = Phase.STOPPED
        return ended

    def leave(self) -> None:
        """Write what is unwritten, give back what has not run, and leave the cluster."""
        node = self.node
        if node is None:
            return
        try:
            while not self._outcomes.empty() or self._unwritten:
                self.finish_turn()
            running = {entry.record_id for entry in self.dispatcher.running()}
            # From the table, for it knows of the callers' commits too that nobody has looked up yet.
            database, statements = self.store.database, self.store.statements
            standing = database.fetch(lambda connection: statements.in_processing(connection, lane=self.name))
            self._release([claim for claim in standing if claim[0] not in running])
        finally:
            self.node = None  # first: what is posted from here on is for other nodes, whatever fails below
            nodes.leave(node, self)

    @property
    def waiting_lane(self) -> str:
        """The lane in which entries of this node wait: its own, unless any node may run them."""
        return ANY_NODE if self.config.mode is Mode.POLLING or self.node is None else self.name

    @property
    def running(self) -> bool:
        """Whether entries can be claimed for this node now: started, and its lease holds."""
        return self.node is not None and self.phase is not Phase.STOPPING and self.node.may_start()

    @property
    def lease(self) -> int:
        """Names the lease that this node has now. To be read before what is claimed under it."""
        node = self.node
        return node.epoch if node is not None else 0

    def _may_start(self, lease: int) -> bool:
        # In this order: a node that registers anew has its new epoch before it may start anything.
        node = self.node
        return node is not None and node.may_start() and node.epoch == lease

    def describe(self) -> dict[str, Any]:
        """See `node.Member`."""
        return {"table": self.config.table, "mode": self.config.mode.value, **self._router.describe()}

    def reading(self) -> Reading:
        """What a scrape of the metrics shows of this process."""
        node = self.node
        return Reading(
            in_flight=len(self.ledger),
            lease_left_seconds=node.lease_left_seconds if node is not None else 0.0,
            skew_seconds=node.skew_seconds if node is not None else 0.0,
        )

    def lease_lost(self) -> None:
        """See `node.Member`. What has not started comes back as Released from the pool, by `may_start`."""
        self.metrics.lease_lost()

    def reaped(self, queue_names: Sequence[str]) -> None:
        """See `node.Member`."""
        self.metrics.reaped(queue_names)
        self.hint()
        self.wakeup.tell()

    def on_exhausted(self, hook: Callable[[Entry, str], None]) -> None:
        """Call `hook(entry, last_error)` on the pool after an entry has ended FAILED."""
        self._exhausted.append(hook)

    def run_due(self) -> list[Outcome]:
        """Run what is due now in the caller's thread, write the outcomes and return them; empty if nothing was due.

        One round, between `join` and `leave`, without `start`: what becomes due by it is left to the next.
        """
        self.wake()
        self.claim_turn()
        self.dispatcher.run_submitted()
        while not self._outcomes.empty():
            self._unwritten.append(self._outcomes.get())
        outcomes = list(self._unwritten)
        self.finish_turn()
        self.dispatcher.run_submitted()  # the hooks of what has ended FAILED
        return outcomes

    # -- wake-ups -----------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Claim now."""
        self._claim_at = 0.0
        self._claims.wake()

    def hint(self) -> None:
        """Another process may have committed entries that can be claimed, now or at a date not known here."""
        self._look_ahead_at = 0.0
        self.wake()

    def rescheduled(self, date: datetime, given: Any) -> None:
        """The date of an entry was changed, in the caller's transaction if one is given: all nodes may be concerned."""
        if given is None:
            self.wakeup.tell()
            self.expect(date)
            return
        borrowed = self.store.borrow(given)
        self.store.inside_borrowed(
            borrowed, self.config.table, lambda inner: self.wakeup.tell_inside(inner, ANY_NODE)
        )

        def ended() -> None:
            if date <= self.clock.now():
                self.announce([])
            else:
                self.expect(date)

        if borrowed.announces:
            borrowed.when_ended(ended)
        else:
            self.expect(date)

    def expect(self, date: datetime) -> None:
        """An entry of this node's lane is committed and due at `date` (UTC)."""
        if date <= self.clock.now():
            self.wake()
        elif self._next_due is None or date < self._next_due:
            self._next_due = date
            self._claims.wake()

    def announce(self, ids: list[int]) -> None:
        """A transaction that inserted `ids` (none: entries to be claimed) has ended, or is about to."""
        with self._announced_lock:
            self._announced.append(_Announced(ids))
        self._claims.wake()

    def hand_over(self, entries: Sequence[Entry], lease: int) -> None:
        """Run entries that are committed, and held in the ledger: from memory if there is room, else later by id."""
        if not self.running:
            # Their commit has outlasted the stop of this node, or its lease. It is no error of the post.
            self.ledger.give_up(_claims_of(entries))
            with suppress(SQLAlchemyError):  # then they are for the sweep, or for the reaper
                self._release(_claims_of(entries))
            return
        room = FROM_MEMORY - self.ledger.active
        now_room = self._room()
        ready, later = list[Entry](), list[int]()
        for place, entry in enumerate(entries):
            small = len(entry.event_json or entry.event_bytes or "") <= LARGE_PAYLOAD
            if not self.ledger.waiting and (place < now_room or (small and place < room)):
                ready.append(entry)
            else:
                later.append(entry.record_id)
        self.ledger.wait(later)
        self.dispatcher.submit(ready, lease)
        if later:
            self._claims.wake()

    # -- claim --------------------------------------------------------------------------------------------------

    @property
    def _capacity(self) -> int:
        """How many entries the pool holds: its threads are kept busy while the next batch is claimed."""
        threads = self.config.handler_threads
        return min(threads + 2 * self.config.max_entries_claimed, max(threads, self.config.queue_capacity))

    def _room(self) -> int:
        """How many entries the pool takes now."""
        return self._capacity - self.ledger.active

    def claim_turn(self) -> float:
        """Hand over what is due, as far as there is room. One turn; returns seconds until the next."""
        if not self.running:
            return self.config.poll_interval_seconds
        self._confirm()
        self._load_waiting()
        now = self.clock.monotonic()
        due = self._next_due is not None and self._next_due <= self.clock.now()
        if now >= self._claim_at or due:
            self._claim_at = now + self.config.poll_interval_seconds
            self._unemptied.update((self.name, SUSPECT, ANY_NODE))
            self._look_ahead(now)
        self._claim_all()
        self._sweep(now)
        self._look_at_parked_page(now)
        self._watch(now)
        return self._pause()

    def _pause(self) -> float:
        """Seconds until something is to be done, as far as is known now."""
        now = self.clock.monotonic()
        pause = self.config.poll_interval_seconds
        pause = min(pause, self._claim_at - now)
        if self._next_due is not None:
            pause = min(pause, (self._next_due - self.clock.now()).total_seconds())
        if (self.ledger.waiting and self._room() > 0) or any(
            self._limit(lane) > 0 for lane in self._unemptied
        ):
            pause = 0.0
        with self._announced_lock:
            looks = [announced.next_look for announced in self._announced]
        if looks:
            pause = min(pause, min(looks) - now)
        return max(0.0, pause)

    def _claim_all(self) -> None:
        """Claim once from each lane that may hold more that is due, as far as there is room."""
        for lane in (self.name, SUSPECT, ANY_NODE):
            if lane in self._unemptied and (limit := self._limit(lane)) > 0 and not self._claim(lane, limit):
                self._unemptied.discard(lane)

    def _limit(self, lane: str) -> int:
        """How many entries of a lane may be claimed now."""
        if lane == SUSPECT:
            return 0 if self._suspects else 1
        most = self.config.max_entries_claimed
        if lane == ANY_NODE:  # what waits in the node's own lane must not keep it from its share
            capacity = FAIR_SHARE * self.config.handler_threads
            room = capacity - len(self._shared)
        else:
            capacity, room = self._capacity, self._room()
        # Each claim is a commit: few large ones. Where half of a share is active, no thread idles meanwhile.
        return min(most, room) if room >= min(most, capacity // 2) else 0

    def _claim(self, lane: str, limit: int) -> bool:
        """Claim up to `limit` entries; True if the lane may hold more that is due."""
        lease = self.lease
        with self.metrics.statement("claim"):
            entries = self.store.claim(lane, self.name, limit)
        if entries:
            self.metrics.claimed(entries)
            self.ledger.add((entry.record_id, entry.claim_count) for entry in entries)
            if lane == SUSPECT:
                self._suspects.update(entry.record_id for entry in entries)
            elif lane == ANY_NODE:
                self._shared.update(entry.record_id for entry in entries)
            self.dispatcher.submit(entries, lease)
        return len(entries) == limit

    def _look_ahead(self, now: float) -> None:
        """Learn the next due date: once a poll interval, and when the one that was known has come."""
        passed = self._next_due is not None and self._next_due <= self.clock.now()
        if now < self._look_ahead_at and not passed:
            return
        self._look_ahead_at = now + self.config.poll_interval_seconds
        if passed:
            self._next_due = None
        found = self.store.next_due((self.name, ANY_NODE), self.clock.now())
        known = self._next_due
        if found is not None and (known is None or found < known):
            self._next_due = found

    def _confirm(self) -> None:
        """Look up the entries of transactions that may have committed; start those that have."""
        now = self.clock.monotonic()
        with self._announced_lock:
            if not self._announced:
                return
            looking = [announced for announced in self._announced if announced.next_look <= now]
        ids = [
            record_id for announced in looking for record_id in announced.ids if record_id not in self.ledger
        ]
        found = set[int]()
        for start in range(0, len(ids), FINISH_BATCH):
            found |= self._start_committed(ids[start : start + FINISH_BATCH])
        for announced in looking:
            self._look_again(announced, found, now)
        with self._announced_lock:
            self._announced = [announced for announced in self._announced if announced.looks <= LOOKS]

    def _start_committed(self, ids: list[int]) -> set[int]:
        """Start those of `ids` that have committed, as far as the ledger has room, and return them; the rest is swept."""
        lease = self.lease
        entries = self.store.owned(ids, self.name)
        # A claim count past the first: the sweep was faster.
        fresh = [entry for entry in entries if entry.claim_count == 1 and entry.record_id not in self.ledger]
        held = fresh[: max(0, self.ledger.room)]
        self.ledger.add((entry.record_id, 1) for entry in held)
        self.hand_over(held, lease)
        if len(held) < len(fresh):
            self._sweep_at = 0.0
        return {entry.record_id for entry in entries}

    def _look_again(self, announced: _Announced, found: set[int], now: float) -> None:
        if announced.ids:
            announced.ids = [record_id for record_id in announced.ids if record_id not in found]
            announced.looks += 1 if announced.ids else LOOKS + 1
        else:
            self._claim_at = 0.0
            announced.looks += 2
        announced.next_look = (
            now + FIRST_LOOK_SECONDS * 2 ** (announced.looks - 1) if announced.looks <= LOOKS else now
        )

    def _load_waiting(self) -> None:
        """Read the payloads of entries that waited by id, as far as there is room."""
        while self.ledger.waiting and (room := self._room()) > 0:
            ids = self.ledger.next_waiting(min(room, FINISH_BATCH))
            lease = self.lease
            try:
                entries = self.store.owned(ids, self.name)
            except BaseException:  # also a pool of connections that is exhausted
                self.ledger.wait(ids)
                raise
            self.ledger.discard(set(ids) - {entry.record_id for entry in entries})
            self.dispatcher.submit(sorted(entries, key=lambda entry: entry.record_id), lease)

    def _sweep(self, now: float) -> None:
        """Give back to the lane what the table says we run and the ledger doesn't know: commits of unknown outcome."""
        if now < self._sweep_at:
            return
        database, statements = self.store.database, self.store.statements
        standing = database.fetch(lambda connection: statements.in_processing(connection, lane=self.name))
        # These are read after the table: own posts enter the ledger, others are announced, before they commit.
        with self._announced_lock:
            announced = {record_id for one in self._announced for record_id in one.ids}
        unknown = [claim for claim in standing if claim[0] not in self.ledger and claim[0] not in announced]
        if unknown:
            released = self._release(unknown)
            log.info("entries_swept", node=self.name, table=self.config.table, entries=released)
            self.wake()
        took = self.clock.monotonic() - now
        self._sweep_at = now + max(self.config.poll_interval_seconds, SWEEP_SHARE * took)

    def _release(self, claims: Sequence[tuple[int, int]], lane: str | None = None) -> int:
        """Give up claims: to `lane`, by default to where such entries wait, for this node or for any."""
        if lane is None:
            suspects = [claim for claim in claims if claim[0] in self._suspects]
            others = [claim for claim in claims if claim[0] not in self._suspects]
            return self._release(suspects, SUSPECT) + self._release(others, self.waiting_lane)
        if not claims:
            return 0
        released = self.store.database.write(
            lambda connection: self.store.statements.release(
                connection, owner=self.name, lane=lane, claims=claims
            )
        )
        self._give_up(claims)
        return released

    def _give_up(self, claims: Sequence[tuple[int, int]]) -> None:
        # The claim loop may have claimed again what was given back.
        self.ledger.give_up(claims)
        gone = [record_id for record_id, _ in claims if record_id not in self.ledger]
        self._suspects.difference_update(gone)
        self._shared.difference_update(gone)

    def _watch(self, now: float) -> None:
        """Report handlers that run for too long, once each; take the entry from those past a limit of their own."""
        if now < self._watch_at:
            return
        self._watch_at = now + self.config.poll_interval_seconds
        overdue = self.dispatcher.running_longer_than(self.config.max_execution_seconds)
        for handling in overdue:
            if handling.key not in self._overdue:
                log.warning(
                    "handler_overdue",
                    record_id=handling.entry.record_id,
                    subscriber=handling.subscriber.name,
                    seconds=round(handling.seconds, 1),
                    stack=handling.stack,
                )
            if (
                handling.seconds > (handling.subscriber.max_run_seconds or inf)
                and handling.key not in self._cut
            ):
                # A failed run: its outcome is written, and what the handler does from here comes too late.
                self._complete(self.dispatcher.cut(handling))
                self._cut.add(handling.key)
        self._overdue = {handling.key for handling in overdue}
        self._cut &= self._overdue

    # -- parked -------------------------------------------------------------------------------------------------

    def look_at_parked(self) -> None:
        """Handlers were added: look at all that is parked from its beginning."""
        self._parked_after, self._parked_at = None, 0.0
        self._claims.wake()

    def _look_at_parked_page(self, now: float) -> None:
        """Take the entries of one page of the parked lane that can be handled here, and end those parked for too long."""
        if now < self._parked_at:
            return
        statements = self.store.statements
        page = self.store.database.fetch(
            lambda connection: statements.page(
                connection, lane=PARKED, after=self._parked_after, limit=PARKED_PAGE
            )
        )
        known = [row.record_id for row in page if self._can_end(row.queue_name, row.class_name)]
        oldest = self.clock.now().timestamp() - self.config.unknown_retention_days * 86_400
        # An entry may be posted for a date long past.
        expired = [
            row.record_id for row in page if max(row.created_date, row.effective_date).timestamp() < oldest
        ]
        if known:
            self.store.database.write(
                lambda connection: statements.move_lane(
                    connection, ids=known, from_lane=PARKED, to_lane=self.name
                )
            )
            self.wake()
        self._expire(sorted(set(expired) - set(known)))
        full = len(page) == PARKED_PAGE
        self._parked_after = (page[-1].effective_date, page[-1].record_id) if full else None
        self._parked_at = 0.0 if full and known else now + self.config.reap_period_seconds

    def _can_end(self, queue_name: str, class_name: str) -> bool:
        """Whether an entry can be handled here, or can't be anywhere: then it ends FAILED, which tells why."""
        try:
            return self._router.knows(queue_name, class_name)
        except ConfigurationError:
            return True

    def _expire(self, ids: list[int]) -> None:
        if not ids:
            return
        reason = (
            f"UnknownEvent: no node has known this type and queue for {self.config.unknown_retention_days:g} days; "
            "it was never run. Its payload is kept here."
        )
        ended = {
            "processing_state": State.FAILED.value,
            "finished_date": self.clock.now(),
            "last_error": reason,
        }
        statements = self.store.statements

        def work(connection: Any) -> int:
            locked = statements.lock_available(connection, ids=ids)
            return statements.to_history(connection, ids=locked, values=ended)

        self.store.database.write(work)

    # -- finish -------------------------------------------------------------------------------------------------

    def _complete(self, outcome: Outcome) -> None:
        self._outcomes.put(outcome)
        if self._outcomes.qsize() >= GATHERED:
            self._gathered.set()
        self._finishes.wake()

    def _finish_in_time(self) -> float:
        """Take a turn, but let outcomes gather for a while after one that wrote few: each is a commit."""
        if self._outcomes.qsize() < GATHERED:
            # In real time: this is about the load of machines, which no manual clock moves.
            _machine.wait(self._gathered, self._finish_at - _machine.monotonic())
        began = _machine.monotonic()
        pause = self.finish_turn()
        ended = _machine.monotonic()
        self._finish_at = ended + min(GATHER_TURNS * (ended - began), GATHER_SECONDS)
        return pause

    def finish_turn(self) -> float:
        """Write the outcomes that have gathered. One turn; returns seconds until the next."""
        size = sum(map(_error_length, self._unwritten))
        while not self._outcomes.empty() and len(self._unwritten) < FINISH_BATCH and size < FINISH_CHARACTERS:
            self._unwritten.append(self._outcomes.get_nowait())
            size += _error_length(self._unwritten[-1])
        if not self._unwritten:
            return 60.0
        batch = self._unwritten
        with self.metrics.statement("finish"):
            lost = self._write(batch)
        self._unwritten = []
        self._written(batch, lost)
        return 0.0

    def _write(self, batch: Sequence[Outcome]) -> set[int]:
        finished = [outcome for outcome in batch if isinstance(outcome, Finished)]
        retried = [outcome for outcome in batch if isinstance(outcome, Retried)]
        released = [outcome.entry for outcome in batch if isinstance(outcome, Released)]
        parked = [outcome.entry for outcome in batch if isinstance(outcome, Parked)]
        lost = set[int]()
        if finished or retried:
            try:
                lost = self.store.record(self.name, self.waiting_lane, finished, retried)
            except (DataError, HistoryConflictError):
                written: list[Finished | Retried] = [*finished, *retried]
                if len(written) == 1:
                    log.exception("outcome_unwritable", record_id=written[0].entry.record_id)
                else:
                    lost = {record_id for outcome in written for record_id in self._write([outcome])}
        self._release(_claims_of(released))
        if parked:
            self._release(_claims_of(parked), PARKED)
            log.warning("entries_parked", table=self.config.table, entries=len(parked))
        return lost

    def _written(self, batch: Sequence[Outcome], lost: set[int]) -> None:
        self._give_up(_claims_of([outcome.entry for outcome in batch]))
        for record_id in lost:
            log.warning("claim_lost", record_id=record_id, node=self.name, table=self.config.table)
        self.metrics.finished(batch, lost)
        now = self.clock.now()
        for outcome in batch:
            if isinstance(outcome, Retried):
                self.expect(max(now, outcome.at))
            elif isinstance(outcome, Finished) and outcome.state is State.FAILED:
                self._tell_exhausted(outcome, lost)
        # Read after the ledger was freed, as the claim loop marks a lane before it reads the room.
        if self._unemptied or self.ledger.waiting:
            self._claims.wake()

    def _tell_exhausted(self, outcome: Finished, lost: set[int]) -> None:
        entry = outcome.entry
        if entry.record_id in lost:
            return
        log.error(
            "entry_failed",
            record_id=entry.record_id,
            queue_name=entry.queue_name,
            class_name=entry.class_name,
            error_count=outcome.error_count,
            error=(outcome.last_error or "").partition("\n")[0].partition(":")[0],
        )
        for hook in self._exhausted:
            self.dispatcher.call(partial(hook, entry, outcome.last_error or ""))


def _error_length(outcome: Outcome) -> int:
    return len(outcome.last_error or "") if isinstance(outcome, Finished) else 0


def _claims_of(entries: Sequence[Entry]) -> list[tuple[int, int]]:
    return [(entry.record_id, entry.claim_count) for entry in entries]
