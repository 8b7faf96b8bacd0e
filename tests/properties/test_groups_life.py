"""Groups on real tables against a model, together with all that may happen to their members.

Two nodes, failures, retries by hand, removals, seals, truncations, callers' transactions, dead
nodes and their copies: whatever comes, a group counts what has ended, and its callbacks are posted
exactly once, when it is sealed and nothing of it lives.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from sqlalchemy import URL, Connection, text

from queue_core.model.entry import Entry
from queue_core.model.states import State
from queue_core.reading.live_entries import Entries
from queue_core.storage.groups import StoredGroups
from stickybus import ImmediateRetries, Posting
from tests.contract.cluster import Cluster, Peer
from tests.contract.harness import Order, database_of
from tests.properties.test_claims import _template

CALLBACKS = 1_000_000
"""The numbers of callbacks begin here."""
LIVE = "live"
INSIDE = st.sampled_from([None, None, "commit", "rollback"])
"""Whose transaction a change is of: our own, or a caller's, which commits or rolls back."""

Frozen = tuple[int, int, int, int]


@dataclass
class Known:
    """What the model knows of a group."""

    members: list[int] = field(default_factory=list)
    """The numbers of its members."""
    sealed: bool = False
    frozen: Frozen | None = None
    """Its counts when it was complete."""
    posted: set[int] = field(default_factory=set)
    """Ids under which its callbacks were posted."""


