"""The test kit: handlers run in the test's own thread, at the test's own time.

Nothing is replaced by a double: entries are rows of a real database, and `drain` takes the turns
that the threads of a started bus take. Its fixtures need pytest; see the how-to guide "Test
your handlers".

    pytest_plugins = ["stickybus.testing"]  # in conftest.py: makes the fixtures known
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from unittest.mock import patch

from bus.persistent import PersistentBus
from notifications.service import NotificationService
from queue_core.errors import EntryNotFoundError
from queue_core.maintenance import Maintenance
from queue_core.model.entry import Entry
from queue_core.model.lanes import ANY_NODE
from queue_core.model.states import State
from queue_core.reading.live_entries import Entries
from queue_core.runtime.arguments import is_number, not_allowed, of_kind
from queue_core.runtime.manual_clock import ManualClock
from queue_core.storage.arguments import storable_integer
from queue_core.storage.filter import Filter
from queue_core.storage.progress import encode_progress
from stickybus.kit_fixtures import stickybus_bus, stickybus_clock, stickybus_service, stickybus_url
from stickybus.kit_rounds import Ran, Target, joined, refuse_started, run_round

__all__ = [
    "ManualClock",
    "Ran",
    "clear",
    "consume_one",
    "drain",
    "run_again",
    "stickybus_bus",
    "stickybus_clock",
    "stickybus_service",
    "stickybus_url",
    "waiting_events",
    "without_threads",
]


def drain(*targets: Target, max_runs: int = 10_000) -> list[Ran]:
    """Run everything that is due, and everything that becomes due by it, in the caller's thread.

    All targets are drained together, so that a handler of one may post to another. `async def`
    handlers run too. The queues of a service count as started meanwhile, and its recurring
    schedules fire. The target's clock says which entries are due: with a `ManualClock` nothing
    becomes due until the test moves the clock.

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
    with ExitStack() as members:
        for target in targets:
            members.enter_context(joined(target))
        progress = True
        while progress:
            progress = False
            for target in targets:
                if isinstance(target, NotificationService):
                    target._fire_due()
                ran = run_round(target)
                runs += [one for one in ran if one is not None]
                progress = progress or bool(ran)
            if len(runs) > max_runs:
                raise RuntimeError(
                    f"after {len(runs)} runs another entry is still due; the last run: {runs[-1]}"
                )
    return runs


def consume_one(target: Target) -> Ran:
    """Run the one entry that is due, once, and assert that it ends PROCESSED.

    Entries that become due by it are left to the next call.

    Args:
        target: A bus or a service, not started.

    Returns:
        The run, whose `value` the handler returned.

    Raises:
        AssertionError: No entry is due, or several are, all of which have run then; or the entry
            has not ended PROCESSED. Its cause is the error of the handler.
        LifecycleError: The target is started.
        ConfigurationError: The target is of a wrong kind.

    Examples:
        >>> bus.post(OrderPlaced(41))
        >>> assert consume_one(bus).value == "order 41 is confirmed"
    """
    runs = _one_round(target)
    if len(runs) != 1:
        told = "; ".join(f"{ran.entry.record_id} ({ran.event_name})" for ran in runs)
        raise AssertionError(f"{len(runs)} entries were due, not 1: {told or 'none'}.")
    (ran,) = runs
    if ran.state is not State.PROCESSED:
        became = "is parked" if ran.parked else f"is {ran.state}"
        raise AssertionError(
            f"entry {ran.entry.record_id} ({ran.event_name}) {became}, not PROCESSED: "
            f"{', '.join(map(repr, ran.raised.values())) or ran.last_error or 'no handler raised'}."
        ) from next(iter(ran.raised.values()), None)
    return ran


