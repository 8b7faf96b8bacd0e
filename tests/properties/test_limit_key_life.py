"""Limit keys on real tables, together with all that may happen to an entry.

Whatever comes, no more of a key starts than the limit says, and in the end all has run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from queue_core.links.limit_keys import LimitKeyLink, limit_key_of
from queue_core.storage.key_places import KeyPlaces
from sql.statements.entries import Statements
from tests.properties.limited_life import LIVE, LimitedLife, run_steps

KEYS = ("ann", "bob")


class LimitKeyLife(LimitedLife):
    """A queue with a limit of each key, which changes."""

    def __init__(self) -> None:
        super().__init__()
        self.per_key: int | None = None
        self.taken = Counter[str]()
        self.limit(per_key=1, concurrency=None)

    @rule(
        key=st.sampled_from([*KEYS, None]),
        delay=st.sampled_from([0, 0, 0, 4]),
        entries=st.integers(1, 4),
        by=st.integers(0, LIVE),
    )
    def post(self, *, key: str | None, delay: int, entries: int, by: int) -> None:
        self._post(entries, by, delay, limit_key=key)

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

    @invariant()
    def nothing_is_beyond_its_limit(self) -> None:
        found = Counter(limit_key_of(entry.headers) for entry in self._with_places())
        before, self.taken = self.taken, found
        if self.per_key is not None:
            for key in KEYS:
                assert found[key] <= max(self.per_key, before[key])


TestLimitKeyLife = LimitKeyLife.TestCase
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
    life = LimitKeyLife()
    steps: list[Callable[[], object]] = [
        lambda: life.post(key="ann", delay=0, entries=4, by=LIVE),
        lambda: life.claim(node=0),
        lambda: life.post(key="ann", delay=0, entries=2, by=LIVE),
        lambda: life.claim(node=1),
        lambda: life.run(node=0, failures=1),
        lambda: life.die(node=0, claims=True),
        lambda: life.claim(node=1),
    ]
    run_steps(life, steps)


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug: str) -> None:
    with BUGS[bug](), pytest.raises(AssertionError):
        run_scene()


def test_the_scene_of_the_bugs_is_right_without_them() -> None:
    run_scene()
