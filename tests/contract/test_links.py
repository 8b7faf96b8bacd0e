"""Links: each way in which an entry ends tells what belongs to it, in the same transaction."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from sqlalchemy import Connection, bindparam, update
from sqlalchemy.exc import DBAPIError

from queue_core.links.link import Ending, RetryByHand
from queue_core.links.links import Links
from queue_core.model.entry import Entry
from queue_core.reading.live_entries import Entries
from queue_core.storage.store import Store
from sql.search_keys import AWAITED
from stickybus import ImmediateRetries, State
from tests.contract.cluster import Cluster, Peer
from tests.contract.harness import Order, Recorder, lost_answers

MARK = "!toy"


class Toy:
    """Notes what it is told. It undoes nothing, so it is told of what was rolled back, too."""

    def __init__(self, mark: str) -> None:
        self.mark = mark
        self.ends = list[tuple[int, State]]()
        self.copies, self.retries = dict[int, int](), dict[int, int]()
        self.befores = list[State | None]()
        self.discards, self.lent = list[int](), list[bool]()

    def ended(self, connection: Connection, endings: Sequence[Ending], *, lent: bool) -> None:
        assert connection.in_transaction()
        self.lent.append(lent)
        self.ends += [(one.entry.record_id, one.state) for one in endings]

    def renewed(self, connection: Connection, old: Entry, new_id: int) -> None:
        assert connection.in_transaction()
        self.copies[old.record_id] = new_id

    def retried(self, connection: Connection, retry: RetryByHand, *, lent: bool) -> None:
        assert connection.in_transaction()
        self.befores.append(retry.before)
        self.retries[retry.old.record_id] = retry.new_id

    def discarded(self, connection: Connection, old: Entry, *, lent: bool) -> None:
        assert connection.in_transaction()
        self.discards.append(old.record_id)


def linked(peer: Peer, *marks: str) -> list[Toy]:
    """Give a peer's entries kinds of links."""
    toys = [Toy(mark) for mark in marks or (MARK,)]
    peer.store.links = Links(toys)
    return toys


def mark(store: Store, record_id: int, name: str = MARK) -> None:
    """Mark an entry, as its post would, or somebody later."""
    headers = msgspec.json.encode({name: "x"}).decode()
    main = store.statements.main
    change = update(main).where(main.c.record_id == bindparam("id")).values(headers=headers)
    store.database.write(lambda connection: connection.execute(change, {"id": record_id}))


def posted(cluster: Cluster, number: int = 1, **options: Any) -> int:
    """An entry by a process that is no node, marked before anybody claims it."""
    stranger = cluster.peer("stranger")
    record_id = int(stranger.bus.post(Order(number), **options))
    mark(stranger.store, record_id)
    return record_id


def test_an_entry_without_a_mark_tells_nobody(cluster: Cluster) -> None:
    peer = cluster.join("a")
    [toy] = linked(peer)
    peer.bus.post(Order(1), headers={"x": '"!toy"'}, search_key1="a text")
    peer.run()
    assert len(peer.bus.history()) == 1
    assert toy.ends == []


def test_an_outcome_tells_its_links(cluster: Cluster) -> None:
    peer = cluster.join("a")
    [toy] = linked(peer)
    record_id = posted(cluster)
    peer.run()
    assert toy.ends == [(record_id, State.PROCESSED)]


def test_a_retry_is_no_end_and_a_failure_is(cluster: Cluster) -> None:
    peer = cluster.join("a")
    peer.handler = Recorder(failures=10)
    [toy] = linked(peer)
    record_id = posted(cluster)
    peer.run()
    assert toy.ends == [(record_id, State.FAILED)]


def test_an_exactly_once_handler_tells_its_links_in_its_transaction(cluster: Cluster) -> None:
    peer, name = cluster.join("a"), "Invoice.paid"
    peer.bus.subscribe(name, lambda _event, _context: None, name="books", exactly_once=True)
    [toy] = linked(peer)
    stranger = cluster.peer("stranger")
    record_id = stranger.bus.post({"a": 1}, event_name=name)
    mark(stranger.store, record_id)
    peer.run()
    assert toy.ends == [(record_id, State.PROCESSED)]


@pytest.mark.parametrize("exactly_once", [False, True])
def test_who_waits_for_an_entry_that_runs_already_is_told_of_its_end(
    cluster: Cluster, *, exactly_once: bool
) -> None:
    peer, name = cluster.join("a"), "Invoice.paid"
    [toy] = linked(peer, AWAITED)
    ids = list[int]()

    def handle(event: Any, context: Any) -> None:
        # As another process would, while the handler runs.
        mark(stranger.store, context.record_id, AWAITED)
        ids.append(context.record_id)

    peer.bus.subscribe(name, handle, name="books", exactly_once=exactly_once)
    stranger = cluster.peer("stranger")
    plain = [stranger.bus.post(Order(number)) for number in range(3)]
    stranger.bus.post({"a": 1}, event_name=name)
    peer.run()
    assert toy.ends == [(record_id, State.PROCESSED) for record_id in ids]
    ended = {entry.record_id: entry for entry in peer.bus.history()}
    assert sorted(ended) == sorted(plain + ids)
    assert ended[ids[0]].processing_state is State.PROCESSED
    assert peer.bus.find() == []


