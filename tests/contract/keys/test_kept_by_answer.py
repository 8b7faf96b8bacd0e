"""A handler that answers Done says how long its entry's key is kept."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError, IntegrityError

from sql.statements.entries import Statements
from stickybus import Answer, Done, ExactlyOnceContext, ImmediateRetries, KeyState, Retry
from tests.contract.cluster import Cluster, Peer
from tests.contract.harness import Order, deadlock, engine_of


def answering(cluster: Cluster, *answers: object, **options: Any) -> Peer:
    """A node with a handler for each answer."""
    peer = cluster.join("node", retry=ImmediateRetries(0))
    peer.bus.unsubscribe(peer.handle)
    for number, answer in enumerate(answers):
        peer.bus.subscribe(Order, _returning(answer), name=f"handler {number}", **options)
    return peer


def _returning(answer: object) -> Callable[[Order], object]:
    def handle(_event: Order) -> object:
        return answer

    return handle


def is_free_after(cluster: Cluster, peer: Peer, seconds: float) -> None:
    """The key is kept for so long, and no longer; history may be truncated meanwhile."""
    peer.bus.truncate_history()
    cluster.clock.advance(seconds=seconds - 1)
    assert peer.bus.post(Order(2), key="a").answer == Answer.DONE
    cluster.clock.advance(seconds=1)
    assert peer.bus.post(Order(3), key="a").created


@pytest.mark.parametrize("keep", [60, timedelta(minutes=1)])
@pytest.mark.parametrize("posted", ["living", "waiting", timedelta(seconds=5)])
def test_the_key_is_kept_from_the_end_for_that_time(
    cluster: Cluster, keep: Any, posted: Any
) -> None:
    peer = answering(cluster, Done(keep=keep))
    peer.bus.post(Order(1), key="a", keep=posted)
    peer.run()

    assert peer.bus.key_status("a").state is KeyState.DONE
    is_free_after(cluster, peer, 60)


def test_a_key_that_is_kept_for_ever_stays_so(cluster: Cluster) -> None:
    peer = answering(cluster, Done(keep=60))
    peer.bus.post(Order(1), key="a", keep="forever")
    peer.run()
    cluster.clock.advance(seconds=61)

    assert peer.bus.post(Order(2), key="a").answer == Answer.DONE


def test_the_longest_time_of_several_handlers_counts(cluster: Cluster) -> None:
    peer = answering(cluster, Done(keep=90), Done(keep=60), None)
    peer.bus.post(Order(1), key="a")
    peer.run()

    is_free_after(cluster, peer, 90)


def test_an_entry_that_fails_keeps_its_key_as_posted(cluster: Cluster) -> None:
    peer = answering(cluster, Done(keep=60), Retry())
    peer.bus.post(Order(1), key="a")
    peer.run()

    assert peer.bus.post(Order(2), key="a").created


def test_an_entry_that_is_to_run_once_more_does(cluster: Cluster) -> None:
    peer = answering(cluster, Done(keep=60))
    first = peer.bus.post(Order(1), key="a")
    peer.claim()
    peer.bus.post(Order(2), key="a", on_conflict="requeue")
    peer.run()

    assert [entry.event_json for entry in peer.bus.history()] == ['{"number":1}', '{"number":2}']
    assert peer.bus.key_status("a").record_id != first


def test_an_exactly_once_handler_answers_so_too(cluster: Cluster) -> None:
    peer = cluster.join("node")
    peer.bus.unsubscribe(peer.handle)

    def handle(_event: Order, context: ExactlyOnceContext) -> Done:
        return Done(keep=60)

    peer.bus.subscribe(Order, handle, name="orders", exactly_once=True)
    peer.bus.post(Order(1), key="a")
    peer.run()

    is_free_after(cluster, peer, 60)


def failing_once(
    peer: Peer, monkeypatch: pytest.MonkeyPatch, fail: Callable[[Connection], Exception]
) -> None:
    """Let the statement that records the first outcome fail."""
    statements = type(engine_of(peer.bus).store.statements)
    finish, failures = statements.finish, [fail]

    def instead(self: Statements, connection: Connection, **options: Any) -> set[int]:
        if failures:
            raise failures.pop()(connection)
        return finish(self, connection, **options)

    monkeypatch.setattr(statements, "finish", instead)


def test_the_answer_of_an_attempt_that_was_rolled_back_does_not_count(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer, answers = cluster.join("node"), [Done(keep=60), Done(keep=90)]
    peer.bus.unsubscribe(peer.handle)

    def handle(_event: Order, context: ExactlyOnceContext) -> Done:
        return answers.pop()

    def met_a_deadlock(connection: Connection) -> Exception:
        return DBAPIError.instance("UPDATE", {}, deadlock(connection), Exception)

    failing_once(peer, monkeypatch, met_a_deadlock)
    peer.bus.subscribe(Order, handle, name="orders", exactly_once=True)
    peer.bus.post(Order(1), key="a")
    peer.run()

    assert not answers
    is_free_after(cluster, peer, 60)


def test_the_answer_of_an_attempt_whose_error_means_success_does_not_count(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = cluster.join("node")
    peer.bus.unsubscribe(peer.handle)

    def handle(_event: Order, context: ExactlyOnceContext) -> Done:
        return Done(keep=60)

    failing_once(
        peer, monkeypatch, lambda _connection: IntegrityError("INSERT", {}, Exception("is there"))
    )
    peer.bus.subscribe(
        Order, handle, name="orders", exactly_once=True, success_on=(IntegrityError,)
    )
    peer.bus.post(Order(1), key="a")
    peer.run()

    [entry] = peer.bus.history()
    assert entry.processing_state == "PROCESSED"
    assert peer.bus.post(Order(2), key="a").created


def test_an_entry_that_another_waits_for_keeps_its_key_too(cluster: Cluster) -> None:
    peer = answering(cluster, Done(keep=60))
    first = peer.bus.post(Order(1), key="a", delay=1)
    peer.bus.post(Order(9), after=[first])
    cluster.live(2, peer)
    peer.run()
    peer.run()

    assert len(peer.bus.history()) == 2
    is_free_after(cluster, peer, 60)


def test_an_entry_without_a_key_succeeds(cluster: Cluster) -> None:
    peer = answering(cluster, Done(keep=60))
    peer.bus.post(Order(1))
    peer.run()

    [entry] = peer.bus.history()
    assert entry.processing_state == "PROCESSED"


@pytest.mark.parametrize("keep", [-1, float("nan"), float("inf"), "soon"])
def test_a_time_that_is_none_is_refused(keep: Any) -> None:
    with pytest.raises(ValueError, match="keep="):
        Done(keep=keep)
