"""A paused queue or handler starts nothing, on any node, until it is resumed."""

from __future__ import annotations

import math
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from sqlalchemy import URL, Engine

import stickybus
from queue_core.maintenance import Maintenance
from queue_core.model.lanes import ANY_NODE, is_paused, paused_lane
from queue_core.model.outcome import Paused
from stickybus import InvalidPostError, NaiveDateTimeError, PersistentBus, RetryLater, State
from tests.contract.cluster import Cluster, Peer
from tests.contract.conftest import MakeBus, MakeService
from tests.contract.harness import (
    Order,
    Recorder,
    database_of,
    engine_of,
    eventually,
    lifecycle_of,
    meanwhile,
)

BUS_LANE = paused_lane("bus")


def lanes(bus: PersistentBus) -> list[str]:
    return [entry.lane for entry in bus.find()]


def hear(cluster: Cluster, *peers: Peer) -> None:
    """Let the time pass after which each node has heard of a change."""
    cluster.live(1, *peers)


# -- queues ---------------------------------------------------------------------------------------


def test_a_paused_bus_runs_nothing_on_any_node_until_it_is_resumed(cluster: Cluster) -> None:
    one, other = cluster.join("a"), cluster.join("b")
    one.bus.pause(reason="maintenance", by="ann")
    hear(cluster, one, other)
    for peer in (one, other):
        peer.bus.post(Order(1))
        peer.run()

    assert lanes(one.bus) == [BUS_LANE] * 2
    assert one.handler.calls == other.handler.calls == 0

    assert other.bus.resume()
    hear(cluster, one, other)
    one.run()
    other.run()

    assert one.handler.calls + other.handler.calls == 2
    assert one.bus.find() == []


def test_what_is_paused_is_told_with_who_why_and_until_when(
    make_bus: MakeBus, database_url: URL
) -> None:
    bus, until = make_bus(), datetime(2100, 1, 1, tzinfo=UTC)

    made = bus.pause(reason="the mail server is down", until=until, by="ann")
    of_handler = bus.pause(handler="mails", by="bob")

    assert (made.queue_name, made.handler, made.paused_by) == ("bus", None, "ann")
    assert (made.reason, made.until) == ("the mail server is down", until)
    assert abs(datetime.now(UTC) - made.since) < timedelta(minutes=1)
    assert bus.pauses() == [made, of_handler]
    with stickybus.inspect(database_url) as inspector:
        assert inspector.pauses() == [made, of_handler]
        assert inspector.pauses(table="notifications") == []


def test_another_pause_replaces_the_first_and_who_paused_it_has_a_default(
    make_bus: MakeBus,
) -> None:
    bus = make_bus()
    bus.pause(reason="first", by="ann")

    second = bus.pause()

    assert bus.pauses() == [second]
    assert second.paused_by != ""
    assert second.reason is None
    assert bus.resume()
    assert not bus.resume()
    assert bus.pauses() == []


def test_a_pause_ends_by_itself(cluster: Cluster) -> None:
    peer = cluster.join("a")
    peer.bus.pause(until=timedelta(seconds=30))
    peer.bus.post(Order(1))
    peer.run()
    assert peer.handler.calls == 0

    cluster.live(29, peer)
    peer.run()
    assert peer.handler.calls == 0
    assert len(peer.bus.pauses()) == 1

    cluster.live(2, peer)
    peer.run()
    assert peer.handler.calls == 1
    assert peer.bus.pauses() == []
    assert not peer.bus.resume()


def test_a_pause_holds_for_a_node_that_starts_from_its_first_entry(make_bus: MakeBus) -> None:
    make_bus().pause()
    make_bus().post(Order(1))
    bus, recorder = make_bus(), Recorder()
    bus.subscribe(Order, recorder)

    bus.start()
    eventually(lambda: lanes(bus) == [BUS_LANE], "it is set aside")
    bus.post(Order(2))
    eventually(lambda: lanes(bus) == [BUS_LANE] * 2, "both are set aside")

    assert recorder.calls == 0
    bus.resume()
    recorder.wait(2)
    assert recorder.numbers() == [1, 2]


def test_running_nodes_obey_within_a_second_and_resume_within_a_second(make_bus: MakeBus) -> None:
    bus, outside, recorder = make_bus(poll_interval_seconds=60), make_bus(), Recorder()
    bus.subscribe(Order, recorder)
    bus.start()
    bus.post(Order(0))
    recorder.wait()

    outside.pause()
    eventually(lambda: lifecycle_of(bus).claim_loop.paused.pauses.known, "it has heard")
    bus.post(Order(1))
    eventually(lambda: lanes(bus) == [BUS_LANE], "it is set aside")

    began = time.monotonic()
    outside.resume()
    recorder.wait(2)
    assert time.monotonic() - began < 10.0  # not by the poll; a loaded machine may need seconds


