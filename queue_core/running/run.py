"""One entry on its way through its subscribers, and its outcome."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from queue_core.model.entry import Entry, State, SubscriberProgress, Waiting
from queue_core.model.outcome import Finished, Outcome, Released, Retried, describe, given_up
from queue_core.model.retry import Failure, RetryPolicy, decide
from queue_core.running.serial import Pool, SerialGate
from queue_core.running.subscriber import Subscriber
from queue_core.runtime.clock import Clock
from queue_core.runtime.log import get_logger
from sql.statements.base import LARGEST_COUNT

log = get_logger(__name__)

_NOT_STARTED = datetime.max.replace(tzinfo=UTC)


class Run(msgspec.Struct, eq=False):
    """One entry on its way through its subscribers."""

    entry: Entry
    pool: Pool
    lease: int
    opened: bool = False
    """Its event is decoded, and its subscribers are found."""
    started_date: datetime = _NOT_STARTED
    handler_called: bool = False
    cut: bool = False
    """Its entry was taken from it, for a handler that is past its time."""
    ended: bool = False
    event: Any = None
    pending: list[Subscriber] = msgspec.field(default_factory=list)
    place: SerialGate | None = None
    """The gate at which it is expected, if a serial handler comes first."""
    progress: SubscriberProgress = msgspec.field(default_factory=dict)
    alone: bool = True
    errors: dict[Subscriber, BaseException] = msgspec.field(default_factory=dict)

    def __repr__(self) -> str:
        return f"Run({self.entry!r})"  # without the event


@dataclass(frozen=True)
class Handling:
    """A handler at work: for how long, and where (its thread's stack)."""

    run: Run
    subscriber: Subscriber
    seconds: float
    stack: str

    @property
    def entry(self) -> Entry:
        """The entry that is handled."""
        return self.run.entry

    @property
    def key(self) -> tuple[int, int]:
        """Names this claim of the entry."""
        return self.entry.claim


def in_order(subscribers: Sequence[Subscriber]) -> list[Subscriber]:
    """Exactly-once handlers last: the last of them records the outcome in its own transaction."""
    if len(subscribers) < 2:  # noqa: PLR2004 -- as mostly, and the first one waits for it
        return [*subscribers]
    return sorted(subscribers, key=lambda subscriber: subscriber.exactly_once)


def _all_succeeded(progress: SubscriberProgress) -> bool:
    for so_far in progress.values():  # noqa: SIM110 -- for each entry: a generator costs twice as much
        if so_far is not True:
            return False
    return True


def runs_now(run: Run, subscriber: Subscriber) -> bool:
    """Whether a subscriber has still to run, and its time has come."""
    so_far = run.progress.get(subscriber.name)
    return so_far is None or (isinstance(so_far, Waiting) and so_far.due <= run.started_date)


def waiting(run: Run) -> dict[str, Waiting]:
    """The subscribers that failed and run again later: in this run, or in one before and not due yet."""
    failed = {subscriber.name for subscriber in run.errors}
    return {
        name: so_far
        for name, so_far in run.progress.items()
        if isinstance(so_far, Waiting) and (name in failed or so_far.due > run.started_date)
    }


# -- outcomes ---------------------------------------------------------------------------------------------------


def outcome_of(run: Run, policy: RetryPolicy, clock: Clock) -> Outcome:
    """What became of a run whose subscribers were called. `policy` is for those that have none."""
    entry = run.entry
    if not run.errors and _all_succeeded(run.progress):
        return finished(run, State.PROCESSED, clock)
    error_count = min(entry.error_count + bool(run.errors), LARGEST_COUNT)
    for subscriber, error in run.errors.items():
        run.progress[subscriber.name] = _after_failure(run, subscriber, error, policy, clock)
    dates = [so_far.due for so_far in waiting(run).values()]
    if dates:
        return Retried(
            entry=entry,
            at=min(dates),
            error_count=error_count,
            # A single subscriber's count and date are the entry's own.
            progress={} if run.alone else run.progress,
            started_date=run.started_date,
        )
    told = "\n".join(describe(error) for error in run.errors.values())
    reason = told or given_up(run.progress)
    return finished(
        run,
        State.FAILED if reason else State.PROCESSED,
        clock,
        last_error=reason,
        error_count=error_count,
    )


def _after_failure(
    run: Run, subscriber: Subscriber, error: BaseException, policy: RetryPolicy, clock: Clock
) -> bool | Waiting:
    """What a subscriber's failure means for it: when it runs again, or False for never."""
    entry, before = run.entry, run.progress.get(subscriber.name)
    counted = any(isinstance(so_far, Waiting) for so_far in entry.progress.values())
    if isinstance(before, Waiting):
        failures, due = before.failures, before.due
    else:
        failures, due = 0 if counted else entry.error_count, entry.effective_date
    failures = min(failures + 1, LARGEST_COUNT)
    failure = Failure(error=error, error_count=failures, effective_date=due, now=clock.now())
    date = decide(subscriber.retry or policy, failure)
    log.warning(
        "handler_failed",
        record_id=entry.record_id,
        queue_name=entry.queue_name,
        class_name=entry.class_name,
        user_token=entry.user_token,
        subscriber=subscriber.name,
        error_type=type(error).__name__,
        error_count=failures,
        retry_date=date.isoformat() if date else None,
    )
    # Apart, and for who asks for it: a message, or a line of a traceback, may quote a payload.
    log.debug(
        "handler_error",
        record_id=entry.record_id,
        user_token=entry.user_token,
        subscriber=subscriber.name,
        exc_info=error,
    )
    return False if date is None else Waiting(failures, date)


def finished(
    run: Run,
    state: State,
    clock: Clock,
    *,
    last_error: str | None = None,
    error_count: int | None = None,
) -> Finished:
    """The end of a run's entry. `error_count`: None if it is what it was."""
    progress: SubscriberProgress = {}
    if last_error or len(run.progress) > 1:
        # A subscriber may have gone while it waited for its retry.
        progress = {
            name: so_far for name, so_far in run.progress.items() if isinstance(so_far, bool)
        }
    return Finished(
        entry=run.entry,
        state=state,
        started_date=run.started_date,
        finished_date=clock.now(),
        error_count=run.entry.error_count if error_count is None else error_count,
        progress=progress if len(progress) > 1 or last_error else {},
        last_error=last_error,
        undelivered=state is State.PROCESSED and not run.progress,
    )


def interrupted(run: Run, policy: RetryPolicy, clock: Clock) -> Outcome:
    """What becomes of a run some of whose subscribers were not called: these are left to another one."""
    if not run.handler_called:
        return Released(entry=run.entry)
    outcome = outcome_of(run, policy, clock)
    if not isinstance(outcome, Finished):
        return outcome
    return Retried(
        entry=run.entry,
        at=outcome.finished_date,
        error_count=outcome.error_count,
        progress=run.progress,
        started_date=run.started_date,
    )
