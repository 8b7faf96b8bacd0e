"""Metrics of a bus and a notification service on each database, and the reads of a scrape."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from prometheus_client import REGISTRY, CollectorRegistry
from sqlalchemy import URL, create_engine, text

from queue_core.reading import depths
from queue_core.runtime.manual_clock import ManualClock
from stickybus import (
    BusConfig,
    ImmediateRetries,
    NotificationConfig,
    NotificationService,
    PersistentBus,
)
from tests.contract.cluster import Cluster, QuietNode
from tests.contract.harness import (
    Order,
    Recorder,
    database_of,
    engine_of,
    lifecycle_of,
    statements_of,
)


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def bus(
    database_url: URL, registry: CollectorRegistry, clock: ManualClock
) -> Iterator[PersistentBus]:
    """A bus whose turns the tests take."""
    config = BusConfig(handler_threads=2, node_name="a", retry=ImmediateRetries(1))
    bus = PersistentBus(database_url, config, clock=clock, metrics_registry=registry)
    yield bus
    if lifecycle_of(bus).node is not None:
        lifecycle_of(bus).membership.leave()
    bus.close()


Shown = Callable[..., float | None]


@pytest.fixture
def shown(registry: CollectorRegistry) -> Shown:
    def value(name: str, **labels: str) -> float | None:
        known = labels or {"table": "bus_events", "queue_name": "bus"}
        return registry.get_sample_value(f"stickybus_{name}", known)

    return value


def run(bus: PersistentBus) -> None:
    while lifecycle_of(bus).run_due():
        pass


def test_posts_claims_and_outcomes_are_counted(bus: PersistentBus, shown: Shown) -> None:
    bus.post_many([Order(1), Order(2), Order(3)])
    bus.subscribe(Order, Recorder(failures=3), name="orders")
    lifecycle_of(bus).membership.join(QuietNode)

    run(bus)

    # Two runs each, but for one: the first three runs fail.
    assert shown("entries_posted_total") == 3
    assert shown("entries_processed_total") == 3
    assert shown("entries_retried_total") == 3
    assert shown("entries_claimed_total") == 6
    assert shown("entries_failed_total") is None
    assert shown("start_latency_seconds_count") == 6
    for statement in ("post", "claim", "finish"):
        assert (shown("statement_seconds_count", table="bus_events", statement=statement) or 0) > 0
        assert (shown("batch_entries_sum", table="bus_events", statement=statement) or 0) >= 3


def test_posts_with_keys_are_counted_by_their_answers(bus: PersistentBus, shown: Shown) -> None:
    for on_conflict in ("return", "return", "replace"):
        bus.post(Order(1), key="a", on_conflict=on_conflict)
    labels = {"table": "bus_events", "queue_name": "bus"}
    for answer in ("added", "already_queued", "updated"):
        assert shown("keyed_posts_total", answer=answer, **labels) == 1
    assert shown("entries_posted_total") == 1


def test_a_dead_letter_is_counted(bus: PersistentBus, shown: Shown) -> None:
    bus.subscribe(Order, Recorder(failures=9), name="orders")
    lifecycle_of(bus).membership.join(QuietNode)
    bus.post(Order(1))

    run(bus)

    assert shown("entries_failed_total") == 1
    assert shown("entries_retried_total") == 1
    assert shown("entries_processed_total") is None


def test_an_event_without_a_subscriber_is_counted_as_undelivered(
    bus: PersistentBus, shown: Shown
) -> None:
    engine_of(bus).types.register(Order)
    lifecycle_of(bus).membership.join(QuietNode)
    bus.post(Order(1))

    run(bus)

    assert shown("entries_undelivered_total") == 1
    assert shown("entries_processed_total") == 1


def test_an_exactly_once_handler_counts_as_processed(bus: PersistentBus, shown: Shown) -> None:
    bus.subscribe(Order, Recorder(), name="orders", exactly_once=True)
    lifecycle_of(bus).membership.join(QuietNode)
    bus.post(Order(1))

    run(bus)

    assert shown("entries_processed_total") == 1
    assert shown("start_latency_seconds_count") == 1
    assert shown("entries_undelivered_total") is None


def test_a_scrape_shows_depth_and_age_of_what_is_ready(
    bus: PersistentBus, clock: ManualClock, shown: Shown
) -> None:
    assert shown("entries_ready") == 0
    assert shown("oldest_ready_age_seconds") == 0
    bus.post(Order(1))
    clock.advance(seconds=30)
    bus.post_many([Order(2), Order(3)])
    clock.advance(seconds=12)

    assert shown("entries_ready") == 3
    assert shown("oldest_ready_age_seconds") == 42


def test_what_runs_is_in_flight_and_not_ready(bus: PersistentBus, shown: Shown) -> None:
    bus.subscribe(Order, Recorder(), name="orders")
    lifecycle_of(bus).membership.join(QuietNode)
    bus.post_many([Order(1), Order(2)])

    assert shown("entries_ready") == 0
    assert shown("entries_in_flight", table="bus_events") == 2

    run(bus)

    assert shown("entries_in_flight", table="bus_events") == 0


def test_a_scrape_shows_what_is_parked(bus: PersistentBus, shown: Shown) -> None:
    bus.post({"number": 1}, event_name="unknown_here")
    # The name is forgotten, as by another version of the program.
    config = BusConfig(handler_threads=2, node_name="b")
    other_registry = CollectorRegistry()
    with ExitStack() as closing:
        other = PersistentBus(
            database_of(bus).url,
            config,
            clock=engine_of(bus).store.clock,
            metrics_registry=other_registry,
        )
        closing.callback(other.close)
        lifecycle_of(other).membership.join(QuietNode)
        closing.callback(lifecycle_of(other).membership.leave)
        run(other)

    assert shown("entries_parked") == 1
    assert shown("entries_ready") == 0


def test_a_scrape_shows_what_is_left_of_the_lease(
    bus: PersistentBus, clock: ManualClock, shown: Shown
) -> None:
    assert shown("node_lease_left_seconds", table="bus_events") == 0
    lifecycle_of(bus).membership.join(QuietNode)
    clock.advance(seconds=3)

    # A tenth of the lease of 15 seconds is given up.
    assert shown("node_lease_left_seconds", table="bus_events") == pytest.approx(10.5)
    assert shown("database_up", table="bus_events") == 1


def test_a_scrape_reads_a_bounded_number_of_rows(
    bus: PersistentBus, shown: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(depths, "COUNT_LIMIT", 20)
    bus.post_many([Order(number) for number in range(50)])

    with statements_of(database_of(bus)) as statements:
        assert shown("entries_ready") == 20

    # One seek before the lanes of limit keys and one after them, one more for each lane, and one
    # read of each lane.
    reads = [
        statement
        for statement in statements.starting_with("SELECT")
        if "FROM bus_events" in statement
    ]
    assert len(reads) == 4


def test_a_scrape_while_the_database_is_gone_still_answers(
    database_url: URL, registry: CollectorRegistry
) -> None:
    bus = PersistentBus(database_url, metrics_registry=registry)
    engine = create_engine(database_url)
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE bus_events"))
    engine.dispose()

    assert registry.get_sample_value("stickybus_database_up", {"table": "bus_events"}) == 0
    bus.close()
    assert registry.get_sample_value("stickybus_database_up", {"table": "bus_events"}) is None


def test_entries_of_a_dead_node_are_counted_by_who_reaps_them(cluster: Cluster) -> None:
    def reaped() -> Any:
        labels = {"table": "bus_events", "queue_name": "bus"}
        return REGISTRY.get_sample_value("stickybus_entries_reaped_total", labels) or 0

    before = reaped()
    dead, heir = cluster.join("dead"), cluster.join("heir")
    dead.bus.post_many([Order(1), Order(2)])

    cluster.bury("dead", heir)

    assert reaped() - before == 2


def test_a_bus_and_a_service_share_a_registry(
    bus: PersistentBus,
    database_url: URL,
    registry: CollectorRegistry,
    clock: ManualClock,
    shown: Shown,
) -> None:
    config = NotificationConfig(handler_threads=2, node_name="n")
    service = NotificationService(database_url, config, clock=clock, metrics_registry=registry)
    queue = service.create_queue("billing", "due", Recorder(), event_types=(Order,))
    bus.post(Order(1))
    queue.schedule(Order(2), delay=60)
    queue.schedule(Order(3), delay=0)

    assert shown("entries_posted_total") == 1
    due = {"table": "notifications", "queue_name": "billing:due"}
    assert shown("entries_posted_total", **due) == 2
    assert shown("entries_ready", **due) == 1
    assert shown("entries_ready") == 1
    service.close()
