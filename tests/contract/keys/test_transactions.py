"""Keys in transactions of callers, two at a time: nothing is lost, and nothing is aborted."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, select, text
from sqlalchemy.orm import Session

from queue_core.links.keys import LOOK_SECONDS
from queue_core.model.keyed import OnConflict
from stickybus import Answer, DuplicateKeyError, KeyLockedError, Posting
from tests import requirements as needs
from tests.contract.cluster import Cluster, Peer
from tests.contract.conftest import Orders
from tests.contract.harness import (
    BOUND_SECONDS,
    Order,
    Recorder,
    database_of,
    elsewhere,
    meanwhile,
    see_what_changes,
)
from tests.contract.keys.looks import numbers
from tests.contract.transactions.callers import Connect, connect, given
from tests.contract.waits.looks import ran

__all__ = ["connect", "given"]


@pytest.fixture
def two(engine: Engine) -> Iterator[tuple[Connection, Connection]]:
    """Two connections of callers."""
    with engine.connect() as one, engine.connect() as other:
        yield one, other


@contextmanager
def breaking_insert(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let each insertion of entries fail."""
    with monkeypatch.context() as broken:
        broken.setattr(peer.store, "insert", lambda *_: 1 / 0)
        yield


@pytest.mark.parametrize("commits", [True, False])
def test_the_second_waits_for_the_first(poster: Peer, given: Any, *, commits: bool) -> None:
    first = poster.bus.post(Order(1), key="a", connection=given)
    with ThreadPoolExecutor(1) as pool:
        second = pool.submit(lambda: poster.bus.post(Order(2), key="a", key_wait=BOUND_SECONDS))
        if commits:
            given.commit()
        else:
            given.rollback()
        posted = second.result(BOUND_SECONDS)
    assert numbers(poster.bus.find()) == [1 if commits else 2]
    assert posted.created is not commits
    if commits:  # else its number may be given anew
        assert posted == first


@needs.many_writers
def test_who_does_not_wait_gets_an_error_and_his_transaction_is_whole(
    poster: Peer, given: Any, orders: Orders, two: tuple[Connection, Connection]
) -> None:
    other, _ = two
    poster.bus.post(Order(1), key="a", connection=given)
    other.execute(orders.add(1))
    with pytest.raises(KeyLockedError, match="has taken the key 'a'") as caught:
        poster.bus.post(Order(2), key="a", key_wait=0, connection=other)
    assert (caught.value.queue_name, caught.value.key) == ("bus", "a")
    postings = [Posting(event=Order(2), key=key, key_wait=0.0) for key in "ab"]
    with pytest.raises(KeyLockedError, match="one of 2 keys"):
        poster.bus.post_many(postings, connection=other)
    poster.bus.post(Order(3), key="b", connection=other)
    other.commit()
    given.rollback()
    assert orders.numbers() == [1]
    assert numbers(poster.bus.find()) == [3]


@needs.many_writers
def test_a_transaction_of_the_library_waits_as_long_as_for_any_lock(
    cluster: Cluster, given: Any
) -> None:
    peer = cluster.peer("hasty", statement_timeout_seconds=2.0)
    peer.bus.post(Order(1), key="a", connection=given)
    # By a default of 5 s the statement's own limit would come first.
    with pytest.raises(KeyLockedError, match="has taken the key 'a'"):
        peer.bus.post(Order(2), key="a")
    given.rollback()
    assert peer.bus.post(Order(3), key="a").created


@needs.many_writers
def test_a_session_waits_for_its_own_locks_as_before(
    poster: Peer, engine: Engine, database_name: str
) -> None:
    setting = {"postgresql": "SHOW lock_timeout"}.get(
        database_name, "SELECT @@innodb_lock_wait_timeout"
    )
    with engine.connect() as connection:
        before = connection.execute(text(setting)).scalar()
        poster.bus.post(Order(1), key="a", key_wait=1.0, connection=connection)
        assert connection.execute(text(setting)).scalar() == before
        with pytest.raises(DuplicateKeyError):
            poster.bus.post(Order(1), key="a", on_conflict="raise", connection=connection)
        assert connection.execute(text(setting)).scalar() == before


