"""One runner: what a node does after its lease ended and began anew."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from stickybus import State
from tests.contract.cluster import Cluster
from tests.contract.conftest import MakeBus
from tests.contract.harness import Order, Recorder, engine_of, eventually
from tests.contract.invariants.ends import processed


@pytest.mark.parametrize("mode", ["STICKY_EVENTS", "STICKY_POLLING", "POLLING"])
def test_a_node_that_was_declared_dead_starts_nothing_that_it_held_then(
    cluster: Cluster, mode: str
) -> None:
    frozen, heir = cluster.join("a", mode=mode), cluster.join("b", mode=mode)
    ids = frozen.bus.post_many([Order(1), Order(2)])
    assert frozen.claim() == ids  # in the pool's queue
    cluster.bury("a", heir)
    heir.run()

    frozen.beat()  # and registers anew
    assert frozen.node.lease.holds()
    frozen.run()

    assert frozen.handler.numbers() == []
    assert heir.handler.numbers() == [1, 2]
    assert processed(heir) == ids


def test_what_a_node_held_runs_there_if_nobody_took_it(cluster: Cluster) -> None:
    frozen, heir = cluster.join("a"), cluster.join("b")
    ids = frozen.bus.post_many([Order(1), Order(2)])
    cluster.change_row("a", state="DEAD")  # declared dead; its entries not moved yet

    frozen.beat()
    frozen.run()
    heir.run()

    assert frozen.handler.numbers() == [1, 2]
    assert processed(frozen) == ids


def test_the_next_subscriber_of_an_entry_starts_only_within_the_lease(cluster: Cluster) -> None:
    frozen, heir = cluster.join("a"), cluster.join("b")
    second, other = Recorder(), Recorder()
    frozen.handler = Recorder(hold=True)
    frozen.bus.subscribe(Order, second, name="second")
    heir.bus.subscribe(Order, other, name="second")
    [record_id] = [frozen.bus.post(Order(1))]
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(frozen.lifecycle.run_due)
        frozen.handler.wait()
        cluster.bury("a", heir)
        heir.run()
        frozen.handler.release()
        run.result()

    assert (second.calls, other.calls) == (0, 1)
    assert processed(heir) == [record_id]


def test_a_subscriber_that_succeeded_before_the_lease_ended_is_not_run_again(
    cluster: Cluster,
) -> None:
    peer = cluster.join("a")
    second = Recorder()
    peer.handler = Recorder(hold=True)
    peer.bus.subscribe(Order, second, name="second")
    peer.bus.post(Order(1))
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(peer.lifecycle.run_due)
        peer.handler.wait()
        cluster.clock.advance(seconds=60)  # no beat, and nobody there to take over
        peer.handler.release()
        run.result()
    assert second.calls == 0

    peer.beat()
    peer.run()

    assert (peer.handler.calls, second.calls) == (1, 1)
    [ended] = peer.bus.history()
    assert (ended.processing_state, ended.error_count) == (State.PROCESSED, 0)


def test_serial_turns_that_come_after_the_lease_are_passed_on(cluster: Cluster) -> None:
    peer, slow = cluster.join("a"), Recorder(hold=True)
    peer.bus.unsubscribe(peer.handle)
    peer.bus.subscribe(Order, slow, name="serial", serial=True)
    peer.bus.post(Order(1))
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(peer.lifecycle.pool.run_submitted)
        slow.wait()
        peer.bus.post_many([Order(2), Order(3)])
        peer.lifecycle.pool.run_submitted()  # both wait for their turn
        cluster.clock.advance(seconds=60)
        slow.release()
        first.result()
    peer.lifecycle.pool.run_submitted()
    peer.lifecycle.pool.run_submitted()
    assert slow.numbers() == [1]

    peer.beat()
    peer.run()

    assert slow.numbers() == [1, 2, 3]
    assert len(processed(peer)) == 3


def test_the_turn_at_a_serial_handler_outlives_a_stop_that_ran_out_of_time(
    make_bus: MakeBus,
) -> None:
    bus, slow = make_bus(), Recorder(hold=True)
    bus.subscribe(Order, slow, name="serial", serial=True)
    bus.start()
    bus.post(Order(1))
    slow.wait()
    bus.post(Order(2))
    found = engine_of(bus).router.subscribers("bus", bus.find()[0].class_name)
    assert found
    [subscriber] = found
    turns = subscriber.gate
    assert turns is not None

    def waiting() -> int:
        return sum(turns.expected.values()) + len(turns.others)

    eventually(lambda: waiting() == 1, "the second waits for its turn")
    assert not bus.stop(timeout_seconds=0)
    bus.start()
    eventually(lambda: waiting() == 2, "the second waits again, behind the turn of the life before")

    slow.release()

    eventually(lambda: len(bus.history(states=[State.PROCESSED])) == 2, "both have ended")
    assert bus.find() == []
    assert slow.numbers() == [1, 2]
