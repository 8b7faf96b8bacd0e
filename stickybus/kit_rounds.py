"""Rounds of the test kit: due entries run in the caller's thread."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any, TypeAlias

from bus.persistent import PersistentBus
from notifications.service import NotificationService
from queue_core.cluster.node import Node
from queue_core.errors import LifecycleError
from queue_core.lifecycle import Phase
from queue_core.model.entry import Entry
from queue_core.model.outcome import (
    Finished,
    Lost,
    Outcome,
    Parked,
    Recorded,
    Released,
    Retried,
    SetAside,
)
from queue_core.model.states import State
from stickybus.handler_calls import HandlerCalls

Target: TypeAlias = PersistentBus | NotificationService


@dataclass(frozen=True, kw_only=True)
class Ran:
    """One run of one entry, and its result.

    Attributes:
        entry: The entry as it was when the run started.
        state: PROCESSED or FAILED if the entry has ended. AVAILABLE if it runs again, or is
            parked or paused.
        error_count: Failed runs so far.
        retry_at: The date of the next run (UTC); None if there is none.
        parked: True if no target knows the entry's type or queue.
        paused: True if the queue, or a handler of the entry, is paused.
        last_error: Type, message and traceback if the state is FAILED, else None.
        returned: The values of the handlers that succeeded in this run, by their names.
        raised: The exceptions of the other handlers in this run, by their names.
    """

    entry: Entry
    state: State
    error_count: int
    retry_at: datetime | None = None
    parked: bool = False
    paused: bool = False
    last_error: str | None = None
    returned: Mapping[str, Any] = field(default_factory=dict)
    raised: Mapping[str, BaseException] = field(default_factory=dict)

    @property
    def value(self) -> Any:
        """The value of the handler. AssertionError unless exactly one handler succeeded."""
        if len(self.returned) != 1:
            raise AssertionError(
                f"entry {self.entry.record_id} ({self.event_name}): {len(self.returned)} handlers "
                f"returned, not 1: {', '.join(self.returned) or 'none'}."
            )
        (value,) = self.returned.values()
        return value

    @property
    def event_name(self) -> str:
        """The name of the entry's event type."""
        return self.entry.class_name


def refuse_started(target: Target) -> None:
    """Raise LifecycleError for a target that its own threads serve."""
    lifecycle = target._engine.lifecycle
    if lifecycle.phase in {Phase.RUNNING, Phase.STOPPING}:
        raise LifecycleError(
            f"{lifecycle.config.table}: it is started, and its own threads run due entries. "
            "Nothing was run or changed. Use the test kit on one that isn't started."
        )


class _QuietNode(Node):
    """A node without threads: it beats between the rounds of `drain`."""

    def start(self) -> None:
        self.register()


@contextmanager
def joined(target: Target) -> Iterator[None]:
    """Take part in the cluster, without loops and without a pool."""
    refuse_started(target)
    lifecycle = target._engine.lifecycle
    queues = (
        [queue for queue in target.queues() if not queue.started]
        if isinstance(target, NotificationService)
        else []
    )
    lifecycle.membership.join(_QuietNode)
    try:
        for queue in queues:
            queue.start()
        yield
    finally:
        for queue in queues:
            queue.stop()
        lifecycle.pool.stop(0.0)
        lifecycle.membership.leave()


def run_round(target: Target, *, posts_wait: bool = False) -> list[Ran | None]:
    """Run due entries; None for one that was lost or given back.

    `posts_wait`: as for `Lifecycle.run_due`.
    """
    lifecycle = target._engine.lifecycle
    if lifecycle.node is not None:
        # A handler may have moved the clock past the lease.
        lifecycle.node.beat_turn()
    with HandlerCalls().of(lifecycle.pool.runner) as calls:
        return [_ran(outcome, calls) for outcome in lifecycle.run_due(posts_wait=posts_wait)]


def _ran(outcome: Outcome, calls: HandlerCalls) -> Ran | None:
    entry = outcome.entry
    made = partial(
        Ran,
        entry=entry,
        returned=calls.returned.get(entry.record_id, {}),
        raised=calls.raised.get(entry.record_id, {}),
    )
    match outcome:
        case Finished():
            return made(
                state=outcome.state,
                error_count=outcome.error_count,
                last_error=outcome.last_error,
            )
        case Recorded():
            return made(state=outcome.state, error_count=entry.error_count)
        case Retried():
            return made(state=State.AVAILABLE, error_count=outcome.error_count, retry_at=outcome.at)
        case Parked():
            return made(state=State.AVAILABLE, error_count=entry.error_count, parked=True)
        case SetAside():
            return made(state=State.AVAILABLE, error_count=outcome.error_count, paused=True)
        case Lost() | Released():
            return None