def run_again(target: Target, ran: Ran | int) -> Ran:
    """Run an ended entry a second time, as after a crash between its handlers and its outcome.

    A test of idempotency: handlers may run twice, and the second run must change nothing. As after
    a crash, it is a copy of the entry with a new id, and exactly-once handlers are left out, as
    their transaction has recorded the outcome. Other entries that are due run as well, before or
    after it.

    Args:
        target: The bus or service of the entry, not started.
        ran: The first run, or the id of the entry in history.

    Returns:
        The second run.

    Raises:
        EntryNotFoundError: History has no such entry.
        InvalidPostError: The id can't be one.
        LifecycleError: The target is started.
        ConfigurationError: The target is of a wrong kind.

    Examples:
        >>> first = consume_one(bus)
        >>> assert run_again(bus, first).state is State.PROCESSED
        >>> assert len(sent_mails) == 1
    """
    of_kind(target, PersistentBus, NotificationService, key="target")
    refuse_started(target)
    record_id = ran.entry.record_id if isinstance(ran, Ran) else storable_integer(ran, "ran")
    store, lifecycle = target._engine.store, target._engine.lifecycle
    found = store.database.fetch(
        lambda connection: store.find(
            connection, past=True, where=Filter(record_ids=[record_id]).conditions(None)
        )
    )
    if not found:
        raise EntryNotFoundError(
            f"{lifecycle.config.table}: there is no entry {record_id} in history. Nothing ran.",
            record_id=record_id,
        )
    with joined(target):
        subscribers = target._engine.router.subscribers(found[0].queue_name, found[0].class_name)
        progress = encode_progress(
            {one.name: True for one in subscribers or () if one.exactly_once}
        )
        new_id = store.database.write(
            lambda connection: store.statements.replay(
                connection, record_id, lane=ANY_NODE, now=store.clock.now(), progress=progress
            )
        )
        runs = [ran for ran in run_round(target, posts_wait=True) if ran is not None]
    return next(ran for ran in runs if ran.entry.record_id == new_id)


def waiting_events(target: Target) -> list[object]:
    """The events that wait, due or not, as handlers would get them.

    Args:
        target: A bus, or a service, of which all queues are meant.

    Returns:
        The events, in the order of their posts.

    Raises:
        ConfigurationError: The target is of a wrong kind.
        PayloadNotDecodableError: A payload can't be read.

    Examples:
        >>> bus.post(OrderPlaced(41))
        >>> assert waiting_events(bus) == [OrderPlaced(41)]
    """
    of_kind(target, PersistentBus, NotificationService, key="target")
    return [target._engine.codecs.decode(entry) for entry in _live(target)]


def clear(*targets: Target) -> int:
    """Delete all that waits for these targets, and the whole history of their tables.

    For a test on a database that others have used. Recurring schedules stay.

    Args:
        targets: Buses and services, none of which may be started.

    Returns:
        The number of entries that waited.

    Raises:
        LifecycleError: A target is started, or a call truncates the history.
        ConfigurationError: A target is of a wrong kind.
    """
    for target in targets:
        of_kind(target, PersistentBus, NotificationService, key="targets")
        refuse_started(target)
    waited = 0
    for target in targets:
        by_hand = Maintenance(target._engine)
        for entry in _live(target):
            waited += by_hand.remove(entry.record_id)
        by_hand.truncate()
    return waited


@contextmanager
def without_threads(*targets: Target) -> Iterator[None]:
    """Let `start` and `stop` of the targets do nothing within a block.

    The start-up code of an application then runs in a test as it is, and `drain` or `consume_one`
    runs due entries. `close` still closes the connections.

    Args:
        targets: Buses and services, none of which may be started.

    Returns:
        A context manager, for the block.

    Raises:
        LifecycleError: A target is started.
        ConfigurationError: A target is of a wrong kind.

    Examples:
        >>> with without_threads(bus):
        ...     application.main(bus)  # calls bus.start()
        ...     consume_one(bus)
    """
    with ExitStack() as patches:
        for target in targets:
            of_kind(target, PersistentBus, NotificationService, key="targets")
            refuse_started(target)
            patches.enter_context(patch.object(target, "start", partial(_not_started, target)))
            patches.enter_context(patch.object(target, "stop", _not_stopped))
        yield


def _not_started(
    target: Target,
) -> Target:
    return target


def _not_stopped(timeout_seconds: float | None = None) -> bool:
    del timeout_seconds
    return True


def _live(target: Target) -> list[Entry]:
    queue_name = target.config.name if isinstance(target, PersistentBus) else None
    return Entries(target._engine.store, queue_name).find(Filter())


def _one_round(target: Target) -> list[Ran]:
    of_kind(target, PersistentBus, NotificationService, key="target")
    with joined(target):
        if isinstance(target, NotificationService):
            target._fire_due()
        return [ran for ran in run_round(target, posts_wait=True) if ran is not None]
