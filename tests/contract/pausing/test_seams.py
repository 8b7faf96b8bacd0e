"""Begin and end of a pause, beside looks, deaths, retries and transactions."""

from __future__ import annotations

import math
from datetime import timedelta

import pytest
from sqlalchemy import Engine

from queue_core.maintenance import Maintenance
from stickybus import RetryLater, State
from tests.contract.cluster import Cluster
from tests.contract.harness import Order, Recorder, database_of, engine_of, meanwhile
from tests.contract.pausing.looks import BUS_LANE, hear, lanes


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