def test_a_conflict_leaves_the_transaction_whole(poster: Peer, given: Any, orders: Orders) -> None:
    first = poster.bus.post(Order(1), key="a")
    session = isinstance(given, Session)
    if session or isinstance(given, Connection):
        given.execute(orders.add(1))
    with pytest.raises(DuplicateKeyError):
        poster.bus.post(Order(2), key="a", on_conflict="raise", connection=given)
    assert poster.bus.post(Order(3), key="a", connection=given) == first
    assert poster.bus.post(Order(4), key="b", connection=given).created
    again = poster.bus.post(Order(5), key="b", connection=given)
    assert again.answer is Answer.ALREADY_QUEUED
    given.commit()
    assert numbers(poster.bus.find()) == [1, 4]
    if session or isinstance(given, Connection):
        assert orders.numbers() == [1]


def test_a_rolled_back_post_leaves_no_key(poster: Peer, given: Any) -> None:
    poster.bus.post_many([Posting(event=Order(1), key=key) for key in "ab"], connection=given)
    given.rollback()
    assert poster.bus.find() == []
    assert poster.bus.post(Order(2), key="a").created


@pytest.mark.parametrize("rolls_back", [True, False])
def test_on_a_connection_that_commits_each_statement_a_post_is_whole(
    poster: Peer, connect: Connect, monkeypatch: pytest.MonkeyPatch, *, rolls_back: bool
) -> None:
    """Also in a transaction that was begun by hand."""
    raw = connect("tuples", autocommit=True)
    cursor = raw.cursor()
    poster.bus.post(Order(1), key="a", connection=raw)
    assert numbers(poster.bus.find()) == [1]
    with breaking_insert(poster, monkeypatch), pytest.raises(ZeroDivisionError):
        poster.bus.post(Order(2), key="b", connection=raw)
    assert poster.bus.post(Order(3), key="b").created
    cursor.execute("BEGIN")
    poster.bus.post(Order(4), key="c", connection=raw)
    cursor.execute("ROLLBACK" if rolls_back else "COMMIT")
    assert numbers(poster.bus.find()) == ([1, 3] if rolls_back else [1, 3, 4])


