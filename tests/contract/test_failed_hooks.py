"""Hooks of `on_failed` learn of every entry that ends FAILED, once, whatever ended it."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest
from sqlalchemy.exc import SQLAlchemyError

from queue_core.model.entry import Entry
from queue_core.model.retry_policies import ImmediateRetries
from queue_core.model.states import State
from queue_core.running.subscriber import EntryContext
from tests.contract.cluster import Cluster, Peer
from tests.contract.conftest import MakeBus
from tests.contract.harness import (
    BOUND_SECONDS,
    Order,
    Recorder,
    ended,
    eventually,
    lost_answers,
    moving,
    stops,
)

Told = list[tuple[int, str]]


def listen(peer: Peer, told: Told) -> Told:
    """Note what the hooks of a peer are told: the id, and the error up to its colon."""

    @peer.bus.on_failed
    def note(entry: Entry, last_error: str) -> None:
        told.append((entry.record_id, last_error.partition(":")[0]))

    return told


def failed_ids(peer: Peer) -> list[int]:
    return [entry.record_id for entry in peer.bus.history(states=[State.FAILED])]


def test_an_exactly_once_handler_that_succeeds_after_another_gave_up_tells_the_hook(
    make_bus: MakeBus,
) -> None:
    bus, told, gave_up = make_bus(retry=ImmediateRetries(1)), list[str](), Recorder(failures=9)

    @bus.on_failed
    def note(_entry: Entry, last_error: str) -> None:
        told.append(last_error)

    @bus.subscribe(Order, name="gives_up", retry=ImmediateRetries(0))
    def give_up(order: Order, context: EntryContext) -> None:
        gave_up(order, context)

    @bus.subscribe(Order, name="succeeds", exactly_once=True)
    def succeed(order: Order, context: EntryContext) -> None:
        if context.error_count == 0:
            raise ValueError("not yet")

    bus.start()
    bus.post(Order(1))

    [entry] = ended(bus)
    assert (entry.processing_state, gave_up.calls) == (State.FAILED, 1)
    eventually(lambda: told, "the hook is told")
    bus.stop()
    assert told == [entry.last_error]


def test_a_run_that_fails_while_the_bus_stops_tells_the_hook_before_the_stop_ends(
    make_bus: MakeBus,
) -> None:
    bus, told, fails = (
        make_bus(retry=ImmediateRetries(0)),
        list[int](),
        Recorder(failures=1, hold=True),
    )
    bus.on_failed(lambda entry, _error: told.append(entry.record_id))
    bus.subscribe(Order, fails)
    bus.start()
    record_id = bus.post(Order(1))
    fails.wait()
    stopping = threading.Thread(target=bus.stop)
    stopping.start()
    eventually(lambda: stops(bus), "the stop is under way")

    fails.release()
    stopping.join()

    assert told == [record_id]


def test_a_hook_that_hangs_at_the_end_keeps_a_stop_no_longer_than_it_was_given(
    make_bus: MakeBus,
) -> None:
    bus, fails = make_bus(retry=ImmediateRetries(0)), Recorder(failures=1, hold=True)
    told, release = threading.Event(), threading.Event()

    @bus.on_failed
    def hang(_entry: Entry, _error: str) -> None:
        told.set()
        release.wait()

    bus.subscribe(Order, fails)
    bus.start()
    bus.post(Order(1))
    fails.wait()
    stopping = threading.Thread(target=bus.stop, args=(0.2,))
    stopping.start()
    eventually(lambda: stops(bus), "the stop is under way")

    fails.release()
    assert told.wait(BOUND_SECONDS)
    stopping.join(BOUND_SECONDS)

    assert not stopping.is_alive()
    release.set()


@pytest.mark.parametrize("committed", ["committed", "not committed"])
def test_an_outcome_whose_commit_gave_no_answer_tells_the_hook_once(
    cluster: Cluster, committed: str
) -> None:
    peer = cluster.join("a", retry=ImmediateRetries(0))
    peer.handler = Recorder(failures=1)
    told = listen(peer, [])
    record_id = peer.bus.post(Order(1))

    finish = moving(peer.store.database, "INTO bus_events_history")
    with lost_answers(peer.store.database, finish, committed=committed == "committed") as lost:
        with pytest.raises(SQLAlchemyError):
            peer.run()
        peer.run()

    assert lost
    assert told == [(record_id, "RuntimeError")]
    assert failed_ids(peer) == [record_id]
    assert len(peer.lifecycle.ledger) == 0


@pytest.mark.parametrize("found_by", ["a reaper", "its next process"])
def test_an_entry_that_kept_killing_its_process_tells_the_hook(
    cluster: Cluster, found_by: str
) -> None:
    told = Told()
    watcher = cluster.join("watcher", max_redispatches=0)
    listen(watcher, told)
    victim = cluster.join("a", max_redispatches=0)
    victim.bus.post(Order(1))
    for _ in range(2):
        assert victim.claim()
        if found_by == "a reaper":
            cluster.bury("a", watcher)
        cluster.vanish(victim)
        if found_by == "its next process":
            cluster.change_row("a", pid=2**22)
        victim = cluster.peer("a", max_redispatches=0)
        if found_by == "its next process":
            listen(victim, told)
        victim.join()
    watcher.lifecycle.pool.run_submitted()
    victim.lifecycle.pool.run_submitted()

    assert told == [(record_id, "PoisonEntry") for record_id in failed_ids(watcher)]
    assert len(told) == 1


def test_an_entry_that_was_parked_for_too_long_tells_the_hook(cluster: Cluster) -> None:
    peer = cluster.join("a")
    told = listen(peer, [])
    record_id = cluster.peer("b").bus.post({"a": 1}, event_name="Invoice.paid")
    peer.run()
    cluster.clock.advance(seconds=timedelta(days=15).total_seconds())
    peer.beat()

    peer.run()

    assert told == [(record_id, "UnknownEvent")]
