"""Limits on real tables, together with all that may happen to an entry.

Retries, dates, failures, pauses, changed limits, dead nodes and their copies: whatever comes, no
more is claimed than the limit says, and in the end all has run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from queue_core.holding.holdings import Holdings
from queue_core.storage.places import Places, Room
from sql.statements.entries import Statements
from tests.properties.limited_life import LIVE, LimitedLife, run_steps


class LimitLife(LimitedLife):
    """A queue with a limit, which changes."""

    def __init__(self) -> None:
        super().__init__()
        self.concurrency: int | None = None
        self.per_node: int | None = None
        self.claimed = Counter[str | None]()
        self.limit(concurrency=2, per_node=None)

    @rule(delay=st.sampled_from([0, 0, 0, 4]), entries=st.integers(1, 5), by=st.integers(0, LIVE))
    def post(self, *, delay: int, entries: int, by: int) -> None:
        self._post(entries, by, delay)

    @rule(
        concurrency=st.sampled_from([1, 2, 3, 5, None]),
        per_node=st.sampled_from([None, None, 1, 2]),
    )
    def limit(self, *, concurrency: int | None, per_node: int | None) -> None:
        if concurrency is None and per_node is None:
            self.nodes[0].bus.limit(rate=1, per=timedelta(seconds=1), burst=2)
        else:
            self.nodes[0].bus.limit(concurrency=concurrency, per_node=per_node)
        self.concurrency, self.per_node = concurrency, per_node
        self._hear()

    @rule()
    def unlimit(self) -> None:
        self.nodes[0].bus.unlimit()
        self.concurrency = self.per_node = None
        self._hear()

    @invariant()
    def nothing_is_beyond_its_limit(self) -> None:
        found = Counter(entry.processing_owner for entry in self._with_places())
        before, self.claimed = self.claimed, found
        if self.concurrency is not None:
            assert found.total() <= max(self.concurrency, before.total())
        if self.per_node is not None:
            assert all(
                claimed <= max(self.per_node, before[owner]) for owner, claimed in found.items()
            )


TestLimitLife = LimitLife.TestCase
TestLimitLife.settings = settings(max_examples=8, stateful_step_count=15, deadline=None)


# -- bugs that it must find -----------------------------------------------------------------------


def _uncounted() -> Any:
    """Places are counted by each node for itself."""
    free: Any = Places._free

    def own(self: Places, limit: Any, bunches: Any, owner: str) -> int:
        found: int = free(self, limit, [one for one in bunches if one.owner == owner], owner)
        return found

    return patch.object(Places, "_free", own)


def _forgotten_after_a_count() -> Any:
    """A count of what is held does not enter it anew."""
    free_places, take = Statements.free_places, Statements.take_places
    freed = list[str]()

    def noted(self: Statements, connection: Any, *, lane: str) -> None:
        free_places(self, connection, lane=lane)
        freed.append(lane)

    def taken(self: Statements, connection: Any, **options: Any) -> None:
        if freed:
            freed.clear()
        else:
            take(self, connection, **options)

    return patch.multiple(Statements, free_places=noted, take_places=taken)


def _no_place_needed() -> Any:
    """What has no place starts, and is not set aside."""
    return patch.object(Places, "room", lambda *_arguments, **_options: Room())


@contextmanager
def _born_claimed() -> Iterator[None]:
    """Posts of a limited queue are born claimed, and start without a place."""

    class Nothing(dict[str, Any]):
        def __contains__(self, _key: object) -> bool:
            return False

    learn: Any = Places.learn

    def learnt(self: Places, limits: Any) -> None:
        learn(self, limits)
        self.lanes = Nothing(self.lanes)

    started = patch.object(Holdings, "lane_without_place", lambda *_arguments: None)
    with patch.object(Places, "learn", learnt), started:
        yield


def _places_kept_by_the_dead() -> Any:
    """A claim that was reaped, or has ended, still counts."""

    def listed(statements: Statements, connection: Any, *, lane: str, **_bounds: Any) -> Any:
        return statements.bunches(connection, lane=lane)

    return patch.object(Statements, "list_all", listed)


BUGS: dict[str, Callable[[], Any]] = {
    "uncounted": _uncounted,
    "forgotten after a count": _forgotten_after_a_count,
    "no place needed": _no_place_needed,
    "born claimed": _born_claimed,
    "places kept by the dead": _places_kept_by_the_dead,
}


def run_scene() -> None:
    """Steps in which each of these bugs shows."""
    life = LimitLife()
    steps: list[Callable[[], object]] = [
        lambda: life.post(delay=0, entries=5, by=LIVE),
        lambda: life.claim(node=0),
        lambda: life.claim(node=1),
        lambda: life.claim(node=0),
        lambda: life.post(delay=0, entries=5, by=0),
        lambda: life.die(node=0, claims=True),
        lambda: life.claim(node=0),
        lambda: life.run(node=1, failures=0),
        lambda: life.claim(node=1),
    ]
    run_steps(life, steps)


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug: str) -> None:
    with BUGS[bug](), pytest.raises(AssertionError):
        run_scene()


def test_the_scene_of_the_bugs_is_right_without_them() -> None:
    run_scene()
