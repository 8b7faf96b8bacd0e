"""Who runs what is posted, and how soon: POLLING, STICKY_POLLING and STICKY_EVENTS."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import Engine

from queue_core.model.mode import Mode
from queue_core.model.states import State
from queue_core.runtime.manual_clock import ManualClock
from tests import requirements as needs
from tests.contract.cluster import Cluster
from tests.contract.conftest import MakeBus
from tests.contract.harness import Order, Recorder, ended, eventually

each_mode = pytest.mark.parametrize("mode", list(Mode))
NEVER_SECONDS = 3600.0
"""A poll interval that no test lives to see."""


@each_mode
def test_each_mode_delivers_each_event_once(make_bus: MakeBus, mode: Mode) -> None:
    bus, recorder = make_bus(mode=mode), Recorder(failures=5)
    bus.subscribe(Order, recorder)
    bus.start()
    for number in range(10):
        bus.post(Order(number))
    bus.post_many(Order(number) for number in range(10, 60))
    entries = ended(bus, 60)
    assert {entry.processing_state for entry in entries} == {State.PROCESSED}
    assert sum(entry.error_count for entry in entries) == 5
    assert sorted(set(recorder.numbers())) == list(range(60))
    assert recorder.calls == 65


@each_mode
def test_each_mode_delivers_a_commit_of_the_caller_and_no_rollback(
    make_bus: MakeBus, mode: Mode, engine: Engine
) -> None:
    bus, recorder = make_bus(mode=mode), Recorder()
    bus.subscribe(Order, recorder)
    bus.start()
    with engine.connect() as connection:
        bus.post(Order(1), connection=connection)
        connection.rollback()
        bus.post(Order(2), connection=connection)
        connection.commit()
    ended(bus)
    assert recorder.events == [Order(2)]


@each_mode
def test_each_mode_starts_an_own_post_at_once_and_not_at_the_next_poll(
    make_bus: MakeBus, mode: Mode
) -> None:
    bus, recorder = make_bus(mode=mode, poll_interval_seconds=NEVER_SECONDS), Recorder(failures=1)
    bus.subscribe(Order, recorder)
    bus.start()
    bus.post(Order(1))
    ended(bus, 1)
    bus.post(Order(2))
    ended(bus, 2)
    assert recorder.numbers() == [1, 1, 2]


@each_mode
def test_a_backlog_is_drained_without_a_pause_after_full_batches(
    make_bus: MakeBus, mode: Mode
) -> None:
    make_bus(mode=mode).post_many(Order(number) for number in range(95))
    clock = ManualClock(max(entry.effective_date for entry in make_bus().find()))
    bus, recorder = make_bus(mode=mode, clock=clock), Recorder()
    bus.subscribe(Order, recorder)
    bus.start()
    ended(bus, 95)  # time stands still: nothing can have waited for it
    assert recorder.numbers() == list(range(95))


@pytest.mark.parametrize("mode", [Mode.STICKY_POLLING, Mode.STICKY_EVENTS])
def test_in_the_sticky_modes_only_the_node_that_posted_runs_an_event(
    make_bus: MakeBus, mode: Mode
) -> None:
    buses = [make_bus(mode=mode, poll_interval_seconds=0.05) for _ in range(2)]
    recorders = [Recorder(), Recorder()]
    for bus, recorder in zip(buses, recorders, strict=True):
        bus.subscribe(Order, recorder)
        bus.start()
    for number in range(20):
        buses[number % 2].post(Order(number))
    entries = ended(buses[0], 20)
    assert recorders[0].numbers() == list(range(0, 20, 2))
    assert recorders[1].numbers() == list(range(1, 20, 2))
    assert all(entry.processing_owner == entry.creating_owner for entry in entries)


def test_in_polling_two_nodes_share_a_backlog_fairly(make_bus: MakeBus) -> None:
    recorders = [Recorder(hold=True), Recorder(hold=True)]
    buses = [
        make_bus(
            mode=Mode.POLLING,
            handler_threads=2,
            max_entries_claimed=50,
            poll_interval_seconds=0.05,
            node_name=name,
        )
        for name in ("left", "right")
    ]
    for bus, recorder in zip(buses, recorders, strict=True):
        bus.subscribe(Order, recorder)
        bus.start()
    buses[0].post_many(Order(number) for number in range(40))
    for recorder in recorders:
        recorder.wait(2)

    def held() -> list[int]:
        owners = [entry.processing_owner for entry in buses[0].find(states=[State.IN_PROCESSING])]
        return [owners.count("left"), owners.count("right")]

    eventually(lambda: held() == [4, 4], "each node holds twice its handler threads, and no more")
    for recorder in recorders:
        recorder.release()
    ended(buses[0], 40)
    assert sorted(recorders[0].numbers() + recorders[1].numbers()) == list(range(40))


@needs.heard_commits
@pytest.mark.parametrize("posted_in", ["own transaction", "caller's transaction"])
def test_a_node_is_told_of_another_processes_post(
    make_bus: MakeBus, engine: Engine, posted_in: str
) -> None:
    worker, recorder = make_bus(poll_interval_seconds=NEVER_SECONDS), Recorder()
    worker.subscribe(Order, recorder)
    worker.start()
    web = make_bus()  # never started: it posts for any node
    for number in range(3):
        if posted_in == "own transaction":
            web.post(Order(number))
        else:
            with engine.begin() as connection:
                web.post(Order(number), connection=connection)
        recorder.wait(number + 1)
    ended(worker, 3)


def test_a_node_that_runs_entries_in_no_time_holds_more_of_anybodys_than_a_slow_one(
    cluster: Cluster,
) -> None:
    peer, stranger = cluster.join("a", handler_threads=2, mode=Mode.POLLING), cluster.peer("b").bus
    stranger.post_many([Order(number) for number in range(100)])
    pace = peer.lifecycle.holdings.pace
    assert len(peer.claim()) == 4

    cluster.clock.advance(seconds=0.1)
    pace.ended(50, seconds=0.1)
    cluster.clock.advance(seconds=0.15)
    pace.ended(1, seconds=0.1)
    assert len(peer.claim()) == 50

    cluster.clock.advance(seconds=1.1)
    assert pace.entries == 0  # it has run nothing since


@needs.heard_commits
def test_a_polling_node_is_told_of_what_a_busy_node_has_posted(make_bus: MakeBus) -> None:
    settings: dict[str, Any] = {
        "mode": Mode.POLLING,
        "poll_interval_seconds": NEVER_SECONDS,
        "handler_threads": 1,
    }
    busy, idle = make_bus(**settings), make_bus(**settings)
    held, free = Recorder(hold=True), Recorder()
    idle.subscribe(Order, free)
    idle.start()
    busy.subscribe(Order, held)
    busy.start()
    busy.post_many(Order(number) for number in range(20))
    eventually(
        lambda: held.calls + len(idle.history()) + 1 >= 18,
        "the idle node runs what the busy one leaves",
    )
    held.release()
    ended(idle, 20)
    assert sorted(held.numbers() + free.numbers()) == list(range(20))


@needs.silent_commits
def test_where_nobody_is_told_the_poll_finds_another_processes_post(make_bus: MakeBus) -> None:
    worker, recorder = make_bus(poll_interval_seconds=0.05), Recorder()
    worker.subscribe(Order, recorder)
    worker.start()
    make_bus().post(Order(1))
    assert recorder.wait() == [Order(1)]


def test_a_node_leaves_to_others_what_it_does_not_subscribe_to(make_bus: MakeBus) -> None:
    settings: dict[str, Any] = {
        "mode": Mode.POLLING,
        "poll_interval_seconds": 0.05,
        "reap_period_seconds": 0.1,
    }
    orders, others = make_bus(**settings), make_bus(**settings)
    of_orders, of_others = Recorder(), Recorder()
    orders.subscribe(Order, of_orders)
    others.subscribe("other", of_others)
    for bus in (orders, others):
        bus.start()
    for number in range(10):
        orders.post({"number": number}, event_name="other")
        others.post(Order(number))
    ended(orders, 20)
    assert of_orders.numbers() == list(range(10))
    assert sorted(event["number"] for event in of_others.events) == list(range(10))
