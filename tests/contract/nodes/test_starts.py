"""Starts, restarts and closes."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import URL, create_engine

from bus.memory import InMemoryBus
from bus.persistent import PersistentBus
from queue_core.errors import LifecycleError
from queue_core.model.config import BusConfig
from queue_core.model.mode import Mode
from queue_core.model.states import State
from tests.contract.conftest import MakeBus, MakeService
from tests.contract.harness import (
    Order,
    Recorder,
    ended,
    engine_of,
    eventually,
    lifecycle_of,
    nodes_here,
    states,
)

each_mode = pytest.mark.parametrize("mode", list(Mode))


@each_mode
def test_an_event_posted_before_the_start_is_delivered_after_it(
    make_bus: MakeBus, mode: Mode
) -> None:
    bus, recorder = make_bus(mode=mode), Recorder()
    bus.subscribe(Order, recorder)
    bus.post(Order(1))
    bus.post_many([Order(2), Order(3)])
    assert recorder.calls == 0
    bus.start()
    ended(bus, 3)
    assert recorder.numbers() == [1, 2, 3]


def _starts_with_so_few_threads(start: Callable[[], object]) -> Iterator[int]:
    """Start with no thread, with one, with two and so on, until it succeeds.

    Yields the number of threads of each start that failed.
    """
    begin = threading.Thread.start
    for allowed in itertools.count():
        begun = itertools.count()

        def begin_some(
            thread: threading.Thread, begun: Any = begun, allowed: int = allowed
        ) -> None:
            if next(begun) >= allowed:
                raise RuntimeError("can't start new thread")
            begin(thread)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(threading.Thread, "start", begin_some)
            try:
                start()
            except RuntimeError:
                yield allowed
            else:
                return


def test_a_start_that_runs_out_of_threads_leaves_no_node_and_can_be_repeated(
    make_bus: MakeBus,
) -> None:
    bus, recorder = make_bus(handler_threads=2), Recorder()
    bus.subscribe(Order, recorder)
    starts, before = 0, {**nodes_here}  # other tests leave nodes without loops there
    for starts in _starts_with_so_few_threads(bus.start):  # noqa: B007
        assert (lifecycle_of(bus).node, nodes_here) == (None, before)

    assert starts >= 5
    bus.post(Order(1))
    assert recorder.wait() == [Order(1)]


def test_a_service_whose_start_runs_out_of_threads_serves_no_queue(
    make_service: MakeService,
) -> None:
    service, recorder = make_service(handler_threads=2), Recorder()
    queue = service.create_queue("ordering", "orders", recorder)
    starts, before = 0, {**nodes_here}
    for starts in _starts_with_so_few_threads(service.start):  # noqa: B007
        assert (lifecycle_of(service).node, nodes_here, queue.started) == (
            None,
            before,
            False,
        )

    assert starts >= 6
    queue.schedule({}, delay=0, event_name="due")
    recorder.wait()


def test_an_in_memory_bus_whose_start_runs_out_of_threads_leaves_none() -> None:
    bus, recorder = InMemoryBus(BusConfig(handler_threads=2)), Recorder()
    before = set(threading.enumerate())  # some may be of another test, and end meanwhile
    bus.subscribe(Order, recorder)
    starts = 0
    for starts in _starts_with_so_few_threads(bus.start):  # noqa: B007
        eventually(
            lambda: set(threading.enumerate()) <= before, "the threads that could start have ended"
        )

    assert starts == 1
    bus.post(Order(1))
    assert recorder.wait() == [Order(1)]
    bus.stop()


def test_a_post_that_can_start_no_thread_for_hints_has_posted(make_bus: MakeBus) -> None:
    bus, recorder = make_bus(mode=Mode.POLLING), Recorder()
    hints = lifecycle_of(bus).hints
    bus.subscribe(Order, recorder)
    bus.start()
    hints.stop()
    for _ in _starts_with_so_few_threads(lambda: bus.post(Order(1))):
        pytest.fail("it raised for a hint")
    recorder.wait(1)
    bus.post(Order(2))

    assert sorted(order.number for order in recorder.wait(2)) == [1, 2]
    capabilities = engine_of(bus).store.database.dialect.capabilities
    assert hints.running is (capabilities.notifies or capabilities.wakes_idle)


@each_mode
def test_events_work_again_after_each_restart(make_bus: MakeBus, mode: Mode) -> None:
    bus, recorder = make_bus(mode=mode), Recorder(failures=1)
    bus.subscribe(Order, recorder)
    for round_ in range(3):
        bus.start()
        bus.post(Order(2 * round_))
        recorder.wait(round_ * 2 + 2)
        assert bus.stop()
        bus.post(Order(2 * round_ + 1))
    bus.start()
    assert set(states(ended(bus, 6))) == {State.PROCESSED}
    assert sorted(set(recorder.numbers())) == list(range(6))


def test_a_second_start_is_refused_and_harms_nothing(make_bus: MakeBus) -> None:
    bus, recorder = make_bus(), Recorder()
    bus.subscribe(Order, recorder)
    bus.start()
    with pytest.raises(LifecycleError, match="already"):
        bus.start()
    bus.post(Order(1))
    ended(bus)


def test_a_second_start_of_a_service_is_refused_and_harms_nothing(
    make_service: MakeService,
) -> None:
    service, recorder = make_service(), Recorder()
    queue = service.create_queue("ordering", "orders", recorder)
    service.start()
    with pytest.raises(LifecycleError, match="already"):
        service.start()
    queue.schedule({}, delay=0, event_name="due")
    recorder.wait()


def test_a_bus_used_in_a_with_block_is_closed_after_it(database_url: URL) -> None:
    recorder = Recorder()
    before = set(threading.enumerate())
    with PersistentBus(database_url, BusConfig(handler_threads=2)) as bus:
        bus.subscribe(Order, recorder)
        bus.post(Order(1))
        ended(bus)
    eventually(lambda: set(threading.enumerate()) <= before, "its threads have ended")


@each_mode
def test_a_bus_on_the_applications_engine_uses_connections_of_its_own(
    make_bus: MakeBus, database_url: URL, mode: Mode
) -> None:
    application = create_engine(database_url)
    bus, recorder = make_bus(database=application, mode=mode), Recorder()
    bus.subscribe(Order, recorder)
    bus.start()
    with application.begin() as connection:
        bus.post(Order(1), connection=connection)
    bus.post(Order(2))
    ended(bus, 2)
    assert recorder.numbers() == [1, 2]
    bus.close()
    with application.connect() as connection:  # still the application's
        assert connection.exec_driver_sql("SELECT 1").scalar() == 1
    application.dispose()


def test_a_bus_that_never_starts_can_post_and_read_and_close(make_bus: MakeBus) -> None:
    web = make_bus()
    record_id = web.post(Order(1), search_key1=1)
    assert [entry.record_id for entry in web.find(search_key1=1)] == [record_id]
    assert web.ready_count() == 1
    web.close()
