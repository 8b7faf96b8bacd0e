"""Settings that change between a stop and the next start."""

from __future__ import annotations

import pytest

from stickybus import (
    BusConfig,
    ConfigurationError,
    ImmediateRetries,
    LifecycleError,
    Mode,
    PayloadTooLargeError,
    PersistentBus,
    State,
)
from tests.contract.conftest import MakeBus, MakeService
from tests.contract.harness import eventually, handler_threads, lifecycle_of


def test_the_size_of_the_pool_and_the_poll_interval_change_with_the_next_start(
    make_bus: MakeBus,
) -> None:
    bus, seen = make_bus(handler_threads=2), list[int]()
    claimer = lifecycle_of(bus).claimer
    bus.subscribe("Tick", lambda event: seen.append(event["n"]), name="tick")
    others = set(handler_threads())  # of a test before, on their way to their ends
    bus.start()
    assert len(set(handler_threads()) - others) == 2
    room = claimer.room()
    bus.post({"n": 1}, event_name="Tick")
    eventually(lambda: seen == [1])
    bus.stop()
    bus.reconfigure(handler_threads=5, poll_interval_seconds=0.25)
    assert (bus.config.handler_threads, bus.config.poll_interval_seconds) == (5, 0.25)
    bus.start()
    assert len(set(handler_threads()) - others) == 5
    eventually(lambda: claimer.pause() > 0, "it has looked")
    assert claimer.pause() <= 0.25
    assert claimer.room() == room + 3
    bus.post({"n": 2}, event_name="Tick")
    eventually(lambda: seen == [1, 2])
    bus.stop()


def test_another_processs_posts_are_polled_for_by_the_new_interval(make_bus: MakeBus) -> None:
    bus, other = make_bus(mode="POLLING", poll_interval_seconds=3600.0), make_bus(mode="POLLING")
    seen = list[int]()
    bus.subscribe("Tick", lambda event: seen.append(event["n"]), name="tick")
    bus.start()
    bus.stop()
    bus.reconfigure(poll_interval_seconds=0.05)
    bus.start()
    lifecycle_of(bus).hint_listener.stop()  # no hint helps it
    eventually(lambda: lifecycle_of(bus).claimer.pause() > 0, "it has looked")
    other.post({"n": 1}, event_name="Tick")
    eventually(lambda: seen == [1])
    bus.stop()


def test_a_changed_policy_and_limit_are_obeyed(make_bus: MakeBus) -> None:
    bus = make_bus(retry=ImmediateRetries(3))
    bus.subscribe("Broken", lambda event: event["missing"], name="broken")
    bus.reconfigure(retry=ImmediateRetries(0), max_payload_bytes=20)
    with pytest.raises(PayloadTooLargeError):
        bus.post({"text": "a" * 20}, event_name="Broken")
    bus.start()
    bus.post({}, event_name="Broken")
    eventually(lambda: [entry.error_count for entry in bus.history(states=[State.FAILED])] == [1])
    bus.stop()


def test_a_started_bus_and_other_keys_are_refused_and_nothing_is_changed(
    make_bus: MakeBus, make_service: MakeService
) -> None:
    for target in (make_bus(), make_service()):
        before = target.config.model_copy()
        for changes in (
            {"mode": Mode.POLLING},
            {"table": "others"},
            {"queue_capacity": 5},
            {"x": 1},
        ):
            with pytest.raises(ConfigurationError, match="build a new one") as caught:
                target.reconfigure(**changes)
            assert caught.value.key in changes
        with pytest.raises(ConfigurationError, match="handler_threads"):
            target.reconfigure(poll_interval_seconds=1.0, handler_threads=0)
        target.start()
        with pytest.raises(LifecycleError, match="Stop it, reconfigure it"):
            target.reconfigure(handler_threads=1)
        target.stop()
        assert target.config == before


def test_the_configuration_that_was_given_stays_as_it_was(database_url: object) -> None:
    config = BusConfig(handler_threads=2)
    bus = PersistentBus(database_url, config)  # type: ignore[arg-type]
    bus.reconfigure(handler_threads=3)
    bus.close()
    assert (config.handler_threads, bus.config.handler_threads) == (2, 3)
