"""The outcome of a run: ended, failed for good, or a retry at the date that its policy gives."""

from __future__ import annotations

from queue_core.model.answers import error_name
from queue_core.model.entry import RetryDue, SubscriberProgress, has_head_start
from queue_core.model.outcome import (
    Break,
    Finished,
    Outcome,
    Released,
    Retried,
    SetAside,
    describe,
    given_up,
)
from queue_core.model.retry import Failure, RetryPolicy, asks_for_date, decide
from queue_core.model.retry_policies import Circuit
from queue_core.model.states import State
from queue_core.running.run import Run
from queue_core.running.subscriber import Subscriber
from queue_core.runtime.clock import Clock
from queue_core.runtime.log import get_logger
from sql.statements.base import LARGEST_COUNT

log = get_logger(__name__)


def _all_succeeded(progress: SubscriberProgress) -> bool:
    for so_far in progress.values():  # noqa: SIM110 -- for each entry: a generator costs twice as much
        if so_far is not True:
            return False
    return True


def outcome_of(run: Run, policy: RetryPolicy, clock: Clock) -> Outcome:
    """The outcome of a run whose subscribers were called.

    `policy` is for subscribers that have none.
    """
    entry = run.entry
    if not run.errors and run.paused_in is None and _all_succeeded(run.progress):
        return finished(run, State.PROCESSED, clock)
    error_count = min(entry.error_count + bool(run.errors), LARGEST_COUNT)
    for subscriber, error in run.errors.items():
        run.progress[subscriber.name] = _after_failure(run, subscriber, error, policy, clock)
    waiting = run.waiting()
    dates = [so_far.due for name, so_far in waiting.items() if name not in run.broken]
    if waiting:
        now = clock.now()
        # An entry that waits for a circuit runs with it.
        at = min(dates, default=now)
        # An entry that runs again at once keeps the head start of its priority; no date in the
        # future could have one.
        goes_first = at <= now and has_head_start(entry)
        return Retried(
            entry=entry,
            at=min(at, entry.effective_date) if goes_first else at,
            error_count=error_count,
            # A single subscriber's count is the entry's own, and so is its date, but for a head
            # start.
            progress={} if run.has_one_subscriber and not goes_first else run.progress,
            started_date=run.started_date,
            opens=None if dates else next(iter(run.broken.values())),
        )
    if run.paused_in is not None:
        changed = run.handler_called or bool(run.errors)
        return SetAside(
            entry=entry,
            lane=run.paused_in,
            error_count=error_count,
            progress=run.progress if changed else None,
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
) -> bool | RetryDue:
    """When a subscriber that failed runs again; False for never."""
    entry, before = run.entry, run.progress.get(subscriber.name)
    counted = any(isinstance(so_far, RetryDue) for so_far in entry.progress.values())
    if isinstance(before, RetryDue):
        failures, due = before.failures, before.due
    else:
        failures, due = 0 if counted else entry.error_count, entry.due_since
    failures = min(failures + 1, LARGEST_COUNT)
    failure = Failure(error=error, error_count=failures, effective_date=due, now=clock.now())
    policy = subscriber.retry or policy
    date = decide(policy, failure)
    if date is not None and isinstance(policy, Circuit) and not asks_for_date(error):
        run.broken[subscriber.name] = Break(subscriber.name, policy)
        date = failure.now
    log.warning(
        "handler_failed",
        record_id=entry.record_id,
        queue_name=entry.queue_name,
        class_name=entry.class_name,
        user_token=entry.user_token,
        subscriber=subscriber.name,
        error_type=error_name(error),
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
    return False if date is None else RetryDue(failures, date)


def finished(
    run: Run,
    state: State,
    clock: Clock,
    *,
    last_error: str | None = None,
    error_count: int | None = None,
) -> Finished:
    """The end of a run's entry. `error_count`: None if it has not changed."""
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
        keep=run.keep if state is State.PROCESSED else None,
        may_have_succeeded=bool(run.errors)
        and any(subscriber.exactly_once for subscriber in run.errors),
    )


def interrupted(run: Run, policy: RetryPolicy, clock: Clock) -> Outcome:
    """The outcome of a run that leaves some of its subscribers to another run."""
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
