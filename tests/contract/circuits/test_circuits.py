"""While a handler's circuit is open, its failed entries wait, and one of them probes."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from stickybus import BusConfig, Circuit, Fail, GiveUp, Retry, RetryLater, State
from tests.contract.circuits.outages import (
    LANE,
    POLICY,
    Other,
    Service,
    fail,
    join,
    pass_time,
    probe,
    waiting,
)
from tests.contract.cluster import Cluster
from tests.contract.conftest import MakeBus, MakeService
from tests.contract.harness import Order, ended, eventually, states


def test_failed_entries_wait_and_one_at_a_time_probes_after_growing_delays(
    cluster: Cluster,
) -> None:
    service = Service()
    peer = join(cluster, "a", service)

    ids = fail(peer, 1, 2, 3)

    assert service.refused == [1, 2, 3]
    assert probe(peer) == ids[0]
    assert waiting(peer) == ids[1:]
    for passed, failures in ((9, 1), (1, 2), (19, 2), (1, 3), (39, 3), (1, 4), (59, 4), (1, 5)):
        pass_time(cluster, passed, peer)
        [circuit] = peer.bus.open_circuits()
        assert circuit.failures == failures, "probes come after 10, 20, 40 and 60 s"
        assert sorted([*waiting(peer), circuit.probe_id]) == ids
    assert len(service.refused) == 3 + 4


def test_fresh_entries_run(cluster: Cluster) -> None:
    service = Service()
    peer = join(cluster, "a", service)
    ids = fail(peer, 1, 2)
    service.away = False

    peer.bus.post(Order(3))
    peer.run()

    assert service.served == [3]
    assert waiting(peer) == ids[1:], "only a probe closes it"


def test_the_first_success_of_a_probe_lets_all_run(cluster: Cluster) -> None:
    service = Service()
    one, other = join(cluster, "a", service), join(cluster, "b", service)
    fail(one, 1, 2, 3)
    fail(other, 4, 5)
    assert len(waiting(one)) == 4

    service.away = False
    pass_time(cluster, 11, one, other)
    assert one.bus.open_circuits() == []
    pass_time(cluster, 1, one, other)

    assert sorted(service.served) == [1, 2, 3, 4, 5]
    assert one.bus.find() == []


def test_of_all_nodes_together_one_entry_probes_at_a_time(cluster: Cluster) -> None:
    service = Service()
    peers = [join(cluster, name, service) for name in "abc"]
    for place, peer in enumerate(peers):
        fail(peer, *range(10 * place, 10 * place + 10))
    service.refused.clear()

    for _ in range(5):
        pass_time(cluster, 61, *peers)

    assert len(service.refused) == 5
    assert len(waiting(peers[0])) == 29


def test_it_opens_again_after_the_next_failure(cluster: Cluster) -> None:
    service = Service()
    peer = join(cluster, "a", service)
    fail(peer, 1)
    service.away = False
    pass_time(cluster, 11, peer)
    assert peer.bus.open_circuits() == []

    service.away = True
    [record_id] = fail(peer, 2)

    [circuit] = peer.bus.open_circuits()
    assert (circuit.probe_id, circuit.failures) == (record_id, 1)


def test_it_holds_over_a_restart(make_bus: MakeBus) -> None:
    service = Service()
    policy = Circuit(initial_seconds=3600, maximum_seconds=3600)
    first = make_bus()
    first.subscribe(Order, service, name="orders", retry=policy)
    first.start()
    ids = [first.post(Order(number)) for number in (1, 2)]
    eventually(lambda: [entry.lane for entry in first.find()].count(LANE) == 1, "one waits")
    eventually(lambda: {entry.error_count for entry in first.find()} == {1}, "both have failed")
    [before] = first.open_circuits()
    assert before.probe_id in ids
    first.stop()
    first.close()

    second = make_bus()
    second.subscribe(Order, service, name="orders", retry=policy)
    second.start()
    third = second.post(Order(3))
    eventually(lambda: service.refused[2:] == [3], "the fresh one runs")
    eventually(
        lambda: LANE in [entry.lane for entry in second.find(record_ids=[third])], "it waits"
    )

    assert second.open_circuits() == [before]
    assert sorted(service.refused) == [1, 2, 3]


def test_other_handlers_go_on(cluster: Cluster) -> None:
    away, there = Service(), Service(away=False)
    peer = join(cluster, "a", away)
    peer.bus.register_event(Other)
    peer.bus.subscribe(Other, there, name="others", retry=POLICY)
    fail(peer, 1, 2)
    peer.bus.post(Other(3))
    peer.run()
    assert there.served == [3]

    there.away = True
    peer.bus.post(Other(4))
    peer.run()
    there.away = False
    pass_time(cluster, 11, peer)

    assert there.served == [3, 4]
    assert [circuit.handler for circuit in peer.bus.open_circuits()] == ["orders"]


@pytest.mark.parametrize("answer", [GiveUp("closed"), Fail("closed")])
def test_who_gives_up_opens_no_circuit(cluster: Cluster, answer: Any) -> None:
    peer = cluster.join("a")
    peer.bus.subscribe("other", _answering(answer), name="others", retry=POLICY)

    record_id = peer.bus.post({}, event_name="other")
    peer.run()

    assert states(peer.bus.history(record_ids=[record_id])) == [State.FAILED]
    assert peer.bus.open_circuits() == []


@pytest.mark.parametrize("answer", [RetryLater(30), Retry(after=30)])
def test_who_asks_for_a_date_gets_it(cluster: Cluster, answer: Any) -> None:
    peer = cluster.join("a")
    peer.bus.subscribe("other", _answering(answer), name="others", retry=POLICY)

    record_id = peer.bus.post({}, event_name="other")
    peer.run()

    [entry] = peer.bus.find(record_ids=[record_id])
    assert (entry.effective_date - cluster.clock.now()).total_seconds() == pytest.approx(30)
    assert peer.bus.open_circuits() == []


def _answering(answer: Any) -> Any:
    def handle(_event: dict[str, Any]) -> Any:
        if isinstance(answer, BaseException):
            raise answer
        return answer

    return handle


def test_only_the_handler_that_failed_waits(cluster: Cluster) -> None:
    away, there = Service(), Service(away=False)
    peer = join(cluster, "a", away)
    peer.bus.subscribe(Order, there, name="others")

    fail(peer, 1, 2)
    assert there.served == [1, 2]
    away.away = False
    pass_time(cluster, 11, peer)
    pass_time(cluster, 1, peer)

    assert away.served == [1, 2]
    assert there.served == [1, 2]
    assert peer.bus.find() == []


def test_two_handlers_that_fail_on_two_nodes_at_once_end_in_no_deadlock(make_bus: MakeBus) -> None:
    services = Service(), Service()
    policy = Circuit(initial_seconds=0.05, maximum_seconds=0.2)
    buses = [make_bus(node_name=name) for name in ("a", "b")]
    for bus in buses:
        for name, service in zip(("one", "two"), services, strict=True):
            bus.subscribe(Order, service, name=name, retry=policy)
        bus.start()
    for number in range(100):
        buses[number % 2].post(Order(number))

    def has_refused_all(service: Service) -> bool:
        return len(set(service.refused)) == 100

    for service in services:
        eventually(partial(has_refused_all, service), "all have failed")

    for service in services:
        service.away = False

    eventually(lambda: not buses[0].find(), "all have ended")
    for service in services:
        assert sorted(service.served) == list(range(100))
    assert buses[0].open_circuits() == []


@pytest.mark.slow
def test_notification_queues_have_circuits(make_service: MakeService) -> None:
    service, away = make_service(), Service()
    queue = service.create_queue(
        "shop", "reminders", away, retry=Circuit(initial_seconds=0.2, jitter=0)
    )
    queue.start()
    service.start()
    for number in range(5):
        queue.schedule(Order(number), delay=0)
    eventually(lambda: len(set(away.refused)) == 5, "all have failed")
    [circuit] = eventually(queue.open_circuits, "it is open")
    assert (circuit.queue_name, circuit.handler) == ("shop:reminders", "shop:reminders")

    away.away = False

    ended(queue, 5)
    assert sorted(away.served) == list(range(5))
    assert queue.open_circuits() == []


def test_a_configuration_may_name_it() -> None:
    assert BusConfig(retry={"kind": "circuit", "max_retries": 7}).retry == Circuit(max_retries=7)
