"""A database server that leaves running nodes for longer than their leases, and comes back."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from sqlalchemy import URL

from devtools.server import DatabaseServer, StopMode
from queue_core.cluster.node import Node
from sql.statements import nodes
from stickybus import DatabaseUnreachableError, PersistentBus, State
from tests.acceptance.node_process import Order, bus_on
from tests.contract.harness import engine_of, eventually

LEASE_SECONDS = 4.0
"""Of nodes of which none is to be declared dead, although the machine may stall."""
MODES = pytest.mark.parametrize("mode", list(StopMode), ids=lambda mode: mode.name.lower())


class Nodes:
    """Two buses with short leases; orders below zero wait for `go`."""

    def __init__(self, url: URL, opened: ExitStack) -> None:
        self.handled: list[int] = []
        self.started = threading.Event()
        self.go = threading.Event()
        self.buses = [bus_on(url, name, LEASE_SECONDS) for name in ("a", "b")]
        for bus in self.buses:
            opened.callback(bus.close)
            bus.subscribe(Order, self._handle)
            bus.start()
        opened.callback(self.go.set)

    def _handle(self, order: Order) -> None:
        if order.number < 0:
            self.started.set()
            assert self.go.wait(30)
        self.handled.append(order.number)

    def outlive_their_leases(self) -> None:
        """Wait until no beat can have reached the database for a lease."""
        eventually(
            lambda: not any(node.lease.holds() for node in self.nodes()), "the leases are over"
        )

    def states(self) -> dict[str, tuple[str, int]]:
        """State and epoch of each node."""
        rows = engine_of(self.buses[0]).database.fetch(nodes.Nodes().all_nodes)
        return {row.name: (row.state, row.epoch) for row in rows}

    def recovered(self) -> None:
        """Wait until both beat again."""
        eventually(
            lambda: all(node.lease.holds() for node in self.nodes()), "the leases hold again"
        )

    def nodes(self) -> list[Node]:
        """The nodes of the buses, which have joined."""
        joined = [engine_of(bus).lifecycle.node for bus in self.buses]
        return [node for node in joined if node is not None]


@pytest.fixture
def cluster(own_server_url: URL) -> Iterator[Nodes]:
    with ExitStack() as opened:
        yield Nodes(own_server_url, opened)


def all_ended(bus: PersistentBus, count: int) -> list[State]:
    eventually(lambda: len(bus.history()) >= count and not bus.find(), f"{count} orders have ended")
    return [entry.processing_state for entry in bus.history()]


@MODES
def test_after_an_outage_longer_than_the_lease_nothing_is_lost_and_nobody_reaped(
    own_server: DatabaseServer, cluster: Nodes, mode: StopMode
) -> None:
    one, two = cluster.buses
    one.post_many([Order(-1), Order(-2)])
    assert cluster.started.wait(20)
    before = cluster.states()

    own_server.stop(mode)
    cluster.go.set()  # both end while the database is away
    eventually(lambda: len(cluster.handled) == 2, "the handlers have ended")
    cluster.outlive_their_leases()
    own_server.start()
    cluster.recovered()
    for number in range(1, 11):
        (one if number % 2 else two).post(Order(number))

    assert all_ended(two, 12) == [State.PROCESSED] * 12  # no REAPED among them
    assert sorted(cluster.handled) == [-2, -1, *range(1, 11)]  # nothing ran twice
    assert cluster.states() == before  # no node was declared dead, none had to register anew


def test_a_post_while_the_database_is_away_raises_at_once_and_a_later_one_works(
    own_server: DatabaseServer, cluster: Nodes
) -> None:
    bus = cluster.buses[0]
    bus.post(Order(1))
    all_ended(bus, 1)
    own_server.stop()

    for _ in range(3):
        with pytest.raises(DatabaseUnreachableError, match="can't be reached") as caught:
            bus.post(Order(2))
        assert str(engine_of(bus).database.url.password) not in str(caught.value)

    own_server.start()
    cluster.recovered()
    bus.post(Order(3))
    all_ended(bus, 2)
    assert sorted(cluster.handled) == [1, 3]


def test_a_bus_made_while_the_database_is_away_says_so(
    own_server: DatabaseServer, own_server_url: URL
) -> None:
    own_server.stop()

    with pytest.raises(DatabaseUnreachableError, match="can't be reached"):
        bus_on(own_server_url, "late")


def wait_for_more(posted: list[int]) -> None:
    count = len(posted) + 20
    eventually(lambda: len(posted) > count, "more orders are posted")


def test_posting_through_restarts_delivers_exactly_what_was_committed(
    own_server: DatabaseServer, cluster: Nodes
) -> None:
    bus, posted = cluster.buses[0], list[int]()
    stop = threading.Event()

    def post() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            try:
                bus.post(Order(number))
                posted.append(number)
            except Exception:  # noqa: BLE001 -- whatever the driver raises: the order may or may not be there
                stop.wait(0.01)

    poster = threading.Thread(target=post)
    poster.start()
    for mode in StopMode:
        wait_for_more(posted)
        own_server.restart(mode)
        cluster.recovered()
    wait_for_more(posted)
    stop.set()
    poster.join()

    eventually(lambda: not bus.find(), "all have ended")
    assert set(posted) <= set(cluster.handled)
    ended = bus.history()
    assert {entry.processing_state for entry in ended} == {State.PROCESSED}
    # A commit without an answer may have taken effect; each row ended once.
    assert len({entry.event_json for entry in ended}) == len(ended) >= len(posted)
