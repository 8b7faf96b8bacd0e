"""Takes runs through their subscribers.

Any fault of a handler ends in an outcome, never in a dead thread. Nothing starts once the
lease under which its entry was claimed may have ended: not the second subscriber of an entry
either.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from typing import Protocol

from queue_core.errors import StickybusError
from queue_core.model.config import QueueConfig
from queue_core.model.entry import Entry
from queue_core.model.known_codecs import Codecs
from queue_core.model.outcome import Outcome, Parked, Released, SetAside, describe
from queue_core.model.states import State
from queue_core.model.validators import Validators
from queue_core.running.admission import Admission
from queue_core.running.coroutines import Coroutines
from queue_core.running.exactly_once import ExactlyOnce
from queue_core.running.invocation import AroundHandler, Handling, Invocation, Invoker
from queue_core.running.pauses_in_force import PausesInForce
from queue_core.running.run import Run, in_order
from queue_core.running.run_outcome import finished, interrupted, outcome_of
from queue_core.running.subscriber import Backlogs, Subscriber
from queue_core.runtime.clock import Clock
from queue_core.runtime.log import get_logger
from queue_core.runtime.middleware import chained

log = get_logger(__name__)

_SET_ASIDE = Parked, SetAside


class Leases(Protocol):
    """Knows whether a lease holds."""

    def may_start(self, epoch: int) -> bool:
        """Whether an entry that was claimed in this epoch of the node may start now."""
        ...


class Runner:
    """Runs the entries of one pool; `complete` receives each run's outcome, in the run's thread.

    `around_handler`: middleware around the call of each handler, the first one outermost.
    """

    def __init__(
        self,
        config: QueueConfig,
        clock: Clock,
        codecs: Codecs,
        admission: Admission,
        leases: Leases,
        *,
        pauses: PausesInForce,
        validators: Validators,
        backlogs: Backlogs,
        complete: Callable[[Outcome], None],
        around_handler: Sequence[AroundHandler] = (),
        exactly_once: ExactlyOnce | None = None,
    ) -> None:
        self._retry = config.retry
        self._clock = clock
        self._codecs = codecs
        self._validators = validators
        self._admission = admission
        self._leases = leases
        self._pauses = pauses
        self._complete = complete
        self.accepting = False
        """Whether runs are opened; else they are given back."""
        self._coroutines = Coroutines(f"{config.table}-coroutines")
        self._invoke = chained(
            Invoker(self._coroutines, exactly_once, backlogs).call, around_handler
        )
        self._unheard = set[str]()
        """Names of events that nobody subscribes to, as a log has told."""
        self.invocations: dict[int, Invocation] = {}
        """By thread, the handler that was called last for its run."""

    # -- life -------------------------------------------------------------------------------------

    def reopen(self) -> None:
        """Run submitted entries, coroutines included."""
        self.accepting = True
        self._coroutines.reopen()

    def cancel_coroutines(self) -> None:
        """Cancel the coroutines that still run, and call no further subscriber of any run."""
        self._coroutines.stop()

    # -- a run ------------------------------------------------------------------------------------

    def advance(self, run: Run) -> None:
        """Call the subscribers of a run one after the other, until a serial one is busy."""
        try:
            if run.opened or (self._open(run) if run.place is None else self._open_in_place(run)):
                self._call_pending(run)
        except BaseException as error:  # noqa: BLE001 -- of the user's other code: a policy, a codec, a log's sink
            self._complete(finished(run, State.FAILED, self._clock, last_error=describe(error)))
        finally:
            # After its outcome, so that a stop finds it with one or the other.
            self.invocations.pop(threading.get_ident(), None)

    def interrupt(self, run: Run) -> None:
        """End a run before its next subscriber: that is left to another run."""
        self._complete(interrupted(run, self._retry, self._clock))

    def may_call(self, run: Run) -> bool:
        """Whether the run's next subscriber may start now.

        A stop lets runs that have begun come to their end.
        """
        # Once a stop waits no longer, a run that has begun calls no further subscriber either.
        goes_on = self.accepting or (run.handler_called and not self._coroutines.over)
        return goes_on and not run.cut and self._leases.may_start(run.epoch)

    def _call_pending(self, run: Run) -> None:
        while run.pending:
            subscriber = run.pending[0]
            if subscriber.gate is not None and not subscriber.gate.enter(run):
                return
            called = False
            try:
                called = self._call(run, subscriber)
            finally:
                if subscriber.gate is not None:
                    subscriber.gate.pass_on(run)
            if not called:
                self.interrupt(run)
                return
            run.pending.pop(0)
            if run.ended:
                return
        self._complete(outcome_of(run, self._retry, self._clock))

    def _open_in_place(self, run: Run) -> bool:
        """Open a run that keeps a place, which it gives up if it has nothing to do there."""
        stays = False
        try:
            opened = self._open(run)
            stays = opened and bool(run.pending) and run.pending[0].gate is run.place
        finally:
            if run.place is not None and not stays:
                run.place.pass_on(run)
        return opened

    def _open(self, run: Run) -> bool:
        """Decide whether a run starts, decode its event, and find who handles it."""
        run.started_date = self._clock.now()
        if not self.accepting:
            self._complete(Released(entry=run.entry))
            return False
        try:
            # First: if the entry ends here, a retry by hand must know who had succeeded.
            if run.entry.subscribers_done:
                run.progress = run.entry.progress
            admitted = self._admission.admit(run.entry)
            if isinstance(admitted, _SET_ASIDE):
                self._complete(admitted)
                return False
            self._read(run, admitted)
            if self._pauses.known:
                self._pauses.hold_back(run)
        except StickybusError as error:
            self._complete(finished(run, State.FAILED, self._clock, last_error=describe(error)))
            return False
        run.opened = True
        return True

    def _read(self, run: Run, subscribers: Sequence[Subscriber]) -> None:
        """Decode the event, and find who has still to handle it.

        Raises PayloadError, InvalidEventError, and ConfigurationError for a name of two types.
        """
        entry = run.entry
        run.event = self._codecs.decode(entry)
        if self._validators.declared:
            self._validators.check(
                entry.queue_name, entry.class_name, run.event, record_id=entry.record_id
            )
        if entry.headers:
            # Unreadable headers end the entry before a handler has run.
            _ = entry.captured
        # In a first run, all subscribers have.
        run.pending = (
            [one for one in subscribers if run.runs_now(one)] if run.progress else [*subscribers]
        )
        run.has_one_subscriber = len(subscribers) == 1
        if not run.has_one_subscriber:
            run.pending = in_order(run.pending)
            if not subscribers:
                self._tell_unheard(entry)

    def _tell_unheard(self, entry: Entry) -> None:
        """Log once for a name of events that nobody subscribes to it."""
        if entry.class_name not in self._unheard:
            self._unheard.add(entry.class_name)
            log.warning(
                "nobody_subscribes", queue_name=entry.queue_name, class_name=entry.class_name
            )

    def _call(self, run: Run, subscriber: Subscriber) -> bool:
        """Call a subscriber.

        False if it may not start, or if a stop has cancelled it, which is no failure.
        """
        invocation = Invocation(run.entry, run, subscriber, self._clock.monotonic())
        self.invocations[threading.get_ident()] = invocation
        # Only now: a stop that waits no longer looks at running handlers after it has said that
        # nothing more may start.
        if not self.may_call(run) or (self._pauses.known and self._pauses.stops(run)):
            return False
        if self._admission.lane_without_place(run.entry) is not None:
            return False
        run.handler_called = True
        try:
            outcome = self._invoke(invocation)
            run.progress[subscriber.name] = True
        except BaseException as error:  # noqa: BLE001 -- SystemExit too: a handler must not end its thread
            if self._coroutines.over and isinstance(error, asyncio.CancelledError):
                return False
            if subscriber.succeeds_on and isinstance(error, subscriber.succeeds_on):
                # An exactly-once handler's transaction is rolled back: there is nothing that its
                # success would have to commit with.
                run.progress[subscriber.name] = True
                log.debug(
                    "handler_error_is_success",
                    record_id=run.entry.record_id,
                    user_token=run.entry.user_token,
                    subscriber=subscriber.name,
                    error_type=type(error).__name__,
                )
            else:
                run.errors[subscriber] = error
            return True
        if outcome is not None:
            run.ended = True
            self._complete(outcome)
        return True

    # -- running handlers -------------------------------------------------------------------------

    def running(self) -> list[Entry]:
        """The entries whose handlers run now, or have ended without an outcome yet.

        Not those that were taken from their handlers.
        """
        runs = [invocation.run for invocation in list(self.invocations.values())]
        return [run.entry for run in runs if not run.cut]

    def running_longer_than(self, seconds: float) -> list[Handling]:
        """Handlers that have run longer, or longer than their own limit."""
        now, found = self._clock.monotonic(), list[Handling]()
        for ident, invocation in list(self.invocations.items()):
            ran = now - invocation.began_at
            if ran > min(seconds, invocation.limit or seconds):
                frame = sys._current_frames().get(ident)  # noqa: SLF001 -- the documented way
                stack = "".join(traceback.format_stack(frame)) if frame else ""
                found.append(Handling(invocation, ran, stack))
        return found

    def cut(self, handling: Handling) -> Outcome:
        """Take the entry from a handler that is past its limit, and return its outcome.

        It has failed, as by a TimeoutError.
        """
        cut, subscriber = handling.invocation.run, handling.subscriber
        cut.cut = True
        run = Run(cut.entry, cut.pool, cut.epoch)
        run.started_date, run.has_one_subscriber = cut.started_date, cut.has_one_subscriber
        run.progress, run.paused_in = dict(cut.progress), cut.paused_in
        reason = TimeoutError(f"ran longer than {handling.limit} s")
        run.errors = {**cut.errors, subscriber: reason}
        return outcome_of(run, self._retry, self._clock)
