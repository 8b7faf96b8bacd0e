"""Of the failed entries one at a time probes, whatever becomes of it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import delete

from queue_core.model.lanes import circuit_lane
from sql.tables import queue_circuits
from stickybus import Circuit, ExactlyOnceContext, State
from tests.contract.circuits.outages import (
    POLICY,
    POLICY_OF_OTHERS,
    Other,
    Service,
    fail,
    join,
    pass_time,
    probe,
    waiting,
)
from tests.contract.cluster import Cluster, Peer
from tests.contract.harness import Order, states


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


def test_a_circuit_whose_entries_were_removed_one_after_the_other_is_closed_within_a_second(
    cluster: Cluster,
) -> None:
    peer = join(cluster, "a", Service())
    for record_id in fail(peer, 1, 2):
        peer.bus.remove_all(record_ids=[record_id])

    pass_time(cluster, 1, peer)
    assert peer.bus.open_circuits() == []

    [record_id] = fail(peer, 3)
    [circuit] = peer.bus.open_circuits()
    assert (circuit.probe_id, circuit.failures) == (record_id, 1)
    assert circuit.probe_date == cluster.clock.now() + timedelta(seconds=10)


def test_a_circuit_whose_only_entry_somebody_has_deleted_is_closed_within_a_second(
    cluster: Cluster,
) -> None:
    peer = join(cluster, "a", Service())
    [record_id] = fail(peer, 1)
    peer.bus.pause(handler="another")  # others look after pauses, too
    main = peer.store.statements.main
    gone = delete(main).where(main.c.record_id == record_id)
    peer.store.database.write(lambda connection: connection.execute(gone))

    pass_time(cluster, 1, peer)

    assert peer.bus.open_circuits() == []


@pytest.mark.parametrize("away", [False, True])
def test_the_only_one_that_has_failed_is_the_probe_though_another_circuit_has_others(
    cluster: Cluster, *, away: bool
) -> None:
    service, other = Service(), Service()
    peer = join(cluster, "a", service)
    peer.bus.subscribe(Other, other, name="other", retry=POLICY_OF_OTHERS)
    peer.bus.post_many([Other(1), Other(2)])
    peer.bus.post(Order(1), key="effect")
    peer.run()

    peer.bus.post(Order(2), key="effect", on_conflict="replace")
    service.away = away
    pass_time(cluster, 1, peer)

    mine = [circuit for circuit in peer.bus.open_circuits() if circuit.handler == "orders"]
    assert [circuit.failures for circuit in mine] == ([2] if away else [])


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


@pytest.mark.parametrize("on_conflict", ["replace", "debounce"])
def test_another_one_is_chosen_for_a_probe_that_is_replaced_again_and_again(
    cluster: Cluster, on_conflict: Any
) -> None:
    service = Service()
    peer = join(cluster, "a", service)
    first = peer.bus.post(Order(1), key="effect")
    peer.run()
    fail(peer, 2)
    assert probe(peer) == first
    service.away = False

    for _ in range(3):
        peer.bus.post(Order(3), key="effect", delay=6, on_conflict=on_conflict)
        pass_time(cluster, 3, peer)

    assert service.served == [2]
    assert peer.bus.open_circuits() == []
    pass_time(cluster, 6, peer)
    assert service.served == [2, 3]


@pytest.mark.parametrize("away", [False, True])
def test_the_only_one_that_has_failed_is_the_probe_though_it_is_replaced(
    cluster: Cluster, *, away: bool
) -> None:
    service = Service()
    peer = join(cluster, "a", service)
    peer.bus.post(Order(1), key="effect")
    peer.run()

    peer.bus.post(Order(2), key="effect", on_conflict="replace")
    service.away = away
    pass_time(cluster, 1, peer)

    assert [circuit.failures for circuit in peer.bus.open_circuits()] == ([2] if away else [])


def test_the_success_of_another_handlers_event_in_its_place_closes_nothing(
    cluster: Cluster,
) -> None:
    service, other = Service(), Service(away=False)
    peer = join(cluster, "a", service)
    peer.bus.subscribe(Other, other, name="other")
    peer.bus.post(Order(1), key="effect")
    peer.run()
    ids = fail(peer, 2, 3)
    [opened] = peer.bus.open_circuits()
    pass_time(cluster, 2, peer)
    peer.bus.post(Other(4), key="effect", on_conflict="replace")
    peer.run()

    assert other.served == [4]
    pass_time(cluster, 1, peer)
    [circuit] = peer.bus.open_circuits()
    assert circuit.since == opened.since
    assert circuit.probe_id in ids


def test_one_that_is_not_due_is_no_probe(cluster: Cluster) -> None:
    service = Service()
    peer = join(cluster, "a", service)
    first, second = fail(peer, 1, 2)
    peer.bus.reschedule_all(record_ids=[second], delay=100)
    peer.bus.remove_all(record_ids=[first])

    service.refused.clear()
    pass_time(cluster, 50, peer)
    assert service.refused == []
    assert waiting(peer) == [second]
    [third] = fail(peer, 3)
    assert probe(peer) == third
    service.away = False
    pass_time(cluster, 25, peer)
    assert service.served == [3]
    assert peer.bus.open_circuits() == []
    pass_time(cluster, 30, peer)
    assert service.served == [3, 2]


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
