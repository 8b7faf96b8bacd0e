"""Clocks that are set, and machines that are suspended, under a queue that runs."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest

from queue_core.running.subscriber import EntryContext
from queue_core.runtime.clock import ROUND_TRIP_SECONDS, SystemClock
from queue_core.storage.store import Store
from sql.statements import nodes
from tests import requirements as needs
from tests.contract.cluster import QuietNode
from tests.contract.conftest import MakeBus, MakeService
from tests.contract.harness import (
    BOUND_SECONDS,
    Machine,
    Order,
    Recorder,
    database_of,
    engine_of,
    eventually,
    lifecycle_of,
    node_of,
    statements_of,
)

HOUR = 3600.0
LEASE_SECONDS = 1.0
NEAR = timedelta(seconds=BOUND_SECONDS)
"""Far less than an hour, and more than a busy machine stops a thread."""
EXACT = timedelta(seconds=2 * ROUND_TRIP_SECONDS)
"""By what a node that follows the database's clock may be wrong."""


def wall() -> datetime:
    return datetime.fromtimestamp(time.time(), UTC)


def shown(store: Store) -> datetime:
    """The time by the database's clock."""
    return store.database.fetch(store.database.dialect.database_now)


@needs.machine_clock
@pytest.mark.parametrize("seconds", [HOUR, -HOUR])
def test_notifications_fire_at_their_dates_after_the_machines_clock_was_set(
    machine: Machine, make_service: MakeService, seconds: float
) -> None:
    # A poll would find them without any look at the clock.
    service = make_service(lease_seconds=LEASE_SECONDS, poll_interval_seconds=2 * HOUR)
    fired = dict[int, datetime]()

    def fire(order: Order, _context: EntryContext) -> None:
        fired[order.number] = wall()

    queue = service.create_queue("s", "q", fire, event_types=[Order]).start()
    service.start()
    node = node_of(service)
    epoch = node.epoch
    queue.schedule(Order(1), delay=HOUR / 2)
    queue.recur("hourly", Order(2), every=HOUR / 2)

    machine.set_clock(seconds)

    clock = engine_of(service).store.clock
    eventually(lambda: abs(clock.now() - wall()) < EXACT, "the clock is followed")
    date = wall() + timedelta(seconds=0.5)
    queue.schedule(Order(3), at=date)
    eventually(lambda: 3 in fired, "it fires")
    assert date - EXACT <= fired[3]
    eventually(lambda: set(fired) == ({1, 2, 3} if seconds > 0 else {3}), "what had come has fired")
    eventually(node.lease.holds, "it beats")
    assert node.epoch == epoch
    assert abs(node.skew_seconds) < 1


@pytest.mark.parametrize("seconds", [HOUR, -HOUR])
def test_within_a_lease_a_node_follows_a_clock_that_was_set(
    machine: Machine, make_bus: MakeBus, seconds: float
) -> None:
    clock = SystemClock()
    bus = make_bus(clock=clock)
    lifecycle_of(bus).membership.join(QuietNode)
    node = node_of(bus)
    node.beat_turn()

    # The process now shows another time than the database, whose clock is this machine's on SQLite.
    machine.set_clock(seconds)
    clock.adjust(clock.offset_seconds)
    machine.set_clock(-seconds)
    assert abs(clock.now() - shown(engine_of(bus).store)) > timedelta(minutes=59)
    for _ in range(4):
        machine.suspend(node.config.beat_interval_seconds)
        node.beat_turn()

    # On a server no time has passed meanwhile.
    assert abs(clock.now() - shown(engine_of(bus).store)) < timedelta(
        seconds=node.config.lease_seconds
    )
    lifecycle_of(bus).membership.leave()


@needs.machine_clock
def test_a_machine_that_was_suspended_starts_nothing_before_its_beat_and_reaps_nobody(
    machine: Machine, make_bus: MakeBus
) -> None:
    buses = [make_bus(clock=SystemClock()) for _ in range(2)]
    for bus in buses:
        lifecycle_of(bus).membership.join(QuietNode)
    first, other = map(node_of, buses)
    for node in (first, other):
        node.beat_turn()
        node.reaper.turn()
    assert first.lease.holds()

    machine.suspend(HOUR)

    assert not first.lease.holds()
    other.beat_turn()
    other.reaper.turn()
    first.beat_turn()
    assert first.lease.holds()
    rows = other.database.fetch(nodes.Nodes().all_nodes)
    assert [row.state for row in rows] == [nodes.LIVE, nodes.LIVE]
    for bus in buses:
        lifecycle_of(bus).membership.leave()


def test_a_process_that_only_posts_follows_a_clock_that_was_set(
    machine: Machine, make_service: MakeService, recorder: Recorder
) -> None:
    service = make_service()
    queue = service.create_queue("s", "q", recorder, event_types=[Order])
    queue.schedule(Order(1), delay=60.0)

    machine.suspend(HOUR)
    machine.set_clock(-HOUR)

    before = shown(engine_of(service).store)
    late = queue.schedule(Order(2), delay=60.0)
    (entry,) = queue.find(record_ids=[late])
    assert abs(entry.created_date - before) < NEAR
    assert abs(entry.effective_date - before - timedelta(seconds=60)) < NEAR
    with statements_of(database_of(service)) as statements:
        queue.schedule(Order(3), delay=60.0)
    assert not [text for text in statements.texts if "_timestamp(" in text], (
        "the clock is read once a lease"
    )
