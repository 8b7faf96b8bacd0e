"""Idempotency keys on real tables against a model, together with all that may happen to an entry.

Conflicts of every kind, failures, retries by hand, removals, discards, releases, truncations,
callers' transactions, dead nodes and their copies, and clocks that move on: whatever comes, each
post gets the answer that the key's entry calls for, and each entry that was added is handled.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule
from sqlalchemy import text

from queue_core.links.keys import key_of
from queue_core.model.entry import Entry
from queue_core.model.keyed import Answer, Keep, KeyState, OnConflict, Posted
from queue_core.model.states import State
from queue_core.reading.live_entries import Entries
from stickybus import DuplicateKeyError, ScheduledRetries
from tests.contract.harness import Order
from tests.properties.node_life import NodeLife, number_of

KEYS = ("x", "y")
A_WHILE = timedelta(seconds=40)
ANSWERS = {
    KeyState.QUEUED: Answer.ALREADY_QUEUED,
    KeyState.IN_BACK_OFF: Answer.IN_BACK_OFF,
    KeyState.LOCKED: Answer.LOCKED,
    KeyState.LOCKED_WITH_REQUEUE: Answer.LOCKED,
    KeyState.DONE: Answer.DONE,
}
WAITS = {KeyState.QUEUED, KeyState.IN_BACK_OFF}
RUNS = {KeyState.LOCKED, KeyState.LOCKED_WITH_REQUEUE}


@dataclass
class Holder:
    """The entry that has a key, or had it last."""

    record_id: int
    keep: Keep
    requeue: int | None = None
    """The number of the order that is to follow."""
    ended: tuple[State, datetime] | None = None


class KeysLife(NodeLife):
    """Posts with keys."""

    retry_policy = ScheduledRetries((5,))

    def __init__(self) -> None:
        super().__init__()
        self.holders = dict[str, Holder]()
        self.to_run = set[int]()
        """The numbers of the orders that are to be handled, and may be handled more than once."""

    def handle(self, order: Order, context: Any) -> None:
        if order.number not in self.to_run:
            self.faults.append(f"{order} was replaced, rolled back, or not added")
        if self.fails():
            raise RuntimeError

    # -- what the model knows ---------------------------------------------------------------------

    def _state(self, key: str) -> KeyState:
        """Where a key stands; UNKNOWN: a post finds it free."""
        holder = self.holders.get(key)
        if holder is None:
            return KeyState.UNKNOWN
        if holder.ended is None:
            [entry] = self.node.bus.find(record_ids=[holder.record_id])
            if entry.processing_state in {State.AVAILABLE, State.WAITING}:
                return KeyState.IN_BACK_OFF if entry.error_count else KeyState.QUEUED
            if holder.keep == "waiting":
                return KeyState.UNKNOWN
            return KeyState.LOCKED if holder.requeue is None else KeyState.LOCKED_WITH_REQUEUE
        _, date = holder.ended
        if isinstance(holder.keep, timedelta):
            kept = date + holder.keep > self.cluster.clock.now()
        else:
            kept = holder.keep == "forever"
        return KeyState.DONE if kept else KeyState.UNKNOWN

    def _learn(self) -> None:
        """Bring the model to what has become of the entries that have keys."""
        for key, holder in list(self.holders.items()):
            if holder.ended is None:
                self._learn_of(key, holder)

    def _learn_of(self, key: str, holder: Holder) -> None:
        bus = self.node.bus
        while not bus.find(record_ids=[holder.record_id]):
            [entry] = bus.history(record_ids=[holder.record_id])
            if entry.processing_state is State.REAPED:
                holder.record_id = self._copy_of(entry)
            elif holder.requeue is not None:
                holder.record_id, holder.requeue = self._entry_with(holder.requeue), None
            else:
                date = entry.finished_date
                assert date is not None
                holder.ended = entry.processing_state, date
                if entry.processing_state is State.REMOVED or holder.keep in {"waiting", "living"}:
                    del self.holders[key]
                return

    def _all(self) -> list[Entry]:
        return [*self.node.bus.find(), *self.node.bus.history()]

    def _copy_of(self, reaped: Entry) -> int:
        chain = reaped.origin_id or reaped.record_id
        later = [one.record_id for one in self._all() if one.origin_id == chain]
        return min(record_id for record_id in later if record_id > reaped.record_id)

    def _entry_with(self, number: int) -> int:
        return min(entry.record_id for entry in self._all() if number_of(entry) == number)

    # -- what happens -----------------------------------------------------------------------------

    @rule(
        key=st.sampled_from(KEYS),
        keep=st.sampled_from(["waiting", "living", A_WHILE, "forever"]),
        on_conflict=st.sampled_from(["return", "raise", "replace", "requeue", "debounce"]),
        delay=st.sampled_from([0, 0, 5]),
        inside=st.sampled_from([None, None, "commit", "rollback"]),
        by_node=st.booleans(),
    )
    def post(
        self,
        *,
        key: str,
        keep: Keep,
        on_conflict: OnConflict,
        delay: int,
        inside: str | None,
        by_node: bool,
    ) -> None:
        number, state = next(self.numbers), self._state(key)
        options = {"key": key, "keep": keep, "on_conflict": on_conflict, "delay": delay}
        expected = self._expected(state, on_conflict)
        if expected is None:
            with pytest.raises(DuplicateKeyError) as caught:
                self.post_order(number, options, inside, by_node=by_node)
            assert caught.value.answer == ANSWERS[state]
            return
        posted = self.post_order(number, options, inside, by_node=by_node)
        assert isinstance(posted, Posted)
        assert posted.answer is expected
        if expected is not Answer.ADDED:
            assert posted == self.holders[key].record_id
        if inside == "rollback":
            return
        if expected is Answer.ADDED:
            self.holders[key] = Holder(posted, keep)
            self.to_run.add(number)
        elif expected is Answer.UPDATED:
            self._replaced(posted)
            self.to_run.add(number)
        elif on_conflict == "requeue" and state in RUNS:
            holder = self.holders[key]
            self.to_run -= {holder.requeue or 0}
            self.to_run.add(number)
            holder.requeue = number

    def _expected(self, state: KeyState, on_conflict: OnConflict) -> Answer | None:
        """The answer of a post, or None for DuplicateKeyError."""
        if state is KeyState.UNKNOWN:
            return Answer.ADDED
        if on_conflict == "raise":
            return None
        if on_conflict in {"replace", "debounce"} and state in WAITS:
            return Answer.UPDATED
        if (on_conflict == "debounce" and state in RUNS) or (
            on_conflict == "requeue" and state is KeyState.DONE
        ):
            return Answer.ADDED
        return ANSWERS[state]

    def _replaced(self, record_id: int) -> None:
        """Learn which orders nobody is to run any more."""
        left = {number_of(entry) for entry in self._all()}
        left |= {holder.requeue for holder in self.holders.values() if holder.requeue}
        self.to_run &= left
        assert record_id in {entry.record_id for entry in self.node.bus.find()}

    @rule(failures=st.sampled_from([0, 0, 1, 2]))
    def run(self, *, failures: int) -> None:
        self.failures = failures
        self.node.run()
        self.failures = 0
        self._learn()

    @rule()
    def claim(self) -> None:
        self.node.claim()

    @rule(seconds=st.sampled_from([1, 5, 30]))
    def live(self, *, seconds: int) -> None:
        self.cluster.live(seconds, self.node, step=3)
        self._learn()

    @rule()
    def die(self) -> None:
        super().die()
        self._learn()

    def _failed(self) -> list[Entry]:
        """What has failed, and was neither retried nor discarded."""
        failed = self.node.bus.history(states="FAILED")
        return [entry for entry in failed if not self.was_retried(entry.record_id)]

    @precondition(lambda self: self._failed())
    @rule(force=st.booleans())
    def retry(self, *, force: bool) -> None:
        failed = self._failed()[-1]
        key = key_of(failed.headers)
        state, holder = self._state(key), self.holders.get(key)
        another = (
            holder is not None
            and state is not KeyState.UNKNOWN
            and holder.record_id != failed.record_id
        )
        if another and not force:
            with pytest.raises(DuplicateKeyError):
                self.node.bus.retry(failed.record_id)
            return
        new_id = self.node.bus.retry(failed.record_id, force=force)
        self.to_run.add(number_of(failed))
        if another:
            return
        keep = self.node.bus.key_status(key).keep
        self.holders[key] = Holder(new_id, A_WHILE if keep == "period" else keep)  # type: ignore[arg-type]

    @precondition(lambda self: self._failed())
    @rule()
    def discard(self) -> None:
        self.node.bus.discard(self._failed()[-1].record_id)

    @rule(place=st.integers(0, 3))
    def remove(self, *, place: int) -> None:
        found = self.node.bus.find(states="AVAILABLE")
        if place < len(found):
            Entries(self.node.store, "bus").remove(found[place].record_id)
            self._learn()

    @rule(key=st.sampled_from(KEYS))
    def release(self, *, key: str) -> None:
        self.node.bus.release_key(key)
        self.holders.pop(key, None)

    @rule()
    def truncate(self) -> None:
        self.node.bus.truncate_history()

    # -- what holds -------------------------------------------------------------------------------

    @invariant()
    def each_key_stands_where_its_entry_does(self) -> None:
        for key in KEYS:
            status, state = self.node.bus.key_status(key), self._state(key)
            assert status.state is state
            if state is not KeyState.UNKNOWN:
                assert status.record_id == self.holders[key].record_id

    @invariant()
    def nothing_runs_that_is_not_to(self) -> None:
        assert self.faults == []


class KeysLifeToItsEnd(KeysLife):
    """As `KeysLife`; at its end all has run, and only what is kept is left of the keys."""

    def teardown(self) -> None:
        try:
            for _ in range(12):
                self.live(seconds=6)
                self.run(failures=0)
            assert self.node.bus.find() == []
            with self.node.store.database.begin() as connection:
                left = connection.execute(text("SELECT entry_key, keep FROM queue_keys")).all()
            kept = {key for key, holder in self.holders.items() if holder.keep == "forever"}
            assert {row.entry_key for row in left} == kept
        finally:
            super().teardown()


TestKeysLife = KeysLifeToItsEnd.TestCase
TestKeysLife.settings = settings(max_examples=15, stateful_step_count=20)
