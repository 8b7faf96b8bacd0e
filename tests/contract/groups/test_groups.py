"""Groups of entries, from their opening to their callbacks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import text

from queue_core.links.groups import KEPT
from queue_core.reading.live_entries import Entries
from stickybus import (
    GroupNotFoundError,
    GroupStatus,
    InMemoryBus,
    InvalidPostError,
    NotificationService,
    Posting,
    ScheduledRetries,
    State,
)
from tests.contract.cluster import Cluster, Peer
from tests.contract.groups.looks import (
    FAILED,
    FINISHED,
    SUCCEEDED,
    callbacks,
    counts,
    failing,
    open_group,
    rows,
)
from tests.contract.harness import Order, Recorder


def test_a_group_is_complete_once_it_is_sealed_and_all_its_members_have_ended(
    cluster: Cluster,
) -> None:
    peer = cluster.join("a")
    group = open_group(peer, name="nightly")
    peer.bus.post(Order(1), group=group)
    peer.bus.post_many([Posting(event=Order(2), group=group), Posting(event=Order(3))])
    peer.run()
    later = peer.bus.post(Order(4), group=group, delay=60)
    assert peer.bus.seal(group)
    assert not peer.bus.seal(group)
    status = peer.bus.group_status(group)
    assert (status.name, status.queue_name, status.table) == ("nightly", "bus", "bus_events")
    assert (status.created_by, status.completed_date) == ("a", None)
    assert (status.total, status.succeeded, status.live) == (3, 2, 1)
    assert callbacks(peer) == []
    cluster.live(60, peer, step=3)
    peer.run()
    status = peer.bus.group_status(group)
    assert (status.total, status.succeeded, status.live) == (3, 3, 0)
    [ended] = peer.bus.history(record_ids=[later])
    assert status.sealed_date is not None
    assert status.completed_date == ended.finished_date
    assert callbacks(peer) == [SUCCEEDED, FINISHED]
    assert sorted(order.number for order in peer.handler.events) == [1, 2, 3, 4, 901, 902]


def test_a_callback_is_told_of_its_group(cluster: Cluster) -> None:
    peer = cluster.join("a")
    group = peer.bus.open_group(
        on_finished=Posting(
            event=Order(5), headers={"tenant": "t"}, search_key1="k", user_token="u"
        ),
        on_failed=Posting(event=Order(6)),
    )
    peer.bus.seal(group)
    peer.run()
    [entry] = peer.bus.history()
    assert entry.captured == {"tenant": "t", "group_id": str(group)}
    assert (entry.search_key1, entry.user_token, entry.creating_owner) == ("k", "u", "a")


def test_retries_of_a_callback_count_from_the_completion(cluster: Cluster) -> None:
    peer = cluster.join("a", retry=ScheduledRetries((2, 4, 6)))
    peer.handler = Recorder(failures=99)
    group = peer.bus.open_group(on_finished=Order(FINISHED))
    cluster.live(7, peer)
    peer.bus.seal(group)
    completed = cluster.clock.now()
    peer.run()
    [callback] = peer.bus.find()
    assert callback.error_count == peer.handler.calls == 1
    assert callback.effective_date == completed + timedelta(seconds=2)


@pytest.mark.parametrize(("priority", "head_start"), [("normal", 0), ("high", 600)])
def test_a_callback_is_due_at_the_completion_with_its_priority(
    cluster: Cluster, priority: Any, head_start: int
) -> None:
    peer = cluster.join("a")
    group = peer.bus.open_group(on_finished=Posting(event=Order(FINISHED), priority=priority))
    cluster.live(7, peer)
    peer.bus.seal(group)
    [callback] = peer.bus.find()
    assert callback.due_since == callback.created_date == cluster.clock.now()
    assert callback.created_date - callback.effective_date == timedelta(seconds=head_start)


def test_a_member_tells_why_the_callbacks_have_not_come(cluster: Cluster) -> None:
    peer = cluster.join("a")
    group = open_group(peer)
    first = peer.bus.post(Order(1), group=group)
    peer.run()
    second = peer.bus.post(Order(2), group=group)

    ended, reason = peer.bus.explain(first).reasons
    assert (ended.code, reason.code) == ("ended", "group-open")
    assert reason.facts == {"group_id": group, "live": 1, "total": 2, "sealed_date": None}
    assert reason.text.endswith("The group is not sealed yet.")
    assert peer.bus.explain(second).reasons[-1].facts == reason.facts

    peer.bus.seal(group)
    assert "sealed" not in peer.bus.explain(first).reasons[-1].text
    peer.run()
    assert [one.code for one in peer.bus.explain(first).reasons] == ["ended"]


def test_an_empty_group_is_complete_when_it_is_sealed(cluster: Cluster) -> None:
    peer = cluster.join("a")
    group = open_group(peer)
    assert peer.bus.group_status(group).completed_date is None
    peer.bus.seal(group)
    assert counts(peer, group) == (0, 0, 0, 0)
    assert peer.bus.group_status(group).completed_date is not None
    assert callbacks(peer) == [SUCCEEDED, FINISHED]


def test_members_that_have_ended_before_the_seal_count(cluster: Cluster) -> None:
    peer = cluster.join("a")
    group = open_group(peer)
    peer.bus.post(Order(1), group=group)
    peer.run()
    assert callbacks(peer) == []
    peer.bus.seal(group)
    assert callbacks(peer) == [SUCCEEDED, FINISHED]


@pytest.mark.parametrize("sealed_first", [True, False])
def test_a_failure_decides_which_callback_is_posted(
    cluster: Cluster, *, sealed_first: bool
) -> None:
    peer = failing(cluster, 1)
    group = open_group(peer)
    for number in range(3):
        peer.bus.post(Order(number), group=group)
    if sealed_first:
        peer.bus.seal(group)
    peer.run()
    peer.bus.seal(group)
    assert counts(peer, group) == (3, 2, 1, 0)
    assert callbacks(peer) == [FAILED, FINISHED]


def remove(peer: Peer, ids: list[int]) -> None:
    for record_id in ids:
        assert Entries(peer.store, "bus").remove(record_id) == 1


def forget(peer: Peer, ids: list[int]) -> None:
    assert peer.bus.forget(search_key1=7).live == len(ids)


def let_fail_what_they_wait_for(peer: Peer, ids: list[int]) -> None:
    del ids
    first = peer.bus.find(states="AVAILABLE")[0]
    assert Entries(peer.store, "bus").remove(first.record_id) == 1


@pytest.mark.parametrize("cancel", [remove, forget, let_fail_what_they_wait_for])
def test_members_that_are_removed_are_cancelled(
    cluster: Cluster, cancel: Callable[[Peer, list[int]], None]
) -> None:
    peer = cluster.join("a")
    group, other = open_group(peer), open_group(peer)
    first = peer.bus.post(Order(0), delay=600)
    after = [first] if cancel is let_fail_what_they_wait_for else None
    ids = [
        peer.bus.post(Order(number), delay=600, group=group, search_key1=7, after=after)
        for number in (1, 2)
    ]
    peer.bus.post(Order(3), group=other, delay=600)
    peer.bus.seal(group)
    peer.bus.seal(other)
    cancel(peer, ids)
    assert counts(peer, group) == (2, 0, 0, 2)
    assert counts(peer, other) == (1, 0, 0, 0)
    assert callbacks(peer) == [FAILED, FINISHED]


def test_members_may_have_order_keys_and_wait_for_others(cluster: Cluster) -> None:
    peer = cluster.join("a")
    group = open_group(peer)
    first = peer.bus.post(Order(1), group=group, order_key="k")
    peer.bus.post(Order(2), group=group, order_key="k")
    peer.bus.post(Order(3), group=group, after=[first])
    peer.bus.seal(group)
    peer.run()
    assert counts(peer, group) == (3, 3, 0, 0)
    assert callbacks(peer) == [SUCCEEDED, FINISHED]


def test_a_member_that_waits_for_others_can_be_released(cluster: Cluster) -> None:
    peer = cluster.join("a")
    group = open_group(peer)
    first = peer.bus.post(Order(1), delay=600)
    peer.bus.post(Order(2), group=group, key="k", after=[first])
    [waiting] = peer.bus.find(states="WAITING")
    assert peer.bus.release(waiting.record_id)
    peer.run()
    assert counts(peer, group) == (1, 1, 0, 0)


def test_members_of_several_groups_end_in_one_batch(cluster: Cluster) -> None:
    peer = failing(cluster, 5)
    groups = [open_group(peer) for _ in range(4)]
    peer.bus.post_many(
        [Posting(event=Order(number), group=groups[number % 4]) for number in range(40)]
    )
    for group in groups:
        peer.bus.seal(group)
    peer.run()
    assert [counts(peer, group) for group in groups] == [
        (10, 10, 0, 0),
        (10, 9, 1, 0),
        (10, 10, 0, 0),
        (10, 10, 0, 0),
    ]
    assert sorted(callbacks(peer)) == [FINISHED] * 4 + [SUCCEEDED] * 3 + [FAILED]


def test_notifications_have_groups(cluster: Cluster) -> None:
    seen = list[Any]()
    service = NotificationService(cluster.url, clock=cluster.clock)
    queue = service.create_queue("shop", "mail", seen.append)
    other = service.create_queue("shop", "bills", seen.append)
    group = queue.open_group(on_finished={"done": True})
    queue.schedule({"number": 1}, delay=60, group=group)
    [second] = other.schedule_many([Posting(event={"number": 2}, group=group)])
    queue.seal(group)
    assert other.remove(second) == 1
    assert queue.remove(queue.find()[0].record_id) == 1
    [callback] = queue.find()
    assert (callback.queue_name, callback.class_name) == ("shop:mail", "mail")
    status: GroupStatus = other.group_status(group)
    assert (status.queue_name, status.total, status.cancelled) == ("shop:mail", 2, 2)
    service.close()


def test_awaitable_twins(cluster: Cluster) -> None:
    peer = cluster.join("a")

    async def work() -> GroupStatus:
        group = await peer.bus.open_group_async(name="x", on_finished=Order(FINISHED))
        await peer.bus.post_async(Order(1), group=group)
        assert await peer.bus.seal_async(group)
        return await peer.bus.group_status_async(group)

    status = asyncio.run(work())
    assert (status.name, status.total, status.sealed_date is None) == ("x", 1, False)


def test_the_bus_in_memory_counts_no_groups() -> None:
    with InMemoryBus() as bus, pytest.raises(InvalidPostError, match="group"):
        bus.post(Order(1), group=1)


def test_groups_that_have_been_complete_for_long_are_deleted(cluster: Cluster) -> None:
    peer = cluster.join("a")
    complete, unsealed = open_group(peer), open_group(peer)
    peer.bus.seal(complete)
    peer.run()
    cluster.tick(KEPT.total_seconds() - 60, peer)
    cluster.live(30, peer)
    assert rows(peer) == 4
    cluster.live(90, peer, step=3)
    assert rows(peer) == 2
    assert peer.bus.group_status(unsealed).total == 0
    with pytest.raises(GroupNotFoundError):
        peer.bus.group_status(complete)


def test_an_entry_may_name_a_group_that_is_nowhere(cluster: Cluster) -> None:
    """As one whose group was deleted, or a row by hand."""
    peer = cluster.join("a")
    group = open_group(peer)
    ids = [peer.bus.post(Order(number), group=group, delay=1) for number in range(5)]
    change = text("UPDATE bus_events SET headers = :headers WHERE record_id = :id")
    texts = [str(group + 1), "0", "x", "-3", "9" * 40]
    with peer.store.database.begin() as connection:
        for record_id, mark in zip(ids, texts, strict=True):
            connection.execute(change, {"headers": json.dumps({"!group": mark}), "id": record_id})
    cluster.live(2, peer)
    peer.run()
    assert {one.processing_state for one in peer.bus.history()} == {State.PROCESSED}
    assert counts(peer, group) == (5, 0, 0, 0)