class GroupsLife(RuleBasedStateMachine):
    """Two nodes at a time, which may die, and a process that only posts."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        path = Path(self._folder.name) / "groups.db"
        shutil.copyfile(_template(), path)
        self.cluster = Cluster(URL.create("sqlite", database=str(path)))
        self.names, self.numbers = count(1), count(1)
        self.poster = self.cluster.peer("poster")
        self.failures = 0
        self.groups = dict[int, Known]()
        self.states = dict[int, str]()
        """How each member stands, by its number."""
        self.nodes = [self._join(), self._join()]

    def _join(self) -> Peer:
        peer = self.cluster.peer(
            f"n{next(self.names)}", retry=ImmediateRetries(0), max_redispatches=1_000
        )
        peer.handler = self._handle  # type: ignore[assignment]
        return peer.join()

    def teardown(self) -> None:
        self.cluster.close()
        self._folder.cleanup()

    def _handle(self, order: Order, _context: Any) -> None:
        if self.failures and order.number < CALLBACKS:
            self.failures -= 1
            raise RuntimeError

    @property
    def bus(self) -> Any:
        return self.poster.bus

    def _change(self, work: Callable[[Connection | None], Any], inside: str | None) -> Any:
        """Make a change in our own transaction or in a caller's; None if it was rolled back."""
        if inside is None:
            return work(None)
        with database_of(self.bus).engine.connect() as connection:
            made = work(connection)
            connection.commit() if inside == "commit" else connection.rollback()
        return made if inside == "commit" else None

    def _open(self, place: int) -> int | None:
        """One of the newest groups that take members."""
        found = [group for group, known in self.groups.items() if not known.sealed]
        return found[-1 - place] if place < len(found) else None

    # -- what happens -----------------------------------------------------------------------------

    @initialize(members=st.integers(1, 3))
    def begin(self, *, members: int) -> None:
        self.open(inside=None)
        self.post(places=[0] * members, inside=None, delay=0)

    @rule(inside=INSIDE)
    def open(self, *, inside: str | None) -> None:
        # The id is known afterwards only: a callback has the number that the group has here.
        base = CALLBACKS + 10 * next(self.numbers)
        group = self._change(
            lambda connection: self.bus.open_group(
                name=str(base),
                on_finished=Order(base),
                on_succeeded=Order(base + 1),
                on_failed=Order(base + 2),
                connection=connection,
            ),
            inside,
        )
        if group is not None:
            self.groups[group] = Known()

    @rule(
        places=st.lists(st.integers(0, 3), min_size=1, max_size=3),
        inside=INSIDE,
        delay=st.sampled_from([0, 0, 5]),
    )
    def post(self, *, places: list[int], inside: str | None, delay: int) -> None:
        groups = [group for place in places if (group := self._open(place)) is not None]
        numbers = [next(self.numbers) for _ in groups]
        at = self.cluster.clock.now() + timedelta(seconds=delay)
        postings = [
            Posting(event=Order(number), group=group, at=at)
            for number, group in zip(numbers, groups, strict=True)
        ]
        ids = self._change(
            lambda connection: self.bus.post_many(postings, connection=connection), inside
        )
        for number, group in zip(numbers, groups, strict=True) if ids else ():
            self.groups[group].members.append(number)
            self.states[number] = LIVE

    @rule(place=st.integers(0, 3), inside=INSIDE)
    def seal(self, *, place: int, inside: str | None) -> None:
        group = self._open(place)
        if group is not None and self._change(
            lambda connection: self.bus.seal(group, connection=connection), inside
        ):
            self.groups[group].sealed = True

    @rule(place=st.integers(0, 1), failures=st.sampled_from([0, 1, 2, 2]))
    def run(self, *, place: int, failures: int) -> None:
        self.failures = failures
        self.nodes[place].run()
        self.failures = 0

    @rule(place=st.integers(0, 1))
    def post_and_run(self, *, place: int) -> None:
        self.post(places=[0, 0], inside=None, delay=0)
        self.run(place=place, failures=1)

    @rule(seconds=st.sampled_from([1, 4]))
    def live(self, *, seconds: int) -> None:
        self.cluster.live(seconds, *self.nodes)
        for node in self.nodes:
            node.lifecycle.claim_loop.turn()

    @rule(place=st.integers(0, 1))
    def die(self, *, place: int) -> None:
        dead, other = self.nodes[place], self.nodes[1 - place]
        dead.claim()
        self.cluster.bury(dead.bus.config.node_name or "", other)
        self.nodes[place] = self._join()
        self.cluster.live(18, *self.nodes, step=3)

    def _untried(self) -> list[Entry]:
        """Ended entries that may be tried again, and were not yet."""
        tried = text("SELECT record_id FROM queue_replays")
        with database_of(self.bus).begin() as connection:
            again = set(connection.execute(tried).scalars())
        ended = self.bus.history(states=[State.FAILED, State.REMOVED])
        return [entry for entry in ended if entry.record_id not in again]

    @precondition(lambda self: self._untried())
    @rule(inside=INSIDE)
    def retry(self, *, inside: str | None) -> None:
        self._change(partial(self._retry, self._untried()[0].record_id), inside)

    def _retry(self, record_id: int, connection: Connection | None) -> None:
        self.bus.retry(record_id, connection=connection)

    @rule(place=st.integers(0, 5), inside=INSIDE)
    def remove(self, *, place: int, inside: str | None) -> None:
        found = [entry for entry in self.bus.find(states="AVAILABLE") if _number(entry) < CALLBACKS]
        if place < len(found):
            entries, record_id = Entries(self.poster.store, "bus"), found[place].record_id
            self._change(
                lambda connection: entries.remove(record_id, connection=connection), inside
            )

    @rule()
    def truncate(self) -> None:
        self._learn()
        self.bus.truncate_history()

    # -- what holds -------------------------------------------------------------------------------

    def _learn(self) -> list[Entry]:
        """Learn how members stand, and return the callbacks that were posted."""
        callbacks = list[Entry]()
        entries: Sequence[Entry] = [*self.bus.history(), *self.bus.find()]
        for entry in sorted(entries, key=lambda one: one.record_id):
            number, state = _number(entry), entry.processing_state
            if number in self.states:
                self.states[number] = str(state) if state.terminal else LIVE
            elif number >= CALLBACKS:
                callbacks.append(entry)
                self.groups[_group(entry)].posted.add(entry.origin_id or entry.record_id)
        return callbacks

    def _counts(self, group: Known) -> Frozen:
        found = Counter(self.states[number] for number in group.members)
        return len(group.members), found["PROCESSED"], found["FAILED"], found["REMOVED"]

    @invariant()
    def groups_count_what_has_ended(self) -> None:
        callbacks = self._learn()
        for status in StoredGroups(self.poster.store).newest():
            group = self.groups[status.group_id]
            counts = status.total, status.succeeded, status.failed, status.cancelled
            if group.frozen is None:
                assert counts == self._counts(group), status
                if status.completed_date is not None:
                    assert (group.sealed, status.live) == (True, 0), status
                    group.frozen = counts
            assert group.frozen in {None, counts}, status
            assert len(group.posted) == (0 if group.frozen is None else 2), status
        for entry in callbacks:
            frozen = self.groups[_group(entry)].frozen
            assert frozen is not None
            assert _number(entry) % 10 in {0, 1 if frozen[2:] == (0, 0) else 2}


class GroupsLifeToItsEnd(GroupsLife):
    """As `GroupsLife`; at its end all groups that are sealed are complete."""

    def teardown(self) -> None:
        try:
            for _ in range(4):
                self.live(seconds=4)
                self.run(place=0, failures=0)
                self.groups_count_what_has_ended()
            assert all(group.frozen for group in self.groups.values() if group.sealed)
        finally:
            super().teardown()


def _group(entry: Entry) -> int:
    return int(entry.captured["group_id"])


def _number(entry: Entry) -> int:
    return int((entry.event_json or "").partition(":")[2].rstrip("}"))


TestGroupsLife = GroupsLifeToItsEnd.TestCase
TestGroupsLife.settings = settings(max_examples=15, stateful_step_count=20)
