"""Of a limited queue, all nodes together run no more than its limit says."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

import stickybus
from queue_core.model.entry import Entry
from queue_core.model.lanes import SUSPECT
from stickybus import Mode
from tests.contract.cluster import Cluster
from tests.contract.conftest import MakeBus, MakeService
from tests.contract.harness import Order, Recorder, elsewhere, ended, eventually
from tests.contract.limiting.looks import BUS_LANE, claimed, hear, numbers_run


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


def test_a_first_limit_that_comes_during_a_claim_sets_aside_what_has_no_place(
    cluster: Cluster,
) -> None:
    peer = cluster.join("a", mode=Mode.POLLING, handler_threads=8)
    for number in range(4):
        peer.bus.post(Order(number))
    places = peer.lifecycle.holdings.places
    concern = places.concern

    def hears_first(entries: Sequence[Entry]) -> bool:
        late.undo()
        elsewhere(lambda: peer.bus.limit(concurrency=3))
        return concern(entries)

    with pytest.MonkeyPatch.context() as late:
        late.setattr(places, "concern", hears_first)
        assert len(peer.claim()) == 3
    assert claimed(peer.bus) == 3
    peer.run()
    assert numbers_run(peer) == list(range(4))


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
