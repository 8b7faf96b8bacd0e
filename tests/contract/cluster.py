"""A cluster inside one test, whose loops are turned by hand, on a manual clock.

Killing a node means to turn it no more. `vanish` also lets go of its name in this process, as if it
had been another.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from prometheus_client import REGISTRY
from sqlalchemy import URL, Row, update

from queue_core.cluster.node import Node
from queue_core.engine import QueueEngine
from queue_core.model.lanes import Lane
from queue_core.model.outcome import Outcome
from queue_core.model.posting import Posting
from queue_core.runtime.manual_clock import ManualClock
from sql.statements import nodes
from sql.tables import queue_nodes
from stickybus import BusConfig, ImmediateRetries, PersistentBus
from tests.contract.harness import (
    Order,
    Recorder,
    config_of,
    engine_of,
    eventually,
    lifecycle_of,
    nodes_here,
)


class QuietNode(Node):
    """A node without loops."""

    def start(self) -> None:
        self.register()


class Peer:
    """A bus, the only member of its node. `handler` takes the orders, unless `instead` does."""

    def __init__(self, bus: PersistentBus) -> None:
        self.bus = bus
        self.handler = Recorder()
        self.instead: Callable[[Any, Any], Any] | None = None
        self.lifecycle = lifecycle_of(bus)
        self.store = engine_of(bus).store
        self.moves = lifecycle_of(bus).holdings.moves
        self.parked = engine_of(bus).parked
        bus.subscribe(Order, self.handle, name="orders")

    def handle(self, event: Order, context: Any) -> Any:
        return (self.instead or self.handler)(event, context)

    @property
    def node(self) -> Node:
        node = self.lifecycle.node
        assert node is not None
        return node

    def join(self) -> Peer:
        self.lifecycle.membership.join(QuietNode)
        return self

    def beat(self) -> float:
        """One turn of the beat loop."""
        return self.node.beat_turn()

    def reap(self) -> float:
        """One turn of the reaper."""
        return self.node.reaper.turn()

    def claim(self) -> list[int]:
        """One claim; the ids held after it. Nothing starts before `run`."""
        self.lifecycle.claimer.wake()
        self.lifecycle.claim_loop.turn()
        return sorted(record_id for record_id, _ in self.lifecycle.ledger.held())

    def run(self) -> list[Outcome]:
        """Run what is held and claim what is due, until nothing is; the outcomes, all written."""
        outcomes, found = list[Outcome](), self.lifecycle.run_due()
        while found:
            outcomes += found
            found = self.lifecycle.run_due()
        return outcomes

    def numbers_held(self) -> list[int]:
        """The numbers of the orders held."""
        held = [record_id for record_id, _ in self.lifecycle.ledger.held()]
        return sorted(
            int(json.loads(entry.event_json or "{}")["number"])
            for entry in self.bus.find(record_ids=held)
        )


class Cluster:
    """Peers on one database and one manual clock; leases, beats and periods are the defaults."""

    def __init__(self, url: URL) -> None:
        self.url = url
        self.clock = ManualClock()
        self.peers: list[Peer] = []

    def peer(self, name: str, **settings: Any) -> Peer:
        """A peer that has not joined."""
        known: dict[str, Any] = {
            "handler_threads": 4,
            "retry": ImmediateRetries(3),
            "node_name": name,
        }
        peer = Peer(
            PersistentBus(self.url, config_of(BusConfig, {**known, **settings}), clock=self.clock)
        )
        self.peers.append(peer)
        return peer

    def join(self, name: str, **settings: Any) -> Peer:
        """A peer that is a node."""
        return self.peer(name, **settings).join()

    def tick(self, seconds: float, *alive: Peer) -> None:
        """Let time pass; those alive beat first, then reap."""
        self.clock.advance(seconds=seconds)
        for peer in alive:
            peer.beat()
        for peer in alive:
            peer.reap()

    def live(self, seconds: float, *alive: Peer, step: float = 1.0) -> None:
        """Let time pass in steps, each a `tick`."""
        for _ in range(round(seconds / step)):
            self.tick(step, *alive)

    def bury(self, dead: str, *alive: Peer, step: float = 3.0) -> float:
        """Live on until `dead` was declared dead and its entries were moved; return the seconds."""
        started = self.clock.monotonic()
        while self.row(dead).state not in nodes.FENCED:
            assert self.clock.monotonic() - started < 60, f"{dead} was never declared dead"
            self.tick(step, *alive)
        return self.clock.monotonic() - started

    def vanish(self, peer: Peer) -> None:
        """Let another bus of this process take the name, as another process would."""
        node = peer.node
        nodes_here.pop((node.database.key, node.name), None)

    def row(self, name: str) -> Row[Any]:
        """The row of a node."""
        found = self.peers[0].store.database.fetch(
            lambda connection: nodes.Nodes().node(connection, name)
        )
        assert found is not None
        return found

    def change_row(self, name: str, **values: Any) -> None:
        """Write columns of a node's row."""
        statement = update(queue_nodes).where(queue_nodes.c.name == name).values(**values)
        self.peers[0].store.database.write(lambda connection: connection.execute(statement))

    def while_waiting(
        self, work: Callable[[], Any], each_step: Callable[[], object] = lambda: None
    ) -> Future[Any]:
        """Run `work` in a thread, and advance the clock by a second whenever it waits.

        Returns its future, done.
        """
        with ThreadPoolExecutor(1) as pool:
            future = pool.submit(work)
            while not future.done():
                eventually(
                    lambda: future.done() or self.clock.waiting(), "the thread waits or ends"
                )
                if not future.done():
                    each_step()
                    self.clock.advance(seconds=1.0)
        return future

    def close(self) -> None:
        for peer in self.peers:
            if peer.lifecycle.node is not None:
                self.vanish(peer)
            peer.bus.close()


@pytest.fixture
def cluster(database_url: URL) -> Iterator[Cluster]:
    """A cluster without peers yet."""
    cluster = Cluster(database_url)
    yield cluster
    cluster.close()


def sample(name: str, labels: dict[str, str] | None = None) -> float:
    """A metric of the default registry; 0 if it was never counted."""
    return REGISTRY.get_sample_value(f"stickybus_{name}", labels or {}) or 0.0


def born_claimed(
    engine: QueueEngine, owner: str, *numbers: int, lane: str | None = None
) -> list[int]:
    """Commit orders as IN_PROCESSING by `owner` and unknown to every ledger.

    A lost answer to a COMMIT leaves them so. Returns their ids.
    """
    rows = engine.store.rows.rows(
        "bus",
        [Posting(event=Order(number)) for number in numbers],
        creator=owner,
        lane=Lane(owner if lane is None else lane),
        claimed=True,
    )
    return engine.store.database.write(lambda connection: engine.store.insert(connection, rows))
