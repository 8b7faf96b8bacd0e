"""`history="failures"`: entries that were handled leave no row, and lose nothing by it."""

from __future__ import annotations

from contextlib import suppress
from typing import Literal

import pytest
from sqlalchemy.exc import DBAPIError

from queue_core.model.retry_policies import ImmediateRetries
from stickybus import ConfigurationError, ExactlyOnceContext, Posting, State
from tests.contract.cluster import Cluster
from tests.contract.conftest import MakeBus, MakeService
from tests.contract.harness import (
    Order,
    Recorder,
    database_of,
    elsewhere,
    ended,
    eventually,
    lost_answers,
    moving,
    states,
)


def fail(order: Order) -> None:
    if order.number % 2:
        raise ValueError(order.number)


def test_only_what_failed_has_a_row(make_bus: MakeBus) -> None:
    bus, recorder = make_bus(history="failures", retry=ImmediateRetries(1)), Recorder()
    bus.subscribe(Order, fail)
    bus.subscribe(Order, recorder, name="recorder")
    bus.start()
    ids = bus.post_many(Order(number) for number in range(200))
    recorder.wait(200)
    failed = ended(bus, 100)
    eventually(lambda: not bus.find())
    assert [entry.record_id for entry in failed] == ids[1::2]
    assert set(states(failed)) == {State.FAILED}
    assert len(bus.history()) == 100


def test_an_entry_without_subscriber_has_a_row(cluster: Cluster) -> None:
    peer = cluster.join("a", history="failures")
    peer.bus.unsubscribe(peer.handle)
    posted = peer.bus.post(Order(1))
    peer.run()
    assert [entry.record_id for entry in peer.bus.history()] == [posted]


def test_notifications_do_the_same(make_service: MakeService) -> None:
    service = make_service(history="failures", retry=ImmediateRetries(0))
    queue = service.create_queue("shop", "mails", fail, event_types=[Order])
    service.start()
    first = queue.schedule(Order(1), delay=0)
    for number in (0, 2):
        queue.schedule(Order(number), delay=0)
    eventually(lambda: not queue.find())
    assert [entry.record_id for entry in queue.history()] == [first]


def test_both_kinds_may_run_on_one_table(cluster: Cluster) -> None:
    """As during a change of the setting."""
    peer, other = cluster.join("a", history="failures"), cluster.join("b")
    peer.bus.post_many(Order(number) for number in range(3))
    kept = other.bus.post_many(Order(number) for number in range(3))
    for one in (peer, other):
        one.claim()
        one.run()
    assert [entry.record_id for entry in other.bus.history()] == kept
    assert peer.bus.find() == []