def test_an_error_after_the_keys_were_taken_leaves_nothing_of_the_post(
    poster: Peer, given: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    poster.bus.post(Order(1), key="x", connection=given)
    with breaking_insert(poster, monkeypatch), pytest.raises(ZeroDivisionError):
        poster.bus.post(Order(2), key="a", connection=given)
    given.commit()
    assert numbers(poster.bus.find()) == [1]
    assert poster.bus.post(Order(3), key="a").created


@needs.many_writers
def test_a_transaction_that_has_read_before_sees_the_end_of_the_keys_entry(
    poster: Peer, cluster: Cluster, two: tuple[Connection, Connection], orders: Orders
) -> None:
    """Its snapshot, in REPEATABLE READ, still shows the entry, or does not show it yet."""
    one, other = two
    poster.bus.post(Order(1), key="a")
    for connection in two:
        see_what_changes(connection)
        connection.execute(select(orders.table)).all()
    node = cluster.join("node")
    node.run()
    assert poster.bus.post(Order(2), key="a", connection=one).created
    later = poster.bus.post(Order(3), key="b")
    again = poster.bus.post(Order(4), key="b", on_conflict="replace", connection=other)
    assert (again, again.answer) == (later, Answer.UPDATED)
    one.commit()
    other.commit()
    assert sorted(numbers(poster.bus.find())) == [2, 4]


@needs.many_writers
@pytest.mark.parametrize("on_conflict", ["return", "replace", "requeue", "debounce"])
def test_nobody_waits_for_an_open_transaction_with_another_key(
    poster: Peer, two: tuple[Connection, Connection], on_conflict: OnConflict
) -> None:
    """InnoDB would have them wait for gaps, in REPEATABLE READ."""
    one, other = two
    for key in "bdf":
        poster.bus.post(Order(1), key=key)
    poster.bus.post(Order(2), key="d", on_conflict=on_conflict, connection=one)
    poster.bus.post(Order(3), key="e", on_conflict=on_conflict, connection=one)
    for key in ("a", "c", "cc", "ee", "g"):
        assert poster.bus.post(Order(4), key=key, key_wait=0.0).created
        assert poster.bus.post(Order(5), key=key + "2", key_wait=0.0, connection=other).created
    assert poster.bus.post(Order(6))


@needs.many_writers
@pytest.mark.parametrize("on_conflict", ["return", "raise", "replace", "requeue", "debounce"])
def test_an_open_transaction_holds_up_nobody_who_ends_the_keys_entry(
    poster: Peer, cluster: Cluster, two: tuple[Connection, Connection], on_conflict: OnConflict
) -> None:
    one, _ = two
    poster.bus.post(Order(1), key="a")
    # The server also ends transactions that rest as long, as a thread's may on a busy machine.
    node = cluster.join("node", statement_timeout_seconds=BOUND_SECONDS)
    node.claim()
    try:
        poster.bus.post(Order(2), key="a", on_conflict=on_conflict, connection=one)
    except DuplicateKeyError:
        assert on_conflict == "raise"
    node.run()
    assert ran(node) == [1]
    one.rollback()
    assert poster.bus.post(Order(3), key="a").created
    node.run()
    assert ran(node) == [1, 3]


@needs.many_writers
def test_a_requeue_that_commits_after_the_end_runs_soon(
    poster: Peer, cluster: Cluster, two: tuple[Connection, Connection]
) -> None:
    one, _ = two
    poster.bus.post(Order(1), key="a")
    node = cluster.join("node")
    node.claim()
    poster.bus.post(Order(2), key="a", on_conflict="requeue", connection=one)
    node.run()
    one.commit()
    cluster.live(60, node)
    node.run()
    assert ran(node) == [1, 2]
    assert poster.bus.post(Order(3), key="a").created


def passed_over(
    poster: Peer, cluster: Cluster, connection: Connection, *, failures: int = 0
) -> tuple[Peer, int]:
    """A node, and an entry that has ended before a requeue of its key was committed."""
    node = cluster.join("node")
    node.handler = Recorder(failures=failures)
    record_id = poster.bus.post(Order(1), key="a")
    node.claim()
    poster.bus.post(Order(2), key="a", on_conflict="requeue", connection=connection)
    node.run()
    connection.commit()
    return node, record_id


@needs.many_writers
@pytest.mark.parametrize(
    ("on_conflict", "follower"), [("return", 2), ("replace", 3), ("requeue", 2)]
)
def test_a_requeue_that_commits_after_the_end_has_the_key_for_the_next_post(
    poster: Peer,
    cluster: Cluster,
    two: tuple[Connection, Connection],
    on_conflict: Any,
    follower: int,
) -> None:
    node, record_id = passed_over(poster, cluster, two[0])
    again = poster.bus.post(Order(3), key="a", on_conflict=on_conflict)
    assert not again.created
    assert again > record_id
    node.run()
    assert ran(node) == [1, follower]
    assert poster.bus.post(Order(4), key="a").created


@needs.many_writers
def test_a_requeue_that_commits_after_the_end_follows_the_retry(
    poster: Peer, cluster: Cluster, two: tuple[Connection, Connection]
) -> None:
    node, record_id = passed_over(poster, cluster, two[0], failures=4)
    again = poster.bus.retry(record_id)
    assert poster.bus.post(Order(3), key="a") == again
    node.run()
    assert ran(node)[4:] == [1, 2]
    assert poster.bus.post(Order(4), key="a").created


@needs.many_writers
def test_a_requeue_that_commits_after_the_end_runs_also_if_the_key_is_released(
    poster: Peer, cluster: Cluster, two: tuple[Connection, Connection]
) -> None:
    node, _ = passed_over(poster, cluster, two[0])
    assert poster.bus.release_key("a")
    node.run()
    assert ran(node) == [1, 2]


@needs.many_writers
def test_the_time_of_a_key_whose_end_was_passed_over_begins_then(
    poster: Peer, cluster: Cluster, two: tuple[Connection, Connection]
) -> None:
    one, _ = two
    first = poster.bus.post(Order(1), key="a", keep=timedelta(hours=3))
    node = cluster.join("node")
    node.claim()
    poster.bus.post(Order(2), key="a", on_conflict="requeue", connection=one)
    node.run()
    one.rollback()
    cluster.live(LOOK_SECONDS + 60, node, step=10)
    poster.bus.truncate_history()
    again = poster.bus.post(Order(3), key="a")
    assert (again, again.answer) == (first, Answer.DONE)
    cluster.live(2 * LOOK_SECONDS, node, step=10)
    assert poster.bus.post(Order(4), key="a").created


@needs.many_writers
@pytest.mark.parametrize("options", [{"on_conflict": "replace"}, {"keep": "waiting"}])
def test_an_entry_that_a_post_relies_on_begins_after_the_transaction(
    poster: Peer, cluster: Cluster, two: tuple[Connection, Connection], options: Any
) -> None:
    one, _ = two
    poster.bus.post(Order(1), key="a", keep="waiting")
    poster.bus.post(Order(2), key="a", connection=one, **options)
    node = cluster.join("node")
    assert node.claim() == []
    one.commit()
    node.run()
    assert ran(node) == [2 if "on_conflict" in options else 1]


@needs.many_writers
@pytest.mark.parametrize("commits", [True, False])
def test_several_wait_for_the_first(poster: Peer, engine: Engine, *, commits: bool) -> None:
    """Not one of them is rolled back. InnoDB would, if they all inserted the key."""
    waiting = threading.Barrier(5)

    def post(number: int) -> bool:
        with engine.connect() as connection:
            connection.execute(text("SELECT 1"))
            waiting.wait(BOUND_SECONDS)
            posted = poster.bus.post(
                Order(number), key="a", connection=connection, key_wait=BOUND_SECONDS
            )
            connection.commit()
            return posted.created

    with engine.connect() as first, ThreadPoolExecutor(4) as pool:
        poster.bus.post(Order(0), key="a", connection=first)
        others = [pool.submit(post, number) for number in range(1, 5)]
        waiting.wait(BOUND_SECONDS)
        # They wait for the database, and nothing tells that all of them have begun to.
        wait(others, timeout=0.3)
        if commits:
            first.commit()
        else:
            first.rollback()
        created = [other.result(BOUND_SECONDS) for other in others]
    assert sum(created) == (0 if commits else 1)
    assert len(poster.bus.find()) == 1


@needs.many_writers
def test_bulk_posts_of_the_same_keys_wait_for_each_other_in_order(poster: Peer) -> None:
    keys = [f"k{number:03}" for number in range(200)]

    def post(number: int) -> int:
        turned = keys[number:] + keys[:number]
        postings = [Posting(event=Order(number), key=key) for key in turned]
        return sum(bool(getattr(one, "created", 0)) for one in poster.bus.post_many(postings))

    with ThreadPoolExecutor(8) as pool:
        created = list(pool.map(post, range(0, 160, 20)))
    assert sum(created) == len(keys)
    assert len(poster.bus.find()) == len(keys)


@needs.many_writers
@pytest.mark.parametrize("commits", [True, False])
def test_a_caller_who_posts_over_an_entry_of_a_dead_node_holds_up_no_other_of_that(
    cluster: Cluster, *, commits: bool
) -> None:
    dead, other, heir = cluster.join("a"), cluster.join("b"), cluster.join("w")
    keyed = dead.bus.post(Order(1), key="k", on_conflict="requeue")
    dead.bus.post_many([Order(2), Order(3)])
    other.bus.post(Order(4))
    dead.claim()
    other.claim()
    with database_of(heir.bus).engine.connect() as connection:
        heir.bus.post(Order(5), key="k", on_conflict="requeue", connection=connection)
        elsewhere(lambda: cluster.bury("a", heir))
        elsewhere(lambda: cluster.live(6, heir, step=3.0))
        assert [one.record_id for one in heir.bus.find() if one.lane == "a"] == [keyed]
        assert len(heir.bus.history(states="REAPED")) == 3
        connection.commit() if commits else connection.rollback()
    for _ in range(3):
        cluster.live(12, heir, step=3.0)
        heir.run()
    assert sorted(heir.handler.numbers()) == [1, 2, 3, 4, *([5] if commits else [])]
    assert heir.bus.find() == []


@needs.many_writers
def test_who_has_just_taken_a_key_holds_up_nobody_who_does_not_wait(
    poster: Peer, two: tuple[Connection, Connection]
) -> None:
    """Nobody had it when the second post looked."""
    one, other = two
    look = poster.store.keys.keys.table.name

    def take() -> None:
        poster.bus.post(Order(1), key="a", connection=one)

    began = time.monotonic()
    with (
        meanwhile(poster.store.database, look, take),
        pytest.raises(KeyLockedError, match="has taken the key 'a'"),
    ):
        poster.bus.post(Order(2), key="a", key_wait=0, connection=other)
    assert time.monotonic() - began < BOUND_SECONDS / 2
    one.commit()
    assert not poster.bus.post(Order(3), key="a", connection=other).created
