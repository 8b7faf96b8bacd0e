"""Limit keys on real tables, together with all that may happen to an entry.

Whatever comes, no more of a key starts than the limit says, and in the end all has run.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from sqlalchemy import URL

from queue_core.links.limit_keys import LimitKeyLink, limit_key_of
from queue_core.model.states import State
from queue_core.storage.key_places import KeyPlaces
from sql.statements import Statements
from stickybus import ExponentialRetries, Mode
from tests.contract.cluster import Cluster, Peer
from tests.contract.harness import Order
from tests.properties.test_claims import _template

LIVE = 2
"""Nodes that live at a time."""
KEYS = ("ann", "bob")


class LimitKeyLife(RuleBasedStateMachine):
    """Two nodes, which may die, and a process that only posts."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        path = Path(self._folder.name) / "limits.db"
        shutil.copyfile(_template(), path)
        self.cluster = Cluster(URL.create("sqlite", database=str(path)))
        self.names, self.numbers = count(1), count(1)
        self.poster = self.cluster.peer("poster")
        self.failures = 0
        self.per_key: int | None = None
        self.taken = Counter[str]()
        self.nodes = [self._join() for _ in range(LIVE)]
        self.limit(per_key=1, concurrency=None)

    def _join(self) -> Peer:
        peer = self.cluster.peer(
            f"n{next(self.names)}",
            mode=Mode.STICKY_EVENTS,
            handler_threads=3,
            retry=ExponentialRetries(initial_seconds=3, max_retries=100, jitter=0),
            max_redispatches=1_000,
        )
        peer.handler = self._handle  # type: ignore[assignment]
        return peer.join()

    def teardown(self) -> None:
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

    # -- what happens -----------------------------------------------------------------------------

    @rule(
        key=st.sampled_from([*KEYS, None]),
        delay=st.sampled_from([0, 0, 0, 4]),
        entries=st.integers(1, 4),
        by=st.integers(0, LIVE),
    )
    def post(self, *, key: str | None, delay: int, entries: int, by: int) -> None:
        bus = [*self.nodes, self.poster][by].bus
        for _ in range(entries):
            bus.post(Order(next(self.numbers)), delay=delay or None, limit_key=key)

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

    @rule(per_key=st.sampled_from([1, 2, 3, None]), concurrency=st.sampled_from([None, None, 1, 3]))
    def limit(self, *, per_key: int | None, concurrency: int | None) -> None:
        self.nodes[0].bus.limit(
            per_key=per_key,
            concurrency=concurrency,
            rate_per_key=1 if per_key is None else None,
        )
        self.per_key = per_key
        self._hear()

    @rule()
    def unlimit(self) -> None:
        self.nodes[0].bus.unlimit()
        self.per_key = None
        self._hear()

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
    def no_more_of_a_key_has_places_than_the_limit_says(self) -> None:
        """What a limit finds running may be more; it only grows less then.

        What its node knows to have no place is not going to start.
        """
        found = Counter(
            limit_key_of(entry.headers)
            for node in self.nodes
            for entry in self.poster.bus.find(states=State.IN_PROCESSING)
            if entry.processing_owner == node.lifecycle.name
            and node.lifecycle.holdings.lane_without_place(entry) is None
        )
        before, self.taken = self.taken, found
        if self.per_key is not None:
            for key in KEYS:
                assert found[key] <= max(self.per_key, before[key])


class LimitKeyLifeToItsEnd(LimitKeyLife):
    """As `LimitKeyLife`; in the end all has run."""

    def teardown(self) -> None:
        try:
            self.nodes[0].bus.resume()
            for _ in range(200):
                self._hear()
                for node in self.nodes:
                    node.lifecycle.run_due()
                    self.no_more_of_a_key_has_places_than_the_limit_says()
                if not self.poster.bus.find():
                    break
            assert self.poster.bus.find() == []
        finally:
            super().teardown()


TestLimitKeyLife = LimitKeyLifeToItsEnd.TestCase
TestLimitKeyLife.settings = settings(max_examples=8, stateful_step_count=15, deadline=None)


# -- bugs that it must find -----------------------------------------------------------------------


@contextmanager
def _uncounted() -> Iterator[None]:
    """No place is found taken."""
    with patch.object(Statements, "key_places", lambda *_arguments, **_options: []):
        yield


@contextmanager
def _not_taken() -> Iterator[None]:
    """Who may start takes no place."""
    with patch.object(Statements, "take_key_places", lambda *_arguments, **_options: None):
        yield


@contextmanager
def _kept_by_the_dead() -> Iterator[None]:
    """A claim that was reaped, or has ended, still counts, and nobody goes through the keys."""
    places = Statements.key_places

    def all_stand(self: Statements, connection: Any, **options: Any) -> Any:
        return [(*place[:3], True) for place in places(self, connection, **options)]

    freed = patch.object(Statements, "free_key_places", lambda *_arguments, **_options: None)
    with patch.object(Statements, "key_places", all_stand), freed:
        yield


@contextmanager
def _nobody_let_go() -> Iterator[None]:
    """What waits for a place of its key waits on."""
    with patch.object(LimitKeyLink, "wake", lambda *_arguments, **_options: 0):
        yield


@contextmanager
def _all_may_start() -> Iterator[None]:
    """What finds no place starts."""

    def every(_self: KeyPlaces, _rooms: Any, by_lane: Any) -> set[int]:
        return {entry.record_id for entries in by_lane.values() for entry in entries}

    with patch.object(KeyPlaces, "first", every):
        yield


BUGS: dict[str, Callable[[], Any]] = {
    "uncounted": _uncounted,
    "not taken": _not_taken,
    "kept by the dead": _kept_by_the_dead,
    "nobody let go": _nobody_let_go,
    "all may start": _all_may_start,
}


def run_scene() -> None:
    """Steps in which each of these bugs shows."""
    life = LimitKeyLifeToItsEnd()
    steps: list[Callable[[], object]] = [
        lambda: life.post(key="ann", delay=0, entries=4, by=LIVE),
        lambda: life.claim(node=0),
        lambda: life.post(key="ann", delay=0, entries=2, by=LIVE),
        lambda: life.claim(node=1),
        lambda: life.run(node=0, failures=1),
        lambda: life.die(node=0, claims=True),
        lambda: life.claim(node=1),
    ]
    try:
        for step in steps:
            step()
            life.no_more_of_a_key_has_places_than_the_limit_says()
    finally:
        life.teardown()


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug: str) -> None:
    with BUGS[bug](), pytest.raises(AssertionError):
        run_scene()


def test_the_scene_of_the_bugs_is_right_without_them() -> None:
    run_scene()
