"""While a handler's circuit is open, its failed entries wait, and one of them probes."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import pytest
from sqlalchemy import URL, delete

import stickybus
from queue_core.model.lanes import circuit_lane
from sql.tables import queue_circuits
from stickybus import (
    BusConfig,
    Circuit,
    ExactlyOnceContext,
    Fail,
    GiveUp,
    Retry,
    RetryLater,
    State,
)
from tests.contract.cluster import Cluster, Peer
from tests.contract.conftest import MakeBus, MakeService
from tests.contract.harness import Order, ended, eventually, states

LANE = circuit_lane("bus", "orders")
POLICY = Circuit(initial_seconds=10, factor=2, maximum_seconds=60, jitter=0)

POLICY_OF_OTHERS = Circuit(initial_seconds=1000, maximum_seconds=1000)


@dataclass(frozen=True)
class Other:
    """An event of another handler."""

    number: int


class Service:
    """What handlers call: away, or there. It keeps the numbers of the orders that came."""

    def __init__(self, *, away: bool = True) -> None:
        self.away = away
        self.refused = list[int]()
        self.served = list[int]()

    def __call__(self, event: Order | Other) -> None:
        if self.away:
            self.refused.append(event.number)
            raise ConnectionError("it is away")
        self.served.append(event.number)


def join(cluster: Cluster, name: str, service: Service, **settings: Any) -> Peer:
    """A node whose handler calls the service."""
    peer = cluster.join(name, **settings)
    peer.bus.unsubscribe(peer.handle)
    peer.bus.subscribe(Order, service, name="orders", retry=POLICY)
    return peer


def fail(peer: Peer, *numbers: int) -> list[int]:
    """Post orders that fail; their ids."""
    ids = [int(peer.bus.post(Order(number))) for number in numbers]
    peer.run()
    return ids


def pass_time(cluster: Cluster, seconds: float, *peers: Peer) -> None:
    """Let time pass, and run what is due then."""
    cluster.live(seconds, *peers)
    for peer in peers:
        peer.run()


def waiting(peer: Peer) -> list[int]:
    """The ids of the entries that wait for the circuit."""
    return [entry.record_id for entry in peer.bus.find() if entry.lane == LANE]


def probe(peer: Peer) -> int:
    """The id of the one entry that probes."""
    [found] = peer.bus.open_circuits()
    return found.probe_id


# -- its life -------------------------------------------------------------------------------------


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


def test_the_probe_is_chosen_at_random_among_the_failed(cluster: Cluster) -> None:
    service = Service()
    peer = join(cluster, "a", service)
    fail(peer, *range(20))
    service.refused.clear()

    for _ in range(20):
        pass_time(cluster, 61, peer)

    assert len(service.refused) == 20
    assert len(set(service.refused)) > 5
    assert service.refused[1:] != sorted(service.refused[1:])


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


def test_a_probe_runs_on_the_node_that_has_posted_it(cluster: Cluster) -> None:
    services = Service(), Service()
    one, other = join(cluster, "a", services[0]), join(cluster, "b", services[1])
    one.beat()
    other.beat()
    fail(one, 1, 2, 3)
    fail(other, 4, 5)

    for _ in range(12):
        pass_time(cluster, 61, one, other)

    assert set(services[0].refused) <= {1, 2, 3}
    assert set(services[1].refused) <= {4, 5}
    assert len(services[0].refused) + len(services[1].refused) > 5 + 6


# -- what becomes of the probe --------------------------------------------------------------------


def test_the_copy_of_a_probe_whose_node_was_killed_is_the_probe(cluster: Cluster) -> None:
    service = Service()
    dead, alive = join(cluster, "a", service), join(cluster, "b", service)
    ids = fail(dead, 1, 2, 3)
    cluster.live(10, dead, alive)
    assert dead.claim() == [ids[0]]

    cluster.vanish(dead)
    cluster.bury("a", alive)

    copy = probe(alive)
    assert copy not in ids
    [entry] = alive.bus.find(record_ids=[copy])
    assert entry.origin_id == ids[0]
    assert waiting(alive) == ids[1:]
    service.away = False
    pass_time(cluster, 60, alive)
    pass_time(cluster, 1, alive)
    assert sorted(service.served) == [1, 2, 3]


def test_another_one_is_chosen_for_a_probe_that_was_removed(cluster: Cluster) -> None:
    service = Service()
    peer = join(cluster, "a", service)
    first, second = fail(peer, 1, 2)

    peer.bus.remove_all(record_ids=[first])
    cluster.live(1, peer)
    peer.claim()

    assert probe(peer) == second
    assert waiting(peer) == []


def test_a_circuit_without_failed_entries_is_closed(cluster: Cluster) -> None:
    peer = join(cluster, "a", Service())
    [record_id] = fail(peer, 1)

    peer.bus.remove_all(record_ids=[record_id])

    assert peer.bus.open_circuits() == []


def test_another_one_is_chosen_for_a_probe_that_has_used_up_its_retries(cluster: Cluster) -> None:
    service = Service()
    peer = join(cluster, "a", service)
    peer.bus.unsubscribe(service)
    policy = Circuit(initial_seconds=10, jitter=0, max_retries=1)
    peer.bus.subscribe(Order, service, name="orders", retry=policy)
    first, second = fail(peer, 1, 2)

    pass_time(cluster, 11, peer)
    assert states(peer.bus.history(record_ids=[first])) == [State.FAILED]
    pass_time(cluster, 1, peer)

    assert states(peer.bus.history(record_ids=[second])) == [State.FAILED]
    assert peer.bus.open_circuits() == []


def test_another_one_is_chosen_for_a_probe_that_somebody_has_deleted(cluster: Cluster) -> None:
    service = Service()
    peer = join(cluster, "a", service)
    first, _ = fail(peer, 1, 2)
    main = peer.store.statements.main
    gone = delete(main).where(main.c.record_id == first)
    peer.store.database.write(lambda connection: connection.execute(gone))

    service.away = False
    pass_time(cluster, 2, peer)

    assert service.served == [2]
    assert peer.bus.find() == []


def test_a_circuit_whose_row_was_deleted_is_closed(cluster: Cluster) -> None:
    service = Service()
    peer = join(cluster, "a", service)
    fail(peer, 1, 2, 3)
    service.away = False

    peer.store.database.write(lambda connection: connection.execute(delete(queue_circuits)))
    pass_time(cluster, 2, peer)

    assert service.served == [2, 3]


def test_a_paused_handler_has_no_probe_run(cluster: Cluster) -> None:
    service = Service()
    peer = join(cluster, "a", service)
    fail(peer, 1, 2)
    service.away = False

    peer.bus.pause(handler="orders")
    pass_time(cluster, 20, peer)
    assert service.served == []
    peer.bus.resume(handler="orders")
    pass_time(cluster, 1, peer)
    pass_time(cluster, 1, peer)

    assert sorted(service.served) == [1, 2]


def test_a_probe_can_be_made_due_by_hand(cluster: Cluster) -> None:
    service = Service()
    peer = join(cluster, "a", service)
    ids = fail(peer, 1, 2)
    service.away = False

    assert peer.bus.reschedule_all(record_ids=[probe(peer)], delay=0).changed == 1
    pass_time(cluster, 1, peer)
    pass_time(cluster, 1, peer)

    assert len(peer.bus.history(record_ids=ids)) == 2


# -- answers of handlers --------------------------------------------------------------------------


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


def test_the_success_of_an_exactly_once_probe_closes_it_in_its_own_transaction(
    cluster: Cluster,
) -> None:
    service = Service()
    peer = cluster.join("a")
    peer.bus.unsubscribe(peer.handle)

    def handle(event: Order, context: ExactlyOnceContext) -> None:
        service(event)

    peer.bus.subscribe(Order, handle, name="orders", retry=POLICY, exactly_once=True)
    fail(peer, 1, 2)

    service.away = False
    pass_time(cluster, 11, peer)
    assert peer.bus.open_circuits() == []
    pass_time(cluster, 1, peer)

    assert service.served == [1, 2]


# -- several subscribers --------------------------------------------------------------------------


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


def test_a_probe_that_succeeds_while_another_handler_fails_closes_it(cluster: Cluster) -> None:
    first, second = Service(), Service()
    peer = join(cluster, "a", first)
    peer.bus.subscribe(Order, second, name="second", retry=POLICY_OF_OTHERS)
    fail(peer, 1, 2)
    assert [circuit.handler for circuit in peer.bus.open_circuits()] == ["orders"]

    first.away = False
    pass_time(cluster, 11, peer)

    assert [circuit.handler for circuit in peer.bus.open_circuits()] == ["second"]
    pass_time(cluster, 1, peer)
    assert sorted(first.served) == [1, 2]
    assert peer.bus.find() != []


def test_a_probe_that_waits_for_another_circuit_is_replaced(cluster: Cluster) -> None:
    one, two = Service(), Service(away=False)
    peer = join(cluster, "a", one)
    peer.bus.subscribe(Order, two, name="second", retry=POLICY)
    ids = fail(peer, 1, 2)
    # The probe of the first handler's circuit comes behind the second one's.
    peer.store.database.write(lambda connection: _set_aside(peer, connection, ids[0]))

    one.away = False
    pass_time(cluster, 2, peer)

    assert 2 in one.served


def _set_aside(peer: Peer, connection: Any, record_id: int) -> None:
    lane = circuit_lane("bus", "second")
    peer.store.statements.change(connection, record_id=record_id, values={"lane": lane})
    connection.execute(
        queue_circuits.insert().values(
            table_name=peer.store.config.table,
            lane=lane,
            queue_name="bus",
            handler="second",
            since=peer.store.clock.now(),
            probe_id=record_id,
            failures=1,
        )
    )


# -- nodes at work --------------------------------------------------------------------------------


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
    for service in services:
        eventually(lambda service=service: len(set(service.refused)) == 100, "all have failed")  # type: ignore[misc]

    for service in services:
        service.away = False

    eventually(lambda: not buses[0].find(), "all have ended")
    for service in services:
        assert sorted(service.served) == list(range(100))
    assert buses[0].open_circuits() == []


# -- notification queues --------------------------------------------------------------------------


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


# -- what is told ---------------------------------------------------------------------------------


def test_an_entry_that_waits_tells_since_when_and_what_probes_next(cluster: Cluster) -> None:
    peer = join(cluster, "a", Service())
    first, second = fail(peer, 1, 2)
    [circuit] = peer.bus.open_circuits()

    [reason] = peer.bus.explain(second).reasons

    assert reason.code == "circuit-open"
    assert reason.facts == {
        "handler": "orders",
        "since": circuit.since,
        "failures": 1,
        "probe_id": first,
        "probe_date": circuit.probe_date,
    }
    assert f"entry {first}, runs at {circuit.probe_date:%Y-%m-%d %H:%M:%S} UTC" in reason.text
    assert [one.code for one in peer.bus.explain(first).reasons] == ["waits-for-retry"]


def test_the_log_tells_when_entries_begin_and_end_to_wait(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    service = Service()
    peer = join(cluster, "a", service)
    caplog.set_level(logging.INFO)

    fail(peer, 1, 2)
    pass_time(cluster, 1, peer)
    pass_time(cluster, 1, peer)
    service.away = False
    pass_time(cluster, 11, peer)
    pass_time(cluster, 1, peer)
    pass_time(cluster, 1, peer)

    told = [line.split(" since=")[0] for line in caplog.messages if line.startswith("circuit_")]
    facts = "table=bus_events queue_name=bus subscriber=orders"
    assert told == [f"circuit_open {facts}", f"circuit_closed {facts}"]


def test_an_inspector_lists_open_circuits_and_counts_what_waits(
    cluster: Cluster, database_url: URL
) -> None:
    peer = join(cluster, "a", Service())
    fail(peer, 1, 2, 3)

    with stickybus.inspect(database_url) as inspector:
        assert inspector.open_circuits() == peer.bus.open_circuits()
        assert inspector.open_circuits(table="notifications") == []
        [queue] = inspector.queues(table=peer.store.config.table)

    assert (queue.paused, queue.scheduled + queue.ready) == (2, 1)


def test_a_configuration_may_name_it() -> None:
    assert BusConfig(retry={"kind": "circuit", "max_retries": 7}).retry == Circuit(max_retries=7)
