"""One entry on its way through its subscribers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

import msgspec

from queue_core.model.answers import heed
from queue_core.model.entry import Entry, RetryDue, SubscriberProgress
from queue_core.model.lanes import Lane
from queue_core.model.outcome import Break
from queue_core.running.serial import Pool, SerialGate
from queue_core.running.subscriber import Subscriber

_NOT_STARTED = datetime.max.replace(tzinfo=UTC)


class RunPool(Pool, Protocol):
    """The pool that a run was submitted to."""

    def may_call(self, run: Run) -> bool:
        """Whether the run's next subscriber may start now."""
        ...


class Run(msgspec.Struct, eq=False):
    """One entry on its way through its subscribers.

    `epoch` is the node's when the entry was claimed.
    """

    entry: Entry
    pool: RunPool
    epoch: int
    opened: bool = False
    """Its event is decoded, and its subscribers are found."""
    started_date: datetime = _NOT_STARTED
    handler_called: bool = False
    cut: bool = False
    """Its entry was taken from it, because a handler is past its time."""
    ended: bool = False
    event: Any = None
    pending: list[Subscriber] = msgspec.field(default_factory=list)
    place: SerialGate | None = None
    """The gate at which it is expected, if a serial handler comes first."""
    progress: SubscriberProgress = msgspec.field(default_factory=dict)
    has_one_subscriber: bool = True
    paused_in: Lane | None = None
    """The lane in which the entry waits after this run, for those subscribers that are paused."""
    broken: dict[str, Break] = msgspec.field(default_factory=dict)
    """Subscribers that failed, and whose entries wait until their circuit is closed."""
    keep: timedelta | None = None
    """The time for which its handlers want the entry's key to be kept after its end."""
    errors: dict[Subscriber, BaseException] = msgspec.field(default_factory=dict)

    def __repr__(self) -> str:
        return f"Run({self.entry!r})"  # without the event

    def runs_now(self, subscriber: Subscriber) -> bool:
        """Whether a subscriber has still to run, and its time has come."""
        so_far = self.progress.get(subscriber.name)
        return so_far is None or (isinstance(so_far, RetryDue) and so_far.due <= self.started_date)

    def heed(self, returned: object) -> None:
        """Take the value of a handler. Raises NotDone for an answer that is no success."""
        keep = heed(returned)
        if keep is not None:
            self.keep = max(keep, self.keep or keep)

    def waiting(self) -> dict[str, RetryDue]:
        """The subscribers that failed and run again later.

        They failed in this run, or in one before and are not due yet.
        """
        failed = {subscriber.name for subscriber in self.errors}
        return {
            name: so_far
            for name, so_far in self.progress.items()
            if isinstance(so_far, RetryDue) and (name in failed or so_far.due > self.started_date)
        }

    @property
    def ends_with_next(self) -> bool:
        """Whether the entry ends if the next subscriber succeeds."""
        left = self.errors or self.paused_in or self.waiting()
        return len(self.pending) == 1 and not left


def in_order(subscribers: Sequence[Subscriber]) -> list[Subscriber]:
    """Exactly-once handlers last: the last of them records the outcome in its own transaction."""
    if len(subscribers) < 2:  # noqa: PLR2004 -- as mostly, and the first one waits for it
        return [*subscribers]
    return sorted(subscribers, key=lambda subscriber: subscriber.exactly_once)
