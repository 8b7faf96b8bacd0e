"""Stops: what ends, what is given back, and who runs it."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import pytest
from sqlalchemy import Engine, event

from bus.persistent import PersistentBus
from queue_core.model.lanes import ANY_NODE
from queue_core.model.retry_policies import ImmediateRetries, ScheduledRetries
from queue_core.model.states import State
from sql.capabilities import Capabilities
from tests.contract.cluster import born_claimed
from tests.contract.conftest import MakeBus, MakeService
from tests.contract.harness import (
    Order,
    Recorder,
    database_of,
    ended,
    engine_of,
    eventually,
    lifecycle_of,
    states,
    stops,
)


def _wait_until_nothing_starts(bus: PersistentBus) -> None:
    eventually(
        lambda: stops(bus),
        "the bus stops, nothing more is started",
    )


def test_a_stop_lets_running_handlers_finish_and_writes_their_outcomes(make_bus: MakeBus) -> None:
    bus, recorder = make_bus(handler_threads=3), Recorder(hold=True)
    bus.subscribe(Order, recorder)
    bus.start()
    bus.post_many([Order(1), Order(2), Order(3)])
    recorder.wait(3)
    stopping = threading.Thread(target=bus.stop)
    stopping.start()
    _wait_until_nothing_starts(bus)
    recorder.release()
    stopping.join()
    assert states(bus.history()) == [State.PROCESSED] * 3
    assert bus.find() == []


def test_a_stop_gives_back_what_has_not_started(make_bus: MakeBus) -> None:
    short: dict[str, Any] = {
        "lease_seconds": 0.6,
        "beat_interval_seconds": 0.1,
        "reap_period_seconds": 0.1,
    }
    bus, recorder = make_bus(handler_threads=1, **short), Recorder(hold=True)
    bus.subscribe(Order, recorder)
    bus.start()
    bus.post_many(Order(number) for number in range(10))
    recorder.wait(1)
    stopping = threading.Thread(target=bus.stop)
    stopping.start()
    _wait_until_nothing_starts(bus)
    recorder.release()
    stopping.join()
    assert states(bus.history()) == [State.PROCESSED]
    rest = bus.find()
    assert states(rest) == [State.AVAILABLE] * 9
    assert {entry.processing_owner for entry in rest} == {None}
    assert {entry.error_count for entry in rest} == {0}
    # For one lease the node might come back under its name; then what it left is for others.
    heir, heard = make_bus(**short), Recorder()
    heir.subscribe(Order, heard)
    heir.start()
    ended(bus, 10)
    assert sorted(recorder.numbers() + heard.numbers()) == list(range(10))


def test_a_stop_gives_a_backlog_back_by_few_statements(make_bus: MakeBus) -> None:
    entries = 3_500
    bus, recorder = make_bus(handler_threads=1), Recorder(hold=True)
    bus.subscribe(Order, recorder)
    bus.start()
    bus.post_many([Order(number) for number in range(entries)])
    recorder.wait(1)
    changes = list[str]()

    def note(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        if "bus_events SET" in statement:
            changes.append(statement)

    for own in database_of(bus).engines:
        event.listen(own, "before_cursor_execute", note)
    stopping = threading.Thread(target=bus.stop)
    stopping.start()
    _wait_until_nothing_starts(bus)
    recorder.release()
    stopping.join()

    rest = bus.find(limit=entries)
    assert states(rest) == [State.AVAILABLE] * (entries - 1)
    assert {(entry.crash_count, entry.claim_count) for entry in rest} == {(0, 2)}
    assert 1 <= len(changes) <= 50


def test_a_stop_whose_time_is_up_leaves_the_rest_to_others_who_suspect_none_of_it(
    make_bus: MakeBus,
) -> None:
    short: dict[str, Any] = {
        "lease_seconds": 0.6,
        "beat_interval_seconds": 0.1,
        "reap_period_seconds": 0.1,
    }
    bus = make_bus(handler_threads=1, **short)
    recorder = Recorder(hold=True)
    bus.subscribe(Order, recorder)
    bus.start()
    bus.post_many([Order(number) for number in range(50)])
    recorder.wait(1)
    lifecycle_of(bus).holdings.release = lambda *_: 0  # type: ignore[method-assign]
    bus.stop(timeout_seconds=0)

    heir, heard = make_bus(**short), Recorder()
    heir.subscribe(Order, heard)
    heir.start()
    eventually(
        lambda: len(heir.history(states=[State.PROCESSED], limit=100)) == 50,
        "the heir has run all",
    )
    recorder.release()

    assert {entry.crash_count for entry in heir.history(limit=200)} == {0}


def test_a_stop_gives_back_what_a_caller_has_committed_and_nobody_looked_up(
    make_bus: MakeBus, engine: Engine
) -> None:
    bus = make_bus(poll_interval_seconds=3600.0)
    bus.start()
    sweep = lifecycle_of(bus).claim_loop.sweep
    eventually(lambda: sweep.next_turn > 0.0, "the only sweep before the stop is over")
    bus.post(Order(1))
    ended(bus, 1)
    with engine.connect() as connection:
        record_id = bus.post(Order(2), connection=connection)
        driver: Any = connection.connection.driver_connection
        driver.cursor().execute("COMMIT")  # past SQLAlchemy, which would announce it
        bus.stop()
    (left,) = bus.find()
    assert (left.record_id, left.processing_state, left.processing_owner) == (
        record_id,
        State.AVAILABLE,
        None,
    )


def test_a_stop_that_runs_out_of_time_says_so_and_the_outcome_is_written_when_the_handler_ends(
    make_bus: MakeBus,
) -> None:
    bus, recorder = make_bus(), Recorder(hold=True)
    bus.subscribe(Order, recorder)
    bus.start()
    bus.post(Order(1))
    recorder.wait(1)
    assert not bus.stop(timeout_seconds=0)
    recorder.release()
    (entry,) = ended(bus)
    assert entry.processing_state is State.PROCESSED
    bus.start()
    bus.post(Order(2))
    ended(bus, 2)
    assert recorder.numbers() == [1, 2]


def test_a_failure_after_the_stop_is_told_to_the_hooks(make_bus: MakeBus) -> None:
    bus, recorder = make_bus(retry=ImmediateRetries(0)), Recorder(hold=True, failures=1)
    bus.subscribe(Order, recorder)
    told = list[int]()
    bus.on_failed(lambda entry, _error: told.append(entry.record_id))
    bus.start()
    record_id = bus.post(Order(1))
    recorder.wait(1)
    assert not bus.stop(timeout_seconds=0)
    recorder.release()
    assert states(ended(bus)) == [State.FAILED]
    eventually(lambda: told == [record_id], "the hook is called")


@pytest.mark.parametrize("another", [False, True], ids=["same", "another"])
@pytest.mark.parametrize("kept", [False, True], ids=["alone", "kept"])
def test_a_start_after_a_stop_in_vain_runs_nothing_beside_itself(
    make_bus: MakeBus, make_service: MakeService, *, another: bool, kept: bool
) -> None:
    first, recorder = make_bus(node_name="shared", handler_threads=2), Recorder(hold=True)
    first.subscribe(Order, recorder, name="orders")
    if kept:
        make_service(node_name="shared").start()
    first.start()
    first.post(Order(1))
    recorder.wait(1)
    assert not first.stop(timeout_seconds=0)
    second = make_bus(node_name="shared", handler_threads=2) if another else first
    if another:
        first.close()
        second.subscribe(Order, recorder, name="orders")
    second.start()
    sweep = lifecycle_of(second).claim_loop.sweep
    lifecycle_of(second).holdings.doubt()
    lifecycle_of(second).claimer.turn_soon()
    eventually(lambda: sweep.next_turn > 0.0, "the sweep takes a turn")
    second.post(Order(2))
    recorder.wait(2)
    recorder.release()

    assert states(ended(second, 2)) == [State.PROCESSED] * 2
    assert recorder.numbers() == [1, 2]


def _left_by_a_bus(make_bus: MakeBus, make_service: MakeService) -> tuple[PersistentBus, Recorder]:
    """A bus whose node lives on with a service."""
    bus, recorder = make_bus(node_name="shared", handler_threads=1), Recorder(hold=True)
    bus.subscribe(Order, recorder)
    make_service(node_name="shared").start()
    return bus.start(), recorder


def _heir(make_bus: MakeBus) -> tuple[PersistentBus, Recorder]:
    heir, heard = make_bus(node_name="heir", reap_period_seconds=0.1), Recorder()
    heir.subscribe(Order, heard)
    return heir.start(), heard


def test_what_a_bus_had_not_started_runs_elsewhere_at_once_though_its_node_lives_on(
    make_bus: MakeBus, make_service: MakeService
) -> None:
    bus, recorder = _left_by_a_bus(make_bus, make_service)
    bus.post_many(Order(number) for number in range(5))
    recorder.wait(1)
    heir, heard = _heir(make_bus)
    assert not bus.stop(timeout_seconds=0)

    heard.wait(4)
    assert heard.numbers() == [1, 2, 3, 4]
    heir.stop()
    recorder.release()
    (own,) = [entry for entry in ended(bus, 5) if entry.processing_owner == "shared"]
    assert (own.processing_state, own.redispatch_count) == (State.PROCESSED, 0)
    assert recorder.numbers() == [0]


def test_what_waited_for_its_bus_runs_elsewhere_though_its_node_lives_on(
    make_bus: MakeBus, make_service: MakeService, engine: Engine
) -> None:
    bus, fails = make_bus(node_name="shared", retry=ScheduledRetries((3600,))), Recorder(failures=1)
    bus.subscribe(Order, fails)
    make_service(node_name="shared").start()
    bus.start()
    bus.post(Order(1))
    eventually(lambda: [entry.error_count for entry in bus.find()] == [1], "the retry is written")
    assert bus.stop()
    heir, heard = _heir(make_bus)
    eventually(lambda: [entry.lane for entry in heir.find()] == [ANY_NODE], "any node may run it")
    with engine.begin() as connection:  # as if the time had passed
        connection.exec_driver_sql("UPDATE bus_events SET effective_date = created_date")
    heard.wait(1)
    assert states(ended(heir)) == [State.PROCESSED]


def test_a_commit_after_the_stop_of_its_bus_runs_elsewhere_though_its_node_lives_on(
    make_bus: MakeBus, make_service: MakeService
) -> None:
    bus, recorder = _left_by_a_bus(make_bus, make_service)
    heir, heard = _heir(make_bus)
    assert bus.stop()
    born_claimed(engine_of(bus), "shared", 1)
    heard.wait(1)
    assert states(ended(heir)) == [State.PROCESSED]
    assert recorder.calls == 0


def test_events_posted_while_the_bus_stops_are_not_lost(make_bus: MakeBus, engine: Engine) -> None:
    bus, recorder = make_bus(), Recorder(hold=True)
    bus.subscribe(Order, recorder)
    bus.start()
    bus.post(Order(0))
    recorder.wait(1)
    stopping = threading.Thread(target=bus.stop)
    stopping.start()
    _wait_until_nothing_starts(bus)
    bus.post(Order(1))
    with engine.begin() as connection:
        bus.post(Order(2), connection=connection)
    recorder.release()
    stopping.join()
    assert len(bus.history()) == 1
    assert states(bus.find()) == [State.AVAILABLE] * 2
    bus.start()
    ended(bus, 3)
    assert recorder.numbers() == [0, 1, 2]


def test_posters_do_not_notice_restarts(make_bus: MakeBus) -> None:
    bus, recorder = make_bus(), Recorder()
    bus.subscribe(Order, recorder)
    bus.start()
    done = threading.Event()
    posted = list[int]()

    def post() -> None:
        while not done.is_set():
            bus.post(Order(len(posted)))
            posted.append(len(posted))

    def reached(goal: int) -> bool:
        return len(posted) >= goal

    poster = threading.Thread(target=post)
    poster.start()
    for goal in range(20, 120, 20):
        eventually(partial(reached, goal), "the poster goes on")
        bus.stop()
        bus.start()
    done.set()
    poster.join()
    ended(bus, len(posted))
    assert sorted(set(recorder.numbers())) == list(range(len(posted)))
    assert recorder.calls == len(posted), "a stop in good order repeats nothing"


def test_a_commit_that_ends_after_the_stop_is_delivered_after_the_restart(
    make_bus: MakeBus, engine: Engine, capabilities: Capabilities
) -> None:
    bus, recorder = make_bus(), Recorder()
    bus.subscribe(Order, recorder)
    bus.start()
    with engine.connect() as connection:
        bus.post(Order(1), connection=connection)
        if capabilities.one_writer:
            # The stop has to write: it waits for the only writer.
            connection.commit()
            bus.stop()
        else:
            bus.stop()
            connection.commit()
    bus.start()
    ended(bus)
    assert recorder.events == [Order(1)]


def test_a_handler_may_unregister_itself_and_stop_its_bus(make_bus: MakeBus) -> None:
    bus, stopped = make_bus(), threading.Event()

    def stop_from_outside() -> None:
        bus.stop()
        stopped.set()

    @bus.subscribe(Order)
    def stop(_order: Order) -> None:
        bus.unsubscribe(stop)
        threading.Thread(target=stop_from_outside).start()

    bus.start()
    bus.post(Order(1))
    assert stopped.wait(20)
    assert states(bus.history()) == [State.PROCESSED]


def test_a_stop_without_a_start_and_a_second_stop_do_nothing(make_bus: MakeBus) -> None:
    bus = make_bus()
    assert bus.stop()
    bus.start()
    assert bus.stop()
    assert bus.stop()
