"""Of a limited queue, all nodes together run no more than its limit says."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import URL

import stickybus
from queue_core.model.lanes import SUSPECT, limited_lane
from stickybus import InvalidPostError, Limit, Mode, PersistentBus, State
from tests.contract.cluster import Cluster, Peer
from tests.contract.conftest import MakeBus, MakeService
from tests.contract.harness import Order, Recorder, ended, eventually

BUS_LANE = limited_lane("bus")


def claimed(bus: PersistentBus) -> int:
    """How many entries are claimed now, by anybody."""
    return len(bus.find(states=State.IN_PROCESSING))


def hear(cluster: Cluster, *peers: Peer) -> None:
    """Let the time pass after which each node has heard of a change."""
    cluster.live(1, *peers)
    for peer in peers:
        peer.lifecycle.limited.turn(cluster.clock.monotonic())


def numbers_run(*peers: Peer) -> list[int]:
    return sorted(number for peer in peers for number in peer.handler.numbers())


# -- concurrency ----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", list(Mode))
def test_all_nodes_together_claim_no_more_than_the_limit(cluster: Cluster, mode: Mode) -> None:
    one, other = cluster.join("a", mode=mode), cluster.join("b", mode=mode)
    one.bus.limit(concurrency=3)
    hear(cluster, one, other)

    for number in range(10):
        (one, other)[number % 2].bus.post(Order(number))
        one.claim()
        other.claim()
        assert claimed(one.bus) <= 3

    assert claimed(one.bus) == 3
    one.run()
    other.run()
    hear(cluster, one, other)
    one.run()
    assert numbers_run(one, other) == list(range(10))


def test_what_was_born_claimed_before_its_node_knew_of_the_limit_waits_for_a_place(
    cluster: Cluster,
) -> None:
    one, other = cluster.join("a"), cluster.join("b")
    for number in range(3):
        one.bus.post(Order(number))
    assert claimed(one.bus) == 3
    other.bus.limit(concurrency=1)
    hear(cluster, one, other)

    one.lifecycle.pool.run_submitted()
    one.lifecycle.finisher.write_all()

    assert one.handler.calls == 0
    assert [entry.lane for entry in one.bus.find()] == [BUS_LANE] * 3
    one.run()
    assert numbers_run(one) == [0, 1, 2]


def test_what_ran_before_its_node_knew_of_the_limit_counts(make_bus: MakeBus) -> None:
    handler = Recorder(hold=True)
    bus = make_bus(handler_threads=4)
    bus.subscribe(Order, handler, name="orders")
    bus.start()
    bus.post(Order(0))
    bus.post(Order(1))
    handler.wait(2)

    bus.limit(concurrency=3)
    for number in range(2, 6):
        bus.post(Order(number))
    handler.wait(3)
    eventually(
        lambda: any(one.lane == BUS_LANE for one in bus.find()), "the others wait for a place"
    )

    assert handler.running == claimed(bus) == 3
    handler.release()
    ended(bus, 6)
    assert handler.numbers() == list(range(6))


def test_an_entry_that_waits_for_its_retry_gives_its_place_up(cluster: Cluster) -> None:
    peer = cluster.join("a", retry=stickybus.ExponentialRetries(initial_seconds=300))
    peer.handler = Recorder(failures=1)
    peer.bus.limit(concurrency=1)
    peer.bus.post(Order(0))
    peer.bus.post(Order(1))
    peer.run()

    assert peer.handler.calls == 2
    assert [entry.error_count for entry in peer.bus.find()] == [1]


def test_the_places_of_a_dead_node_are_free_once_it_was_reaped(cluster: Cluster) -> None:
    dead, alive = cluster.join("a"), cluster.join("b")
    dead.bus.limit(concurrency=2)
    hear(cluster, dead, alive)
    for number in range(4):
        dead.bus.post(Order(number))
    assert len(dead.claim()) == 2
    alive.claim()
    assert claimed(alive.bus) == 2

    cluster.bury("a", alive)
    hear(cluster, alive)
    for _ in range(4):
        alive.run()
        hear(cluster, alive)

    assert numbers_run(alive) == list(range(4))
    assert dead.handler.calls == 0


def test_an_entry_that_took_its_process_down_goes_on_under_suspicion(cluster: Cluster) -> None:
    dead, alive = cluster.join("a", mode=Mode.POLLING), cluster.join("b", mode=Mode.POLLING)
    dead.bus.limit(concurrency=1)
    hear(cluster, dead, alive)
    dead.bus.post(Order(0))
    dead.claim()
    cluster.bury("a", alive)
    assert [entry.lane for entry in alive.bus.find()] == [SUSPECT]
    alive.bus.post(Order(1))
    alive.claim()

    hear(cluster, alive)
    assert claimed(alive.bus) == 1
    for _ in range(3):
        alive.run()
        hear(cluster, alive)
    assert numbers_run(alive) == [0, 1]


def test_a_changed_limit_holds_for_the_next_claim(cluster: Cluster) -> None:
    peer = cluster.join("a", handler_threads=8)
    peer.bus.limit(concurrency=4)
    for number in range(8):
        peer.bus.post(Order(number))
    peer.claim()
    assert claimed(peer.bus) == 4

    peer.bus.limit(concurrency=2)
    peer.claim()
    assert claimed(peer.bus) == 4
    peer.bus.limit(concurrency=6)
    hear(cluster, peer)
    peer.claim()
    assert claimed(peer.bus) == 6


def test_without_its_limit_all_that_waited_runs(cluster: Cluster) -> None:
    one, other = cluster.join("a"), cluster.join("b")
    one.bus.limit(concurrency=1)
    hear(cluster, one, other)
    for number in range(6):
        one.bus.post(Order(number))
    one.claim()

    assert other.bus.unlimit()
    hear(cluster, one, other)
    one.claim()
    other.claim()

    assert claimed(one.bus) == 6
    one.run()
    other.run()
    assert numbers_run(one, other) == list(range(6))
    assert not one.bus.unlimit()


def test_other_queues_of_the_table_run_on(make_service: MakeService) -> None:
    handlers = {"slow": Recorder(hold=True), "free": Recorder()}
    service = make_service(handler_threads=4)
    queues = {
        name: service.create_queue("shop", name, handler) for name, handler in handlers.items()
    }
    service.start()
    queues["slow"].limit(concurrency=1)

    for number in range(5):
        queues["slow"].schedule(Order(number), delay=0)
    handlers["slow"].wait(1)
    for number in range(5):
        queues["free"].schedule(Order(number), delay=0)

    handlers["free"].wait(5)
    assert handlers["slow"].most_running == 1
    handlers["slow"].release()
    ended(queues["slow"], 5)
    assert handlers["slow"].most_running == 1


def test_a_node_holds_no_more_than_it_runs_while_others_could(cluster: Cluster) -> None:
    one, other = cluster.join("a", handler_threads=2), cluster.join("b", handler_threads=2)
    one.bus.limit(concurrency=4)
    hear(cluster, one, other)
    for number in range(10):
        one.bus.post(Order(number))

    assert len(one.claim()) == 2
    hear(cluster, one, other)
    assert len(other.claim()) == 2


# -- per node -------------------------------------------------------------------------------------


def test_each_node_runs_no_more_than_its_share(cluster: Cluster) -> None:
    one, other = cluster.join("a"), cluster.join("b")
    one.bus.limit(per_node=2)
    hear(cluster, one, other)
    for number in range(10):
        one.bus.post(Order(number))

    assert len(one.claim()) == 2
    hear(cluster, one, other)
    assert len(other.claim()) == 2
    for _ in range(5):
        one.run()
        other.run()
        hear(cluster, one, other)
    assert numbers_run(one, other) == list(range(10))


# -- rate -----------------------------------------------------------------------------------------


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


# -- the limit itself -----------------------------------------------------------------------------


def test_a_limit_is_told_as_it_was_set(make_bus: MakeBus, database_url: URL) -> None:
    bus = make_bus()

    first = bus.limit(concurrency=5)
    assert first.limited_by != ""
    made = bus.limit(per_node=2, rate=100, per=timedelta(minutes=1), burst=10, by="ann")

    assert bus.limits() == [made]
    assert made == Limit(
        table="bus_events",
        queue_name="bus",
        per_node=2,
        rate=100,
        per=timedelta(minutes=1),
        burst=10,
        limited_by="ann",
        since=made.since,
    )
    with stickybus.inspect(database_url) as inspector:
        assert inspector.limits() == [made]
        assert inspector.limits(table="notifications") == []


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"burst": 3},
        {"concurrency": 0},
        {"concurrency": True},
        {"per_node": 2**31},
        {"rate": 1.5},
        {"rate": 1, "per": timedelta()},
        {"rate": 1, "per": 60},
        {"rate": 1, "burst": 0},
        {"concurrency": 1, "by": "x" * 256},
    ],
)
def test_a_limit_that_means_nothing_is_refused(make_bus: MakeBus, options: Any) -> None:
    bus = make_bus()
    with pytest.raises(InvalidPostError, match="Nothing was written"):
        bus.limit(**options)
    assert bus.limits() == []


def test_the_awaitable_twins_do_the_same(make_bus: MakeBus) -> None:
    bus = make_bus()

    async def main() -> None:
        made = await bus.limit_async(concurrency=1)
        assert await bus.limits_async() == [made]
        assert await bus.unlimit_async()
        assert bus.limits() == []

    asyncio.run(main())


def test_a_limit_holds_for_a_node_that_starts_from_its_first_entry(make_bus: MakeBus) -> None:
    make_bus().limit(concurrency=1)
    handler = Recorder(hold=True)
    bus = make_bus(handler_threads=4)
    for number in range(4):
        bus.post(Order(number))
    bus.subscribe(Order, handler, name="orders")
    bus.start()
    for number in range(4, 6):
        bus.post(Order(number))
    handler.release()

    ended(bus, 6)
    assert handler.most_running == 1


# -- why an entry waits ---------------------------------------------------------------------------


def test_an_entry_that_waits_for_a_place_is_explained(cluster: Cluster) -> None:
    peer = cluster.join("a")
    peer.bus.limit(concurrency=2, by="ann")
    for number in range(3):
        peer.bus.post(Order(number))
    peer.claim()
    [waiting] = peer.bus.find(states=State.AVAILABLE)
    peer.beat()

    [reason] = peer.bus.explain(waiting.record_id).reasons
    assert reason.code == "limited"
    assert (reason.facts["concurrency"], reason.facts["running"]) == (2, 2)
    assert "limited to 2 at once by ann" in reason.text
    held = ", ".join(str(one.record_id) for one in peer.bus.find(states=State.IN_PROCESSING))
    assert reason.facts["running_ids"] == held
    assert f"Running now: 2 ({held})" in reason.text
    assert reason.facts["until"] is None

    peer.bus.unlimit()
    [reason] = peer.bus.explain(waiting.record_id).reasons
    assert reason.code == "unlimited"


def test_the_first_entries_that_hold_places_are_named(cluster: Cluster) -> None:
    peer = cluster.join("a", handler_threads=6)
    peer.bus.limit(concurrency=6)
    for number in range(7):
        peer.bus.post(Order(number))
    peer.claim()
    [waiting] = peer.bus.find(states=State.AVAILABLE)

    [reason] = [one for one in peer.bus.explain(waiting.record_id).reasons if one.code == "limited"]
    assert (reason.facts["running"], reason.facts["running_ids"]) == (6, "1, 2, 3, 4, 5, ...")


def test_it_is_explained_until_when_the_rate_holds_an_entry_up(cluster: Cluster) -> None:
    peer = cluster.join("a")
    peer.bus.limit(rate=1, per=timedelta(minutes=1))
    for number in range(2):
        peer.bus.post(Order(number))
    peer.claim()
    peer.run()
    [waiting] = peer.bus.find(states=State.AVAILABLE)
    peer.beat()
    until = cluster.clock.now() + timedelta(minutes=1)

    [reason] = peer.bus.explain(waiting.record_id).reasons
    assert (reason.code, reason.facts["until"]) == ("limited", until)
    assert "Its rate allows the next start at 2026-01-01 00:01:00 UTC" in reason.text

    cluster.live(61, peer, step=3)
    [reason] = peer.bus.explain(waiting.record_id).reasons
    assert (reason.code, reason.facts["until"]) == ("limited", None)
