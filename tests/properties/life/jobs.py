"""What was posted, through its copies and its retries by hand, and what it may not overtake."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import count

from queue_core.model.entry import Entry
from queue_core.model.keyed import Keep
from queue_core.model.posting import OnFailed, OrderFailure
from queue_core.model.states import State

ENDS = {State.PROCESSED, State.FAILED, State.REMOVED}
"""States that end a job; REAPED hands it on to a copy."""
_FIRST = -1_000_000
"""Added to the place of what runs before all that was posted."""
_EARLIER = {State.REAPED, State.FAILED, State.REMOVED}
"""Of an entry whose copy was handled, and has left no row."""


@dataclass(eq=False)
class Job:
    """One post whose transaction has committed. `number` is that of its event."""

    number: int
    order_key: str | None = None
    order_failure: OrderFailure = "hold"
    place: int = 0
    """Among the jobs of its order key."""
    after: list[Job] = field(default_factory=list)
    on_failed: OnFailed = "cancel"
    group: int | None = None
    keep: Keep = "living"
    """How long it keeps its key, if it has one."""
    state: State | None = None
    """How it has ended; None while it lives."""
    discarded: bool = False
    free: bool = False
    """It waits for nothing any more: it was released, or retried."""
    forgotten: bool = False
    """Its end is not in history: it was deleted, or left no row."""
    handled_date: datetime | None = None
    """When all its handlers had succeeded, if it was on a node that keeps only failures."""
    succeeded: set[str] = field(default_factory=set)
    """The handlers that have succeeded."""
    last_run: tuple[int, int] = (0, 0)
    """The claim with which a handler was last called: an id, and its count."""
    asked: timedelta | None = None
    """The longest time for which handlers of that run want its key to be kept."""

    @property
    def holds(self) -> bool:
        """Whether it has failed, and those behind it wait until somebody decides."""
        return self.state is State.FAILED and self.order_failure == "hold" and not self.discarded

    def runs(self, record_id: int, claim_count: int) -> None:
        """A handler is called. What was asked for in a run before this one counts no more."""
        if self.last_run != (record_id, claim_count):
            self.last_run, self.asked = (record_id, claim_count), None

    def ask(self, keep: timedelta) -> None:
        """A handler that succeeds wants the key to be kept."""
        self.asked = max(keep, self.asked or keep)

    def runs_before(self, other: Job) -> bool:
        """Whether the order of their key puts this one first."""
        return self.order_key == other.order_key is not None and self.place < other.place

    def lets_start(self, other: Job) -> bool:
        """Whether its end is one that `other`, which waits for it, can start after."""
        return self.state is State.PROCESSED or (
            self.state is not None and other.on_failed == "run"
        )

    def may_wait(self) -> bool:
        """Whether somebody has to decide about a job that it waits for."""
        return not self.free and any(
            (one.state in {State.FAILED, State.REMOVED} and self.on_failed != "run")
            or one.forgotten
            or (one.state is None and one.may_wait())
            for one in self.after
        )


class Jobs:
    """All jobs, and their rows by the last look at the tables."""

    def __init__(self) -> None:
        self._by_number = dict[int, Job]()
        self._places = count(1)
        self.rows = dict[int, Entry]()
        """The last entry of each job, by its number."""
        self.tries = dict[int, list[int]]()
        """The ids under which each job has ended FAILED or REMOVED, by its number."""
        self.faults = list[str]()

    def __iter__(self) -> Iterator[Job]:
        return iter(self._by_number.values())

    def get(self, number: int) -> Job | None:
        """The job whose event has this number now."""
        return self._by_number.get(number)

    def add(self, job: Job) -> None:
        """Know of one that was posted. It is behind all others."""
        self.to_the_end(job)
        self._by_number[job.number] = job

    def to_the_end(self, job: Job) -> None:
        """Put it behind all others of its order key."""
        job.place = next(self._places)

    def _to_the_front(self, job: Job, started: Collection[int]) -> None:
        """Put it before all others of its order key, but behind the head."""
        job.place += _FIRST
        for other in self:
            same = other is not job and other.order_key == job.order_key
            if same and (other.holds or (other.state is None and other.number in started)):
                other.place = 2 * _FIRST

    def replace(self, job: Job, number: int) -> None:
        """Its event was replaced by one of another number."""
        del self._by_number[job.number]
        job.number, job.succeeded, job.handled_date = number, set(), None
        self._by_number[number] = job

    def row(self, job: Job) -> Entry | None:
        """Its last entry, unless that was deleted from history."""
        return self.rows.get(job.number)

    def learn(self, entries: Iterable[Entry]) -> None:
        """Bring all jobs to what stands in the tables, which `entries` are."""
        processed = set[int]()
        self.rows.clear()
        self.tries.clear()
        for entry in sorted(entries, key=lambda one: one.record_id):
            number = number_of(entry)
            if entry.processing_state is State.PROCESSED:
                if number in processed:
                    self.faults.append(f"{number} has ended PROCESSED twice")
                processed.add(number)
            if entry.processing_state in {State.FAILED, State.REMOVED}:
                self.tries.setdefault(number, []).append(entry.record_id)
            self.rows[number] = entry
        for job in self:
            row = self.row(job)
            if job.handled_date is not None and (row is None or row.processing_state in _EARLIER):
                self.rows.pop(job.number, None)
                job.state, job.forgotten, row = State.PROCESSED, True, None
            if row is None:
                job.forgotten = job.state is not None
            elif row.processing_state is State.REAPED:
                self.faults.append(f"{job.number} was reaped, and has no copy")
            else:
                job.state = row.processing_state if row.processing_state in ENDS else None
            if job.state is None and row is None:
                self.faults.append(f"{job.number} is lost")

    def check_turn(self, job: Job) -> None:
        """Note a fault if it is not this job's turn to run."""
        for other in self:
            if other.runs_before(job) and (other.state is None or other.holds):
                self.faults.append(f"{job.number} runs before {other.number} of its order key")
        for other in () if job.free else job.after:
            if not other.lets_start(job):
                self.faults.append(f"{job.number} runs before {other.number}, which it waits for")

    def retried(self, job: Job, waiters: Collection[int], started: Collection[int]) -> None:
        """Note that an ended job was retried by hand, for which entries of these ids waited.

        `started`: the numbers of what may run, or runs.
        """
        if job.order_key is not None and not job.holds:
            self.to_the_end(job)
            if waiters:
                self._to_the_front(job, started)
        for other in self:
            # One that may start already, or in its turn, does not wait for the copy.
            row = self.row(other)
            if job in other.after and row is not None and row.record_id not in waiters:
                other.free = True
        job.state, job.free = None, True


def number_of(entry: Entry) -> int:
    """The number of the event that an entry holds."""
    return int((entry.event_json or "").partition(":")[2].rstrip("}"))
