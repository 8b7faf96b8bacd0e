"""What the models of limits share: two nodes, which may die, and a process that only posts."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from sqlalchemy import URL

from queue_core.model.entry import Entry
from queue_core.model.states import State
from stickybus import ExponentialRetries, Mode
from tests.contract.cluster import Cluster, Peer
from tests.contract.harness import Order
from tests.template import template

LIVE = 2
"""Nodes that live at a time."""


class LimitedLife(RuleBasedStateMachine):
    """Everything but the posts and the limits; in the end all has run."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        path = Path(self._folder.name) / "limits.db"
        shutil.copyfile(template(), path)
        self.cluster = Cluster(URL.create("sqlite", database=str(path)))
        self.names, self.numbers = count(1), count(1)
        self.poster = self.cluster.peer("poster")
        self.failures = 0
        self.nodes = [self._join() for _ in range(LIVE)]

    def _join(self) -> Peer:
        peer = self.cluster.peer(
            f"n{next(self.names)}",
            mode=Mode.STICKY_EVENTS,
            handler_threads=3,
            retry=ExponentialRetries(initial_seconds=3, max_retries=100, jitter=0),
            max_redispatches=1_000,
        )
        peer.instead = self._handle
        return peer.join()

    def teardown(self) -> None:
        """Let all run. AssertionError if something does not, or more at once than a limit says."""
        try:
            self.nodes[0].bus.resume()
            for _ in range(200):
                self._hear()
                for node in self.nodes:
                    node.lifecycle.run_due()
                    self.nothing_is_beyond_its_limit()
                if not self.poster.bus.find():
                    break
            assert self.poster.bus.find() == []
        finally:
            self.cluster.close()
            self._folder.cleanup()

    def _handle(self, _order: Order, _context: Any) -> None:
        if self.failures:
            self.failures -= 1
            raise RuntimeError

    def _hear(self, seconds: int = 1) -> None:
        """Let the time pass after which each node has heard of a change."""
        self.cluster.live(seconds, *self.nodes)
        for node in self.nodes:
            node.lifecycle.limited.turn(self.cluster.clock.monotonic())

    def _with_places(self) -> Iterator[Entry]:
        """The entries that run, or are going to start.

        What its node knows to have no place is not going to start.
        """
        running = self.poster.bus.find(states=State.IN_PROCESSING)
        for node in self.nodes:
            for entry in running:
                if (
                    entry.processing_owner == node.lifecycle.name
                    and node.lifecycle.holdings.lane_without_place(entry) is None
                ):
                    yield entry

    def _post(self, entries: int, by: int, delay: int, **options: Any) -> None:
        bus = [*self.nodes, self.poster][by].bus
        for _ in range(entries):
            # Without a date, it could be born claimed.
            bus.post(Order(next(self.numbers)), delay=delay or None, **options)

    # -- what happens -----------------------------------------------------------------------------

    @rule(node=st.integers(0, LIVE - 1))
    def claim(self, *, node: int) -> None:
        self.nodes[node].lifecycle.limited.look()
        self.nodes[node].claim()

    @rule(node=st.integers(0, LIVE - 1), failures=st.sampled_from([0, 1, 3]))
    def run(self, *, node: int, failures: int) -> None:
        self.failures = failures
        self.nodes[node].lifecycle.run_due()
        self.failures = 0

    @rule(seconds=st.sampled_from([1, 4, 8]))
    def live(self, *, seconds: int) -> None:
        self._hear(seconds)

    @rule(node=st.integers(0, LIVE - 1), claims=st.booleans())
    def die(self, *, node: int, claims: bool) -> None:
        dead = self.nodes[node]
        if claims:
            dead.claim()
        self.nodes[node] = self._join()
        self.cluster.bury(dead.bus.config.node_name or "", *self.nodes)

    @rule(paused=st.booleans())
    def pause(self, *, paused: bool) -> None:
        if paused:
            self.nodes[0].bus.pause()
        else:
            self.nodes[0].bus.resume()

    @rule(first=st.booleans())
    def remove(self, *, first: bool) -> None:
        waiting = self.poster.bus.find(states=State.AVAILABLE)
        if waiting:
            self.poster.bus.remove_all(record_ids=[waiting[0 if first else -1].record_id])

    # -- what holds -------------------------------------------------------------------------------

    @invariant()
    def nothing_is_beyond_its_limit(self) -> None:
        """What a limit finds running may be more; it only grows less then."""
        raise NotImplementedError


def run_steps(life: LimitedLife, steps: Sequence[Callable[[], object]]) -> None:
    """Take the steps of a scene, and look after each of them at what must hold."""
    try:
        for step in steps:
            step()
            life.nothing_is_beyond_its_limit()
    finally:
        life.teardown()
