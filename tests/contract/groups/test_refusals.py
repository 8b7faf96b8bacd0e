"""What can be no group, no callback and no member."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stickybus import (
    GroupNotFoundError,
    GroupSealedError,
    InvalidPostError,
    NotificationService,
    PayloadError,
    Posting,
)
from tests.contract.cluster import Cluster
from tests.contract.groups.looks import FINISHED, SUCCEEDED, counts, open_group, rows
from tests.contract.harness import Order, database_of


def test_a_sealed_group_takes_no_members(cluster: Cluster) -> None:
    peer = cluster.join("a")
    group = open_group(peer)
    peer.bus.seal(group)
    with pytest.raises(GroupSealedError, match=f"group {group}") as raised:
        peer.bus.post(Order(1), group=group)
    assert raised.value.group_id == group
    with database_of(peer.bus).begin() as connection:
        with pytest.raises(GroupSealedError):
            peer.bus.post(Order(2), group=group, connection=connection)
        peer.bus.post(Order(3), connection=connection)
    numbers = [json.loads(one.event_json or "")["number"] for one in peer.bus.find()]
    assert sorted(numbers) == [3, FINISHED, SUCCEEDED]


def test_a_group_that_does_not_exist_is_refused(cluster: Cluster) -> None:
    peer = cluster.join("a")
    group = open_group(peer)
    for call in (
        lambda: peer.bus.post(Order(1), group=group + 1),
        lambda: peer.bus.seal(group + 1),
        lambda: peer.bus.group_status(group + 1),
    ):
        with pytest.raises(GroupNotFoundError, match=f"no group {group + 1} in bus_events"):
            call()
    service = NotificationService(cluster.url, clock=cluster.clock)
    queue = service.create_queue("shop", "mail", lambda _event: None, event_types=[Order])
    with pytest.raises(GroupNotFoundError):  # it is of another table
        queue.schedule(Order(1), delay=0, group=group)
    service.close()
    assert peer.bus.find() == []


@pytest.mark.parametrize("group", ["1", 0, -1, 1.0, True, 2**63])
def test_what_can_be_no_group_is_refused(cluster: Cluster, group: Any) -> None:
    peer = cluster.join("a")
    for call in (
        lambda: peer.bus.post(Order(1), group=group),
        lambda: peer.bus.seal(group),
        lambda: peer.bus.group_status(group),
    ):
        with pytest.raises(InvalidPostError, match="group"):
            call()
    assert peer.bus.find() == []


@pytest.mark.parametrize(
    "options",
    [
        {"name": ""},
        {"name": "x" * 256},
        {"on_finished": Posting(event=Order(1), key="k")},
        {"on_failed": Posting(event=Order(1), order_key="k")},
        {"on_succeeded": Posting(event=Order(1), after=[1])},
        {"on_succeeded": Posting(event=Order(1), group=1)},
        {"on_finished": {"a": 1}},
        {"on_finished": object()},
    ],
)
def test_what_can_be_no_callback_is_refused(cluster: Cluster, options: Any) -> None:
    peer = cluster.join("a")
    with pytest.raises((InvalidPostError, PayloadError)):
        peer.bus.open_group(**options)
    assert rows(peer) == 0


@pytest.mark.parametrize("on_conflict", ["replace", "requeue", "debounce"])
def test_a_member_does_not_write_into_another_entry(cluster: Cluster, on_conflict: Any) -> None:
    peer = cluster.join("a")
    group = open_group(peer)
    with pytest.raises(InvalidPostError, match="on_conflict"):
        peer.bus.post(Order(1), key="k", on_conflict=on_conflict, group=group)


def test_only_an_entry_that_is_posted_is_a_member(cluster: Cluster) -> None:
    peer = cluster.join("a")
    group = open_group(peer)
    peer.bus.post_many([Posting(event=Order(1), key="k", group=group)] * 2)
    assert not peer.bus.post(Order(2), key="k", group=group).created
    peer.bus.post(Order(3), key="k", on_conflict="replace")
    assert counts(peer, group) == (1, 0, 0, 0)
    peer.run()
    assert [order.number for order in peer.handler.events] == [3]
    assert counts(peer, group) == (1, 1, 0, 0)
