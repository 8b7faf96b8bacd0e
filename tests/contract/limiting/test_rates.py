"""Of a queue with a rate, all nodes together start no more than it says."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.contract.cluster import Cluster
from tests.contract.conftest import MakeBus
from tests.contract.harness import Order, Recorder, ended
from tests.contract.limiting.looks import hear, numbers_run
from tests.contract.pausing.looks import BUS_LANE as PAUSED_LANE
from tests.contract.pausing.looks import lanes


def test_no_more_than_the_rate_starts(cluster: Cluster) -> None:
    one, other = cluster.join("a", handler_threads=8), cluster.join("b", handler_threads=8)
    one.bus.limit(rate=6, per=timedelta(minutes=1), burst=2)
    hear(cluster, one, other)
    for number in range(10):
        one.bus.post(Order(number))

    one.run()
    other.run()
    assert len(numbers_run(one, other)) == 2
    for minute in range(1, 3):
        for _ in range(20):
            cluster.live(3, one, other)
            one.run()
            other.run()
        assert len(numbers_run(one, other)) == min(10, 2 + 6 * minute)


def test_a_higher_rate_holds_at_once(cluster: Cluster) -> None:
    one = cluster.join("a", handler_threads=8)
    one.bus.limit(rate=2, per=timedelta(days=1), burst=2)
    hear(cluster, one)
    for number in range(10):
        one.bus.post(Order(number))
    one.run()
    assert len(numbers_run(one)) == 2

    one.bus.limit(rate=6, per=timedelta(minutes=1))
    hear(cluster, one)
    for started in range(3, 6):
        one.run()
        assert len(numbers_run(one)) == started
        cluster.live(10, one)


@pytest.mark.parametrize("rate", [{"rate": 2, "burst": 2}, {"rate_per_key": 2, "burst_per_key": 2}])
def test_what_a_paused_queue_does_not_start_uses_up_nothing_of_its_rate(
    cluster: Cluster, rate: Any
) -> None:
    one, other = cluster.join("a"), cluster.join("b")
    one.bus.limit(**rate, per=timedelta(hours=2))
    hear(cluster, one, other)
    one.bus.pause()
    hear(cluster, one, other)
    for number in range(3):
        one.bus.post(Order(number), limit_key="k")
    for _ in range(3):
        one.run()
        other.run()
        hear(cluster, one, other)
    assert lanes(one.bus) == [PAUSED_LANE] * 3

    other.bus.resume()
    hear(cluster, one, other)
    one.run()
    other.run()
    assert numbers_run(one, other) == [0, 1]


@pytest.mark.parametrize("rate", ["rate", "rate_per_key"])
def test_what_waits_for_a_rate_uses_up_nothing_of_it_while_its_queue_is_paused(
    cluster: Cluster, rate: str
) -> None:
    one = cluster.join("a")
    limit: dict[str, Any] = {rate: 1, "per": timedelta(hours=1)}
    one.bus.limit(**limit)
    hear(cluster, one)
    for number in range(3):
        one.bus.post(Order(number), limit_key="k")
    one.run()
    assert numbers_run(one) == [0]

    one.bus.pause()
    hear(cluster, one)
    cluster.live(3600, one)
    for _ in range(3):
        one.run()
        hear(cluster, one)
    one.bus.resume()
    hear(cluster, one)
    one.run()
    assert numbers_run(one) == [0, 1]


def test_at_a_rate_the_next_entry_starts_at_its_date(make_bus: MakeBus) -> None:
    handler = Recorder()
    bus = make_bus(poll_interval_seconds=600)
    bus.subscribe(Order, handler, name="orders")
    bus.start()
    bus.limit(rate=20)
    began = datetime.now(UTC)
    for number in range(5):
        bus.post(Order(number))

    starts = [entry.started_date for entry in ended(bus, 5) if entry.started_date is not None]
    # By the database's clock, which is this machine's.
    assert max(starts) - began >= timedelta(milliseconds=4 * 50)