def test_an_entry_that_is_awaited_when_it_is_claimed_ends_with_its_outcome(
    cluster: Cluster,
) -> None:
    peer = cluster.join("a")
    peer.handler = Recorder(failures=10)
    [toy] = linked(peer, AWAITED)
    record_id = cluster.peer("stranger").bus.post(Order(1))
    mark(peer.store, record_id, AWAITED)
    peer.run()
    [entry] = peer.bus.history()
    assert toy.ends == [(record_id, State.FAILED)]
    assert (entry.error_count, (entry.last_error or "")[:12]) == (4, "RuntimeError")
    assert entry.started_date is not None


def test_a_commit_without_answer_tells_the_links_once(cluster: Cluster) -> None:
    peer = cluster.join("a")
    [toy] = linked(peer)
    record_id = posted(cluster)
    peer.claim()
    with lost_answers(peer.store.database, "bus_events_history", committed=True) as lost:
        with suppress(DBAPIError):
            peer.run()
        peer.run()
    assert lost
    assert [entry.record_id for entry in peer.bus.history()] == [record_id]
    assert toy.ends == [(record_id, State.PROCESSED)]


def test_a_removal_and_forgetting_tell_the_links(cluster: Cluster) -> None:
    peer = cluster.join("a")
    [toy] = linked(peer)
    first, second = posted(cluster, 1), posted(cluster, 2, search_key1=7)
    mark(peer.store, second)
    assert Entries(peer.store, "bus").remove(first) == 1
    peer.bus.forget(search_key1=7)
    assert toy.ends == [(first, State.REMOVED), (second, State.REMOVED)]
    assert toy.lent == [False, False]


def test_links_know_whose_transaction_it_is(cluster: Cluster) -> None:
    peer = cluster.join("a")
    [toy] = linked(peer)
    record_id = posted(cluster, 1)
    with peer.store.database.begin() as connection:
        Entries(peer.store, "bus").remove(record_id, connection=connection)
    assert toy.lent == [True]


def test_the_copies_of_reaped_entries_are_told_by_their_new_ids(cluster: Cluster) -> None:
    dead, watcher = cluster.join("dead"), cluster.join("w")
    [toy] = linked(watcher)
    ids = [posted(cluster, number) for number in range(3)]
    plain = cluster.peer("stranger").bus.post(Order(9))
    dead.claim()
    cluster.bury("dead", watcher)
    copies = {entry.origin_id or 0: entry for entry in watcher.bus.find()}
    assert sorted(copies) == sorted([*ids, plain])
    assert toy.copies == {record_id: copies[record_id].record_id for record_id in ids}
    assert toy.ends == []
    assert {copy.claim_count for copy in copies.values()} == {0}
    assert {copy.redispatch_count for copy in copies.values()} == {1}
    watcher.run()
    cluster.live(18, watcher, step=3)
    watcher.run()
    assert sorted(record_id for record_id, _ in toy.ends) == sorted(toy.copies.values())


def test_poison_tells_the_links(cluster: Cluster) -> None:
    peer = cluster.join("a", max_redispatches=0)
    record_id = posted(cluster)
    toys = list[Toy]()
    for _ in range(3):
        if peer.bus.history(states=[State.FAILED]):
            break
        peer.claim()
        cluster.vanish(peer)
        cluster.change_row("a", pid=2**22)
        peer = cluster.peer("a", max_redispatches=0)
        toys += linked(peer)
        peer.join()
        cluster.live(18, peer, step=3)
    [failed] = peer.bus.history(states=[State.FAILED])
    assert failed.origin_id == record_id
    assert [end for toy in toys for end in toy.ends] == [(failed.record_id, State.FAILED)]


def test_an_entry_that_nobody_has_known_for_long_tells_the_links(cluster: Cluster) -> None:
    peer = cluster.join("a")
    [toy] = linked(peer)
    stranger = cluster.peer("stranger")
    record_id = stranger.bus.post({"a": 1}, event_name="Invoice.paid")
    mark(stranger.store, record_id)
    peer.run()
    cluster.clock.advance(seconds=timedelta(days=90).total_seconds())
    peer.parked.look_at_all()
    peer.parked.turn(cluster.clock.monotonic())
    assert toy.ends == [(record_id, State.FAILED)]


def test_a_retry_and_a_discard_by_hand_tell_the_links(cluster: Cluster) -> None:
    peer = cluster.join("a", retry=ImmediateRetries(0))
    peer.handler = Recorder(failures=2)
    [toy] = linked(peer)
    first, second = posted(cluster, 1), posted(cluster, 2)
    peer.run()
    copy = peer.bus.retry(first)
    peer.bus.discard(second)
    assert (toy.retries, toy.discards) == ({first: copy}, [second])
    peer.bus.retry(first, force=True)
    remove = Entries(peer.store, "bus").remove
    remove(toy.retries[first])
    peer.bus.retry(first)
    assert toy.befores == [State.FAILED, None, State.REMOVED]
