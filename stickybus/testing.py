"""The test kit: handlers run in the test's own thread, at the test's own time.

Nothing is replaced by a double: entries are rows of a real database, and `drain` takes the turns
that the threads of a started bus take. Its fixtures need pytest; see the how-to guide "Test
your handlers".

    pytest_plugins = ["stickybus.testing"]  # in conftest.py: makes the fixtures known
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pytest

from bus.persistent import PersistentBus
from notifications.service import NotificationService
from queue_core.cluster.node import Node
from queue_core.errors import LifecycleError
from queue_core.lifecycle import Lifecycle, Phase
from queue_core.model.entry import Entry, State
from queue_core.model.outcome import (
    Finished,
    Lost,
    Outcome,
    Parked,
    Paused,
    Recorded,
    Released,
    Retried,
)
from queue_core.opening import create_schema
from queue_core.runtime.arguments import is_number, not_allowed, of_kind
from queue_core.runtime.clock import ManualClock

__all__ = [
    "ManualClock",
    "Ran",
    "drain",
    "stickybus_bus",
    "stickybus_clock",
    "stickybus_service",
    "stickybus_url",
]


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
    """

    entry: Entry
    state: State
    error_count: int
    retry_at: datetime | None = None
    parked: bool = False
    paused: bool = False
    last_error: str | None = None

    @property
    def event_name(self) -> str:
        """The name of the entry's event type."""
        return self.entry.class_name


def drain(*targets: PersistentBus | NotificationService, max_runs: int = 10_000) -> list[Ran]:
    """Run everything that is due, and everything that becomes due by it, in the caller's thread.

    All targets are drained together, so that a handler of one may post to another. `async def`
    handlers run too. The queues of a service count as started meanwhile, and its recurring
    schedules fire. The target's clock says what is due: with a `ManualClock` nothing becomes due
    until the test moves the clock.

    Args:
        targets: Buses and services, none of which may be started.
        max_runs: The limit of runs. Handlers that post for each other without end reach it, and so
            does a retry that is always due. Default: 10,000.

    Returns:
        The runs, in order.

    Raises:
        LifecycleError: A target is started.
        ConfigurationError: An argument is of a wrong kind.
        RuntimeError: There were more than `max_runs` runs.

    Examples:
        >>> bus.post(OrderPlaced(41))
        >>> [ran.state for ran in drain(bus)]
        [<State.PROCESSED: 'PROCESSED'>]
    """
    for target in targets:
        of_kind(target, PersistentBus, NotificationService, key="targets")
    if not is_number(max_runs) or max_runs < 0:
        raise not_allowed("max_runs", max_runs, "0 or more")
    runs: list[Ran] = []
    with ExitStack() as joined:
        for target in targets:
            joined.enter_context(_joined(target))
        progress = True
        while progress:
            progress = False
            for target in targets:
                if isinstance(target, NotificationService):
                    target._fire_due()
                outcomes = _round(target._engine.lifecycle)
                runs += [ran for outcome in outcomes if (ran := _ran(outcome)) is not None]
                progress = progress or bool(outcomes)
            if len(runs) > max_runs:
                raise RuntimeError(
                    f"{len(runs)} runs, and there is always another one due; the last: {runs[-1]}"
                )
    return runs


class _QuietNode(Node):
    """A node without threads: it beats between the rounds of `drain`."""

    def start(self) -> None:
        self.register()


@contextmanager
def _joined(target: PersistentBus | NotificationService) -> Iterator[None]:
    """Take part in the cluster, without loops and without a pool."""
    lifecycle = target._engine.lifecycle
    if lifecycle.phase in {Phase.RUNNING, Phase.STOPPING}:
        raise LifecycleError(
            f"{lifecycle.config.table}: it is started, its own threads run what is due. Nothing was drained. Use drain on "
            "one that isn't started."
        )
    queues = (
        [queue for queue in target.queues() if not queue.started]
        if isinstance(target, NotificationService)
        else []
    )
    lifecycle.join(_QuietNode)
    try:
        for queue in queues:
            queue.start()
        yield
    finally:
        for queue in queues:
            queue.stop()
        lifecycle.pool.stop(0.0)
        lifecycle.leave()


def _round(lifecycle: Lifecycle) -> list[Outcome]:
    if lifecycle.node is not None:
        # A handler may have moved the clock past the lease.
        lifecycle.node.beat_turn()
    return lifecycle.run_due()


def _ran(outcome: Outcome) -> Ran | None:
    entry = outcome.entry
    match outcome:
        case Finished():
            return Ran(
                entry=entry,
                state=outcome.state,
                error_count=outcome.error_count,
                last_error=outcome.last_error,
            )
        case Recorded():
            return Ran(entry=entry, state=outcome.state, error_count=entry.error_count)
        case Retried():
            return Ran(
                entry=entry,
                state=State.AVAILABLE,
                error_count=outcome.error_count,
                retry_at=outcome.at,
            )
        case Parked():
            return Ran(
                entry=entry, state=State.AVAILABLE, error_count=entry.error_count, parked=True
            )
        case Paused():
            return Ran(
                entry=entry,
                state=State.AVAILABLE,
                error_count=outcome.error_count,
                paused=True,
            )
        case Lost() | Released():
            return None


# -- fixtures ------------------------------------------------------------------------------------


@pytest.fixture
def stickybus_clock() -> ManualClock:
    """A clock that stands at 2026-01-01 00:00 UTC until the test moves it."""
    return ManualClock()


@pytest.fixture
def stickybus_url(tmp_path: Path) -> str:
    """The URL of a fresh SQLite database with all tables."""
    url = f"sqlite:///{tmp_path / 'stickybus.db'}"
    create_schema(url)
    return url


@pytest.fixture
def stickybus_bus(stickybus_url: str, stickybus_clock: ManualClock) -> Iterator[PersistentBus]:
    """A bus on the fresh database, by the manual clock; closed after the test."""
    bus = PersistentBus(stickybus_url, clock=stickybus_clock)
    yield bus
    bus.close()


@pytest.fixture
def stickybus_service(
    stickybus_url: str, stickybus_clock: ManualClock
) -> Iterator[NotificationService]:
    """A notification service on the fresh database, by the manual clock; closed after the test."""
    service = NotificationService(stickybus_url, clock=stickybus_clock)
    yield service
    service.close()
