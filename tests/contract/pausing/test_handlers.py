"""A paused handler runs last, and the others run once."""

from __future__ import annotations

from datetime import timedelta

import stickybus
from queue_core.model.lanes import paused_lane
from queue_core.model.outcome import SetAside
from stickybus import RetryLater, State
from tests.contract.cluster import Cluster
from tests.contract.harness import Order, Recorder
from tests.contract.pausing.looks import lanes


def test_a_paused_handler_runs_last_and_the_others_only_once(cluster: Cluster) -> None:
    peer, mails = cluster.join("a"), Recorder()
    peer.bus.subscribe(Order, mails, name="mails")
    peer.bus.pause(handler="mails")
    peer.bus.post(Order(1))

    outcomes = peer.run()

    assert [type(outcome) for outcome in outcomes] == [SetAside]
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
