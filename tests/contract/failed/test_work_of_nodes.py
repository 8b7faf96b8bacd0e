"""The work of each node is counted."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import URL

from queue_core.errors import ConfigurationError
from stickybus import PersistentBus, inspect
from tests.contract.conftest import MakeBus
from tests.contract.harness import eventually


def test_the_work_of_each_live_node_is_counted(
    holding: tuple[PersistentBus, int, list[int]], make_bus: MakeBus, database_url: URL
) -> None:
    bus, _, _ = holding
    bus.subscribe("Good", lambda _event: None)

    @bus.subscribe("Bad")
    def bad(_event: object) -> None:
        raise ValueError

    make_bus()
    for name in ("Good", "Good", "Bad"):
        bus.post({}, event_name=name)
    eventually(lambda: len(bus.history()) == 3, "they have ended")

    with inspect(database_url) as inspector:
        [worker] = inspector.workers()
        [still] = inspector.workers(age=timedelta(0))
        with pytest.raises(ConfigurationError):
            inspector.workers(age=timedelta(-1))

    assert (worker.table, worker.queues) == ("bus_events", ("bus",))
    assert (worker.running, worker.processed, worker.failed) == (1, 2, 1)
    assert (still.running, still.processed, still.failed) == (1, 0, 0)
    bus.stop(0)


def test_what_a_node_has_ended_before_it_registered_anew_does_not_count(
    make_bus: MakeBus, database_url: URL
) -> None:
    older, node = make_bus(), make_bus()
    for bus in (older, node):
        bus.subscribe("Good", lambda _event: None)
        bus.start()
    node.post({}, event_name="Good")
    eventually(node.history, "it has ended")

    def counts() -> list[int]:
        with inspect(database_url) as inspector:
            return [worker.processed for worker in inspector.workers()]

    assert counts() == [0, 1]
    node.stop()
    node.start()
    assert counts() == [0, 0]