def test_an_entry_that_was_taken_over_is_left_alone(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    peer, other = cluster.join("a", history="failures"), cluster.join("b", history="failures")
    peer.bus.post_many(Order(number) for number in range(2))
    peer.claim()
    peer.lifecycle.pool.run_submitted()
    cluster.bury("a", other)
    cluster.vanish(peer)
    peer.lifecycle.finisher.turn()
    assert caplog.text.count("claim_lost") == 2
    assert len(other.bus.find()) == 2
    other.run()
    assert other.handler.numbers() == [0, 1]
    assert other.bus.find() == []
    assert set(states(other.bus.history())) == {State.REAPED}


def test_an_entry_that_others_wait_for_is_kept(cluster: Cluster) -> None:
    peer = cluster.join("a", history="failures")
    first = peer.bus.post(Order(0))
    peer.bus.post(Order(1), after=[first])
    peer.claim()
    peer.run()
    assert peer.handler.numbers() == [0, 1]
    assert [entry.record_id for entry in peer.bus.history()] == [first]


@pytest.mark.parametrize("looks", ["failures", "all"])
def test_what_has_left_no_row_before_its_waiter_was_committed_has_succeeded(
    cluster: Cluster, looks: Literal["failures", "all"]
) -> None:
    peer, other = cluster.join("a", history="failures"), cluster.join("b", history=looks)
    first = peer.bus.post(Order(0))
    with database_of(peer.bus).begin() as connection:
        second = peer.bus.post(Order(1), after=[first], connection=connection)
        if connection.dialect.name != "sqlite":
            elsewhere(peer.run)
    if connection.dialect.name == "sqlite":  # it writes by one at a time: no look in between
        peer.lifecycle.pool.run_submitted()
        peer.lifecycle.finisher.turn()
    assert [entry.record_id for entry in peer.bus.find()] == [second]
    other.claim()
    peer.run()
    assert peer.handler.numbers() == [0, 1]
    assert peer.bus.history() == []


def test_what_has_failed_before_its_waiter_was_committed_has_failed(cluster: Cluster) -> None:
    peer = cluster.join("a", history="failures", retry=ImmediateRetries(0))
    peer.handler = Recorder(failures=1)
    first = peer.bus.post(Order(0))
    peer.claim()
    with database_of(peer.bus).begin() as connection:
        second = peer.bus.post(Order(1), after=[first], connection=connection)
        if connection.dialect.name != "sqlite":
            elsewhere(peer.run)
    cluster.live(4, peer)
    peer.run()
    assert [entry.record_id for entry in peer.bus.history()] == [first, second]
    assert peer.handler.numbers() == [0]


@pytest.mark.parametrize("looks", ["failures", "all"])
def test_a_key_whose_entry_has_left_no_row_may_be_waited_for(
    cluster: Cluster, looks: Literal["failures", "all"]
) -> None:
    peer, poster = cluster.join("a", history="failures"), cluster.peer("b", history=looks)
    peer.bus.post(Order(0), key="effect", keep="forever")
    peer.run()
    poster.bus.post(Order(1), after=[("bus", "effect")])
    peer.claim()
    peer.run()
    assert peer.handler.numbers() == [0, 1]


def test_keys_groups_and_orders_go_on(cluster: Cluster) -> None:
    peer = cluster.join("a", history="failures")
    group = peer.bus.open_group()
    peer.bus.post_many([Posting(event=Order(number), group=group) for number in range(2)])
    peer.bus.seal(group)
    peer.bus.post(Order(2), key="effect", keep="forever", order_key="x")
    peer.bus.post(Order(3), order_key="x")
    peer.claim()
    peer.run()
    assert sorted(peer.handler.numbers()) == list(range(4))
    assert peer.bus.group_status(group).succeeded == 2
    assert not peer.bus.post(Order(4), key="effect", keep="forever").created
    assert peer.bus.history() == peer.bus.find() == []


def test_an_exactly_once_handler_leaves_its_proof(make_bus: MakeBus) -> None:
    bus = make_bus(history="failures")

    def handle(_order: Order, context: ExactlyOnceContext) -> None:
        context.connection.exec_driver_sql("SELECT 1")

    bus.subscribe(Order, handle, exactly_once=True)
    bus.start()
    posted = bus.post(Order(1))
    [entry] = ended(bus)
    assert entry.record_id == posted


@pytest.mark.parametrize("committed", [True, False])
def test_an_outcome_whose_commit_gave_no_answer_counts_once(
    cluster: Cluster, *, committed: bool
) -> None:
    peer = cluster.join("a", history="failures")
    peer.bus.post(Order(1))
    peer.claim()
    text = moving(peer.store.database, "DELETE")
    with lost_answers(peer.store.database, text, committed=committed) as lost:
        with suppress(DBAPIError):
            peer.run()
        peer.run()
    assert lost
    assert peer.handler.numbers() == [1]
    assert peer.bus.find() == peer.bus.history() == []


def test_the_setting_changes_between_a_stop_and_a_start(make_bus: MakeBus) -> None:
    bus, recorder = make_bus(), Recorder()
    bus.subscribe(Order, recorder)
    bus.start()
    kept = bus.post(Order(1))
    ended(bus)
    bus.stop()
    bus.reconfigure(history="failures")
    bus.start()
    bus.post(Order(2))
    recorder.wait(2)
    eventually(lambda: not bus.find())
    assert [entry.record_id for entry in bus.history()] == [kept]


def test_another_word_is_refused(make_bus: MakeBus) -> None:
    with pytest.raises(ConfigurationError, match="history"):
        make_bus(history="some")
