"""Idempotency keys: who has each, and what a post with it is to be answered."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from queue_core.model.keyed import Answer, Keep, KeyState, OnConflict
from queue_core.model.states import State
from tests.properties.life.jobs import ENDS, Job, Jobs

ANSWERS = {
    KeyState.QUEUED: Answer.ALREADY_QUEUED,
    KeyState.IN_BACK_OFF: Answer.IN_BACK_OFF,
    KeyState.LOCKED: Answer.LOCKED,
    KeyState.LOCKED_WITH_REQUEUE: Answer.LOCKED,
    KeyState.DONE: Answer.DONE,
}
_WAITS = {KeyState.QUEUED, KeyState.IN_BACK_OFF}
_RUNS = {KeyState.LOCKED, KeyState.LOCKED_WITH_REQUEUE}


@dataclass
class Holder:
    """The job that has a key, or had it last."""

    job: Job
    keep: Keep
    requeue: int | None = None
    """The number of the event that is to follow."""
    ended_date: datetime | None = None


class Keys:
    """The holders of all keys."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs
        self._holders = dict[str, Holder]()

    def holder(self, key: str) -> Holder | None:
        """Who has the key, or had it last."""
        return self._holders.get(key)

    def state(self, key: str, now: datetime) -> KeyState:
        """Where a key stands; UNKNOWN: a post finds it free."""
        holder = self._holders.get(key)
        if holder is None:
            return KeyState.UNKNOWN
        if holder.ended_date is None:
            row = self._jobs.row(holder.job)
            assert row is not None
            if row.processing_state in {State.AVAILABLE, State.WAITING}:
                return KeyState.IN_BACK_OFF if row.error_count else KeyState.QUEUED
            if holder.keep == "waiting":
                return KeyState.UNKNOWN
            return KeyState.LOCKED if holder.requeue is None else KeyState.LOCKED_WITH_REQUEUE
        if isinstance(holder.keep, timedelta):
            kept = holder.ended_date + holder.keep > now
        else:
            kept = holder.keep == "forever"
        return KeyState.DONE if kept else KeyState.UNKNOWN

    def answer(self, state: KeyState, on_conflict: OnConflict) -> Answer | None:
        """What a post is to be answered, or None for DuplicateKeyError."""
        if state is KeyState.UNKNOWN:
            return Answer.ADDED
        if on_conflict == "raise":
            return None
        if on_conflict in {"replace", "debounce"} and state in _WAITS:
            return Answer.UPDATED
        if (on_conflict == "debounce" and state in _RUNS) or (
            on_conflict == "requeue" and state is KeyState.DONE
        ):
            return Answer.ADDED
        return ANSWERS[state]

    def put(self, key: str, job: Job, keep: Keep) -> None:
        """Note that a job has the key from now on."""
        job.keep = keep
        self._holders[key] = Holder(job, keep)

    def conflicted(self, key: str, answer: Answer, on_conflict: OnConflict, number: int) -> None:
        """Note what a post of an event with this number has done to who has the key."""
        holder = self._holders[key]
        if answer is Answer.UPDATED:
            self._jobs.replace(holder.job, number)
            holder.requeue = None
        elif answer is Answer.LOCKED and on_conflict == "requeue":
            holder.requeue = number

    def release(self, key: str) -> None:
        """Note that the key is free, and that what was to follow was posted."""
        holder = self._holders.pop(key, None)
        if holder is not None and holder.requeue is not None:
            self._jobs.add(Job(holder.requeue))

    def learn(self) -> None:
        """Bring all keys to what has become of their jobs."""
        for key, holder in list(self._holders.items()):
            while holder.ended_date is None and holder.job.state is not None:
                if holder.requeue is None:
                    self._end(key, holder)
                    break
                self._follow(holder, holder.requeue)

    def _follow(self, holder: Holder, number: int) -> None:
        row = self._jobs.rows.get(number)
        if row is None:
            self._jobs.faults.append(f"{number} is lost, which was to follow {holder.job.number}")
            holder.requeue = None
            return
        state = row.processing_state
        ended = state if state in ENDS else None
        holder.job = Job(number, state=ended, keep=holder.keep)
        holder.requeue = None
        self._jobs.add(holder.job)

    def _end(self, key: str, holder: Holder) -> None:
        row = self._jobs.row(holder.job)
        holder.ended_date = holder.job.handled_date if row is None else row.finished_date
        # A run that was told how long is a success, and a key that is kept for ever stays so.
        asked = holder.job.asked if holder.job.state is State.PROCESSED else None
        if asked is not None and holder.keep != "forever":
            holder.keep = asked
        elif holder.job.state is State.REMOVED or holder.keep in {"waiting", "living"}:
            del self._holders[key]