def test_a_running_handler_finishes(make_bus: MakeBus) -> None:
    bus, recorder = make_bus(), Recorder(hold=True)
    bus.subscribe(Order, recorder)
    bus.start()
    bus.post(Order(1))
    recorder.wait()

    bus.pause()
    recorder.release()

    eventually(lambda: bus.history(states=["PROCESSED"]), "it ends")


def test_what_was_claimed_before_the_pause_and_waits_for_a_serial_handler_does_not_start(
    make_bus: MakeBus,
) -> None:
    bus, recorder = make_bus(), Recorder(hold=True)
    bus.subscribe(Order, recorder, serial=True)
    bus.start()
    bus.post_many([Order(number) for number in range(5)])
    recorder.wait()

    bus.pause()
    recorder.release()

    eventually(lambda: lanes(bus) == [BUS_LANE] * 4, "the others are set aside")
    assert recorder.calls == 1


def test_other_queues_of_the_table_flow_past_a_paused_backlog_that_costs_no_claims(
    make_service: MakeService,
) -> None:
    service, paused, free = make_service(), Recorder(), Recorder()
    held = service.create_queue("shop", "held", paused, event_types=[Order])
    flows = service.create_queue("shop", "flows", free, event_types=[Order])
    service.start()
    held.pause()
    for number in range(50):
        held.schedule(Order(number), delay=0)
    eventually(lambda: {entry.lane for entry in held.find()} == {paused_lane("shop:held")})
    counts = [entry.claim_count for entry in held.find()]

    flows.schedule(Order(99), delay=0)
    free.wait()

    assert paused.calls == 0
    assert [entry.claim_count for entry in held.find()] == counts
    held.resume()
    paused.wait(50)
    assert paused.numbers() == list(range(50))


def test_a_long_backlog_comes_back_in_its_order(cluster: Cluster, monkeypatch: Any) -> None:
    monkeypatch.setattr("queue_core.claiming.set_aside.PAGE", 7)
    peer = cluster.join("a", handler_threads=1)
    peer.bus.pause()
    for number in range(40):
        peer.bus.post(Order(number))
        cluster.clock.advance(seconds=0.001)
    peer.run()
    assert peer.handler.calls == 0

    peer.bus.resume()
    for _ in range(8):
        peer.run()

    assert [order.number for order in peer.handler.events] == list(range(40))


# -- at the seams ---------------------------------------------------------------------------------


def test_a_node_that_hears_late_of_the_end_leaves_nothing_behind(cluster: Cluster) -> None:
    late, first = cluster.join("a"), cluster.join("b")
    late.bus.pause()
    late.run()
    first.bus.resume()
    hear(cluster, first)
    first.run()
    late.bus.post(Order(1))
    late.lifecycle.claim_loop.turn()
    late.lifecycle.pool.run_submitted()  # by what it knows
    late.lifecycle.finisher.write_all()
    cluster.vanish(late)  # and dies

    cluster.live(3, first)
    first.run()

    assert first.handler.calls + late.handler.calls == 1


def test_a_look_that_began_before_a_pause_does_not_undo_it(cluster: Cluster) -> None:
    peer = cluster.join("a")
    with meanwhile(database_of(peer.bus), "queue_pauses", peer.bus.pause):
        peer.lifecycle.claim_loop.turn()
    peer.bus.post(Order(1))
    peer.lifecycle.pool.run_submitted()
    assert peer.handler.calls == 0


