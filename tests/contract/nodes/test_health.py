"""Health: beats that reach the database, with a grace, an allowed time, and functions to call."""

from __future__ import annotations

import pytest
from sqlalchemy.exc import OperationalError

from queue_core.runtime.manual_clock import ManualClock
from stickybus import ConfigurationError, NodeConfig, PersistentBus
from tests.contract.cluster import QuietNode
from tests.contract.conftest import MakeBus, MakeService
from tests.contract.harness import eventually, lifecycle_of, node_of

LEASE, ALLOWED, GRACE, PAUSE = 15.0, 900.0, 600.0, 3_600.0


class Away(OperationalError):
    """The database is away."""

    def __init__(self) -> None:
        super().__init__("beat", {}, Exception("away"))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def bus(make_bus: MakeBus, clock: ManualClock) -> PersistentBus:
    return make_bus(clock=clock)


def fail(bus: PersistentBus, monkeypatch: pytest.MonkeyPatch) -> None:
    """One beat that does not reach the database."""

    def write(*_args: object) -> None:
        raise Away

    with monkeypatch.context() as patch:
        patch.setattr(node_of(bus).database, "write", write)
        with pytest.raises(Away):
            node_of(bus).beat_turn()


def test_it_is_unknown_before_the_first_check_and_after_a_stop(bus: PersistentBus) -> None:
    assert (bus.healthy(), bus.unhealthy()) == (None, False)
    lifecycle_of(bus).membership.join(QuietNode)
    assert (bus.healthy(), bus.unhealthy()) == (True, False)
    lifecycle_of(bus).membership.leave()
    assert (bus.healthy(), bus.unhealthy()) == (None, False)


def test_it_is_healthy_until_no_beat_has_succeeded_for_the_allowed_time(
    bus: PersistentBus, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    lifecycle_of(bus).membership.join(QuietNode)
    clock.advance(seconds=ALLOWED)
    fail(bus, monkeypatch)
    assert (bus.healthy(), bus.unhealthy()) == (True, False)
    clock.advance(seconds=1)
    assert (bus.healthy(), bus.unhealthy()) == (False, True)
    node_of(bus).beat_turn()
    assert (bus.healthy(), bus.unhealthy()) == (True, False)
    lifecycle_of(bus).membership.leave()


def test_it_is_not_unhealthy_during_the_grace_of_each_start(
    make_bus: MakeBus, clock: ManualClock
) -> None:
    bus = make_bus(clock=clock, node=NodeConfig(health_allowed_error_seconds=60.0))
    for _ in range(2):
        lifecycle_of(bus).membership.join(QuietNode)
        clock.advance(seconds=GRACE - 1)
        assert (bus.healthy(), bus.unhealthy()) == (False, False)
        clock.advance(seconds=1)
        assert (bus.healthy(), bus.unhealthy()) == (False, True)
        lifecycle_of(bus).membership.leave()


def test_functions_hear_of_an_error_now_and_again_and_of_its_end_once(
    bus: PersistentBus, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[str] = []
    bus.on_health_error(lambda error: heard.append(type(error).__name__))
    bus.on_recovery(lambda: heard.append("recovered"))
    lifecycle_of(bus).membership.join(QuietNode)

    def after(seconds: float) -> list[str]:
        clock.advance(seconds=seconds)
        fail(bus, monkeypatch)
        lifecycle_of(bus).pool.run_submitted()
        return heard

    assert after(LEASE - 1) == []
    assert after(1) == ["Away"]
    assert after(PAUSE - 1) == ["Away"]
    assert after(1) == ["Away", "Away"]
    for _ in range(2):
        node_of(bus).beat_turn()
        lifecycle_of(bus).pool.run_submitted()
    assert heard == ["Away", "Away", "recovered"]
    assert after(LEASE) == ["Away", "Away", "recovered", "Away"]
    lifecycle_of(bus).membership.leave()


def test_a_function_that_raises_harms_nothing(
    bus: PersistentBus, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[str] = []

    @bus.on_health_error
    def broken(_error: BaseException) -> None:
        raise ValueError("broken")

    bus.on_health_error(lambda _error: heard.append("error"))
    lifecycle_of(bus).membership.join(QuietNode)
    clock.advance(seconds=LEASE)
    fail(bus, monkeypatch)
    lifecycle_of(bus).pool.run_submitted()
    node_of(bus).beat_turn()

    assert heard == ["error"]
    assert bus.healthy()
    lifecycle_of(bus).membership.leave()


def test_both_members_of_a_node_hear_of_its_beats(
    make_bus: MakeBus,
    make_service: MakeService,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bus = make_bus(clock=clock, node_name="both")
    service = make_service(clock=clock, node_name="both")
    heard: list[str] = []
    bus.on_health_error(lambda _error: heard.append("bus"))
    service.on_health_error(lambda _error: heard.append("service"))
    lifecycle_of(bus).membership.join(QuietNode)
    lifecycle_of(service).membership.join(QuietNode)
    assert (bus.healthy(), service.healthy()) == (True, True)

    clock.advance(seconds=ALLOWED + 1)
    fail(bus, monkeypatch)
    for member in (bus, service):
        lifecycle_of(member).pool.run_submitted()

    assert heard == ["bus", "service"]
    assert (bus.healthy(), service.healthy()) == (False, False)
    lifecycle_of(service).membership.leave()
    assert (bus.healthy(), service.healthy()) == (False, None)
    lifecycle_of(bus).membership.leave()


def test_a_started_bus_is_healthy_and_what_can_not_be_called_is_refused(make_bus: MakeBus) -> None:
    with make_bus(node=NodeConfig(beat_interval_seconds=0.02)) as bus:
        seen = node_of(bus).lease.left_seconds
        eventually(lambda: node_of(bus).lease.left_seconds != seen, "it beats")
        assert bus.healthy() is True
        with pytest.raises(ConfigurationError):
            bus.on_health_error(None)  # type: ignore[arg-type]
        with pytest.raises(ConfigurationError):
            bus.on_recovery(3)  # type: ignore[arg-type]
