"""Who waits behind an entry starts soon after the COMMIT of a transaction that removes it."""

from __future__ import annotations

from typing import Any

import pytest

from queue_core.model.lanes import ANY_NODE, keyed_lane
from queue_core.reading.live_entries import Entries
from stickybus import NotificationService
from tests.contract.cluster import Cluster
from tests.contract.conftest import MakeService
from tests.contract.harness import Order, Recorder, database_of, engine_of, eventually

KEY = keyed_lane("bus", "ann")


@pytest.fixture
def service(make_service: MakeService) -> NotificationService:
    """A service whose polls come too late for any test."""
    return make_service(poll_interval_seconds=600)


@pytest.mark.parametrize("in_transaction", [True, False], ids=["in a transaction", "alone"])
@pytest.mark.parametrize("how", ["behind it in its key", "behind it, for another", "after it"])
def test_an_entry_behind_one_that_is_removed_starts_at_once(
    service: NotificationService, how: str, *, in_transaction: bool
) -> None:
    handler = Recorder()
    queue = service.create_queue("shop", "mail", handler, event_types=[Order])
    removed: dict[str, Any] = {} if how == "after it" else {"order_key": "k"}
    waits: dict[str, Any] = {"order_key": "k"}
    if how == "behind it, for another":
        other = queue.schedule(Order(0), delay=600)
        removed["after"] = [other]
    first = queue.schedule(Order(1), delay=600, **removed)
    if how == "after it":
        waits = {"after": [first], "on_failed": "run"}
    queue.schedule(Order(2), delay=0, **waits)
    service.start()
    queue.schedule(Order(9), delay=0)
    eventually(lambda: handler.numbers() == [9], "the node is there")
    if in_transaction:
        with database_of(service).begin() as connection:
            assert queue.remove(first, connection=connection) == 1
    else:
        assert queue.remove(first) == 1
    eventually(lambda: handler.numbers() == [2, 9], "it has run")


def test_an_entry_starts_when_that_is_removed_which_its_limit_key_has_let_go(
    cluster: Cluster,
) -> None:
    peer = cluster.join("a")
    peer.bus.limit(per_key=1)
    ids = [peer.bus.post(Order(number), limit_key="ann") for number in range(3)]
    peer.claim()
    peer.lifecycle.run_due()
    assert [entry.lane for entry in peer.bus.find()] == [ANY_NODE, KEY]
    for _ in range(10):  # until no look is due
        cluster.tick(0.1, peer)
    with database_of(peer.bus).begin() as connection:
        assert Entries(peer.store, "bus").remove(ids[1], connection=connection) == 1
        engine_of(peer.bus).poster.freed(connection)
    peer.lifecycle.claim_loop.turn()
    assert peer.numbers_held() == [2]
