"""The set-up of models of entries on real tables: a node, which may die, and who only posts."""

from __future__ import annotations

import shutil
import tempfile
from itertools import count
from pathlib import Path
from typing import Any, ClassVar

from hypothesis.stateful import RuleBasedStateMachine, rule
from sqlalchemy import URL, text

from queue_core.model.entry import Entry
from stickybus import RetryPolicy
from tests.contract.cluster import Cluster, Peer
from tests.contract.harness import Order, database_of
from tests.properties.test_claims import _template


class NodeLife(RuleBasedStateMachine):
    """One node at a time, and a process that only posts, on an SQLite file and a manual clock."""

    retry_policy: ClassVar[RetryPolicy]

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        path = Path(self._folder.name) / "life.db"
        shutil.copyfile(_template(), path)
        self.cluster = Cluster(URL.create("sqlite", database=str(path)))
        self.names, self.numbers = count(1), count(1)
        self.poster = self.cluster.peer("poster")
        self.failures = 0
        """The number of runs that fail from now on."""
        self.faults = list[str]()
        """What handlers found to be wrong."""
        self.node = self._join()

    def _join(self) -> Peer:
        peer = self.cluster.peer(
            f"n{next(self.names)}", retry=self.retry_policy, max_redispatches=1_000
        )
        peer.handler = self.handle  # type: ignore[assignment]
        return peer.join()

    def teardown(self) -> None:
        self.cluster.close()
        self._folder.cleanup()

    def handle(self, order: Order, context: Any) -> None:
        """Handle an event, as the model expects it."""
        raise NotImplementedError

    def fails(self) -> bool:
        """Whether this run is to fail."""
        if self.failures == 0:
            return False
        self.failures -= 1
        return True

    def post_order(
        self, number: int, options: dict[str, Any], inside: str | None, *, by_node: bool
    ) -> int:
        """Post an order, in a caller's transaction that ends as `inside` says, if it says so."""
        bus = (self.node if by_node else self.poster).bus
        if inside is None:
            posted: int = bus.post(Order(number), **options)
            return posted
        with database_of(bus).engine.connect() as connection:
            posted = bus.post(Order(number), connection=connection, **options)
            connection.commit() if inside == "commit" else connection.rollback()
        return posted

    def was_retried(self, record_id: int) -> bool:
        """Whether somebody has retried an ended entry, or discarded it."""
        with database_of(self.node.bus).begin() as connection:
            tried = text("SELECT count(*) FROM queue_replays WHERE record_id = :id")
            return int(connection.execute(tried, {"id": record_id}).scalar_one()) > 0

    @rule()
    def die(self) -> None:
        self.node.claim()
        dead, self.node = self.node, self._join()
        self.cluster.bury(dead.bus.config.node_name or "", self.node)
        self.cluster.live(18, self.node, step=3)


def number_of(entry: Entry) -> int:
    """The number of the order that an entry holds."""
    return int((entry.event_json or "").partition(":")[2].rstrip("}"))