def test_an_end_that_is_heard_of_during_a_look_lets_the_next_look_wake_the_claims(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others may have brought all back, so that no look of this node finds an entry."""
    peer, elsewhere, woken = cluster.join("a"), cluster.peer("b").bus, list[float]()
    peer.bus.pause(handler="mails")
    peer.bus.pause()
    peer.run()
    elsewhere.resume(handler="mails")

    def wake(since: float = math.inf) -> None:
        woken.append(since)
        if len(woken) == 1:
            peer.bus.resume()

    monkeypatch.setattr(peer.lifecycle.claimer, "wake", wake)
    for _ in range(2):
        peer.lifecycle.claim_loop.paused.turn(math.inf)

    assert len(woken) == 2


def test_what_a_node_runs_itself_comes_back_to_it_whoever_looks_first(cluster: Cluster) -> None:
    one, other = cluster.join("a"), cluster.join("b")
    one.beat()
    one.bus.pause()
    one.bus.post(Order(1))
    one.run()
    assert lanes(one.bus) == [BUS_LANE]

    other.bus.resume()
    other.run()

    assert lanes(one.bus) == ["a"]
    hear(cluster, one)
    one.run()
    assert (one.handler.calls, other.handler.calls) == (1, 0)


def test_what_a_dead_node_has_posted_comes_back_to_another(cluster: Cluster) -> None:
    dead, other = cluster.join("dead"), cluster.join("b")
    dead.bus.pause()
    dead.bus.post(Order(1))
    dead.run()
    cluster.bury("dead", other)

    other.bus.resume()
    other.run()

    assert other.handler.numbers() == [1]


def test_errors_and_suspicion_are_what_they_were(cluster: Cluster) -> None:
    dead = cluster.join("dead")
    dead.bus.post(Order(1))
    dead.claim()
    peer = cluster.join("a")
    cluster.bury("dead", peer)
    [before] = peer.bus.find()
    assert before.crash_count == 1
    peer.bus.pause()
    peer.run()
    [aside] = peer.bus.find()
    assert aside.lane == BUS_LANE

    peer.bus.resume()
    peer.lifecycle.claim_loop.paused.turn(float("inf"))

    [after] = peer.bus.find()
    assert after.lane == before.lane == "!suspect"
    assert (after.error_count, after.crash_count) == (before.error_count, before.crash_count)
    peer.run()
    assert peer.handler.calls == 1


def test_a_retry_that_comes_due_in_a_pause_waits_and_its_errors_count_on(
    cluster: Cluster,
) -> None:
    peer, shaky = cluster.join("a"), Recorder(failures=1, error=RetryLater(timedelta(seconds=5)))
    peer.bus.subscribe("Odd", shaky, name="odd")
    peer.bus.post({}, event_name="Odd")
    peer.run()
    peer.bus.pause()
    cluster.live(6, peer)
    peer.run()
    [entry] = peer.bus.find()
    assert (entry.lane, entry.error_count, shaky.calls) == (BUS_LANE, 1, 1)

    peer.bus.resume()
    peer.run()

    assert shaky.contexts[1].attempt == 2
    [ended] = peer.bus.history()
    assert (ended.processing_state, ended.error_count) == (State.PROCESSED, 1)


def test_a_pause_in_a_transaction_that_rolls_back_is_none(cluster: Cluster, engine: Engine) -> None:
    peer = cluster.join("a")
    with engine.connect() as connection:
        peer.bus.pause(connection=connection)
        assert len(peer.bus.pauses(connection=connection)) == 1
        connection.rollback()
    hear(cluster, peer)
    peer.bus.post(Order(1))
    peer.run()
    assert peer.handler.calls == 1

    with engine.begin() as connection:
        peer.bus.pause(connection=connection)
    hear(cluster, peer)
    peer.bus.post(Order(2))
    peer.run()
    assert peer.handler.calls == 1


def test_an_entry_that_is_removed_in_a_pause_does_not_come_back(cluster: Cluster) -> None:
    peer = cluster.join("a")
    peer.bus.pause()
    record_id = peer.bus.post(Order(1))
    peer.run()

    Maintenance(engine_of(peer.bus)).remove(record_id)
    peer.bus.resume()
    peer.run()

    assert peer.handler.calls == 0
    assert peer.bus.find() == []


# -- handlers -------------------------------------------------------------------------------------


def test_a_paused_handler_runs_last_and_the_others_only_once(cluster: Cluster) -> None:
    peer, mails = cluster.join("a"), Recorder()
    peer.bus.subscribe(Order, mails, name="mails")
    peer.bus.pause(handler="mails")
    peer.bus.post(Order(1))

    outcomes = peer.run()

    assert [type(outcome) for outcome in outcomes] == [Paused]
    assert (peer.handler.calls, mails.calls) == (1, 0)
    assert lanes(peer.bus) == [paused_lane("bus", "mails")]
    assert peer.bus.resume(handler="mails")
    peer.run()
    assert (peer.handler.calls, mails.calls) == (1, 1)
    [ended] = peer.bus.history()
    assert ended.progress == {"orders": True, "mails": True}


def test_a_handler_that_gave_up_beside_a_paused_one_lets_the_entry_end_failed_after_it(
    cluster: Cluster,
) -> None:
    peer, mails = cluster.join("a"), Recorder()
    peer.bus.subscribe(Order, mails, name="mails")
    peer.bus.subscribe(
        Order,
        lambda _event, _context: 1 / 0,
        name="bad",
        retry=stickybus.ImmediateRetries(0),
    )
    peer.bus.pause(handler="mails")
    peer.bus.post(Order(1))
    peer.run()
    assert lanes(peer.bus) == [paused_lane("bus", "mails")]

    peer.bus.resume(handler="mails")
    peer.run()

    [ended] = peer.bus.history()
    assert (ended.processing_state, mails.calls) == (State.FAILED, 1)
    assert ended.progress == {"orders": True, "bad": False, "mails": True}
    assert ended.error_count == 1


def test_a_handler_that_waits_for_its_retry_beside_a_paused_one_is_retried_in_time(
    cluster: Cluster,
) -> None:
    peer, mails = cluster.join("a"), Recorder()
    shaky = Recorder(failures=1, error=RetryLater(timedelta(seconds=5)))
    peer.bus.subscribe(Order, shaky, name="shaky")
    peer.bus.subscribe(Order, mails, name="mails")
    peer.bus.pause(handler="mails")
    peer.bus.post(Order(1))
    peer.run()
    cluster.live(6, peer)
    peer.run()
    assert (shaky.calls, mails.calls) == (2, 0)

    peer.bus.resume(handler="mails")
    peer.run()

    assert (peer.handler.calls, shaky.calls, mails.calls) == (1, 2, 1)
    [ended] = peer.bus.history()
    assert ended.processing_state is State.PROCESSED


def test_an_exactly_once_handler_beside_a_paused_one_does_not_end_the_entry(
    cluster: Cluster,
) -> None:
    peer, mails, calls = cluster.join("a"), Recorder(), list[object]()
    peer.bus.subscribe(
        Order, lambda event, _context: calls.append(event), name="ledger", exactly_once=True
    )
    peer.bus.subscribe(Order, mails, name="mails")
    peer.bus.pause(handler="mails")
    peer.bus.post(Order(1))
    peer.run()
    assert lanes(peer.bus) == [paused_lane("bus", "mails")]

    peer.bus.resume(handler="mails")
    peer.run()

    assert (len(calls), mails.calls, peer.handler.calls) == (1, 1, 1)
    [ended] = peer.bus.history()
    assert ended.processing_state is State.PROCESSED


# -- seen by others -------------------------------------------------------------------------------


def test_paused_entries_are_counted_as_such(
    cluster: Cluster, database_url: URL, make_bus: MakeBus
) -> None:
    peer, registry = cluster.join("a"), CollectorRegistry()
    peer.bus.pause()
    peer.bus.post_many([Order(1), Order(2)])
    peer.run()
    with stickybus.inspect(database_url) as inspector:
        [status] = inspector.queues(table="bus_events")
        [depth] = inspector.depths(table="bus_events")
        findings = {finding.check for finding in inspector.doctor()}
    assert (status.paused, status.ready, status.scheduled) == (2, 0, 0)
    assert (depth.paused, depth.ready) == (2, 0)
    assert "waiting-entries" not in findings
    watching = PersistentBus(database_url, metrics_registry=registry)
    labels = {"table": "bus_events", "queue_name": "bus"}
    assert registry.get_sample_value("stickybus_entries_paused", labels) == 2
    watching.close()


def test_no_node_may_have_a_name_like_the_lane_of_a_pause(make_bus: MakeBus) -> None:
    assert is_paused(BUS_LANE)
    assert BUS_LANE != ANY_NODE
    with pytest.raises(stickybus.ConfigurationError):
        make_bus(node_name=BUS_LANE)


@pytest.mark.parametrize(
    "options",
    [
        {"handler": ""},
        {"handler": "x" * 1_001},
        {"by": "x" * 256},
        {"reason": "\0"},
        {"until": timedelta.max},
    ],
)
def test_a_pause_that_could_not_be_stored_is_refused(
    make_bus: MakeBus, options: dict[str, Any]
) -> None:
    bus = make_bus()
    with pytest.raises(InvalidPostError):
        bus.pause(**options)
    with pytest.raises(NaiveDateTimeError):
        bus.pause(until=datetime(2100, 1, 1))  # noqa: DTZ001
    assert bus.pauses() == []


def test_names_of_any_length_and_kind_can_be_paused(make_bus: MakeBus) -> None:
    bus = make_bus()
    name = "ä😀'%" * 250
    bus.pause(handler=name, reason="…'%s", by="O'Hara 😀")

    [found] = bus.pauses()

    assert (found.handler, found.reason, found.paused_by) == (name, "…'%s", "O'Hara 😀")
    assert engine_of(bus).config.table == found.table
    assert bus.resume(handler=name)
