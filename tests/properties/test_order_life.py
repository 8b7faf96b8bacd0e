"""Order keys on real tables against a model, together with all that may happen to an entry.

Retries, dates, failures, retries by hand, discards, removals, pauses, callers' transactions, dead
nodes and their copies: whatever comes, no entry starts before those of its key that were posted
earlier have ended.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule
from sqlalchemy import text

from queue_core.model.posting import OrderFailure
from queue_core.model.states import State
from queue_core.reading.live_entries import Entries
from stickybus import ImmediateRetries
from tests.contract.harness import Order
from tests.properties.node_life import NodeLife, number_of

KEYS = ("x", "y")


@dataclass
class Posted:
    """What the model knows of an entry that was posted and has not ended for good."""

    number: int
    failure: OrderFailure
    held: bool = False
    """It has failed, and those behind it wait."""


class OrderLife(NodeLife):
    """Posts with order keys."""

    retry_policy = ImmediateRetries(1)

    def __init__(self) -> None:
        super().__init__()
        self.queues = defaultdict[str, list[Posted]](list)
        self.keys = dict[int, str]()

    def handle(self, order: Order, context: Any) -> None:
        key = self.keys.get(order.number)
        if key is not None:
            first = self.queues[key][0]
            if (first.number, first.held) != (order.number, False):
                self.faults.append(f"{order} of {key} runs before {first}")
        if self.fails():
            raise RuntimeError

    def _learn(self) -> None:
        """Bring the model to what has ended since."""
        for entry in self.node.bus.history(states=[State.PROCESSED, State.FAILED]):
            number = number_of(entry)
            key = self.keys.get(number)
            queue = self.queues[key] if key is not None else []
            if not queue or queue[0].number != number or queue[0].held:
                continue
            if entry.processing_state is State.FAILED and queue[0].failure == "hold":
                queue[0].held = not self.was_retried(entry.record_id)
            elif not self.was_retried(entry.record_id):
                queue.pop(0)

    def _held(self) -> list[tuple[str, int]]:
        return [(key.order_key, key.record_id) for key in self.node.bus.held_keys()]

    # -- what happens -----------------------------------------------------------------------------

    @rule(
        key=st.sampled_from([*KEYS, None]),
        failure=st.sampled_from(["hold", "skip"]),
        delay=st.sampled_from([0, 0, 0, 5]),
        inside=st.sampled_from([None, None, "commit", "rollback"]),
        entries=st.integers(1, 3),
        by_node=st.booleans(),
    )
    def post(
        self,
        *,
        key: str | None,
        failure: OrderFailure,
        delay: int,
        inside: str | None,
        entries: int,
        by_node: bool,
    ) -> None:
        for _ in range(entries):
            self._post(key, failure, delay, inside, by_node=by_node)

    def _post(
        self,
        key: str | None,
        failure: OrderFailure,
        delay: int,
        inside: str | None,
        *,
        by_node: bool,
    ) -> None:
        number = next(self.numbers)
        options: dict[str, Any] = {"order_key": key, "order_failure": failure, "delay": delay}
        self.post_order(number, options, inside, by_node=by_node)
        if key is not None and inside != "rollback":
            self.keys[number] = key
            self.queues[key].append(Posted(number, failure))

    @rule(failures=st.sampled_from([2, 0, 1, 3]))
    def run(self, *, failures: int) -> None:
        self.failures = failures
        self._learn()
        while self.node.lifecycle.run_due():
            self._learn()
        self.failures = 0
        self._learn()

    @rule(seconds=st.sampled_from([1, 4]))
    def live(self, *, seconds: int) -> None:
        self.cluster.live(seconds, self.node)

    @precondition(lambda self: self._held())
    @rule()
    def retry(self) -> None:
        key, record_id = self._held()[0]
        self.node.bus.retry(record_id)
        self.queues[key][0].held = False

    @precondition(lambda self: self._held())
    @rule()
    def discard(self) -> None:
        key, record_id = self._held()[0]
        self.node.bus.discard(record_id)
        self.queues[key].pop(0)

    @rule(place=st.integers(0, 5))
    def remove(self, *, place: int) -> None:
        found = [
            entry
            for entry in self.node.bus.find()
            if entry.processing_state in {State.AVAILABLE, State.WAITING}
        ]
        if place < len(found):
            entry = found[place]
            Entries(self.node.store, "bus").remove(entry.record_id)
            number = number_of(entry)
            key = self.keys.pop(number, None)
            if key is not None:
                self.queues[key] = [one for one in self.queues[key] if one.number != number]

    @rule(paused=st.booleans())
    def pause(self, *, paused: bool) -> None:
        if paused:
            self.node.bus.pause()
        else:
            self.node.bus.resume()

    # -- what holds -------------------------------------------------------------------------------

    @invariant()
    def each_runs_in_its_turn(self) -> None:
        assert self.faults == []

    @invariant()
    def at_most_one_entry_of_a_key_may_run(self) -> None:
        may_run = defaultdict[str, int](int)
        for entry in self.node.bus.find():
            number = number_of(entry)
            if entry.processing_state is not State.WAITING and number in self.keys:
                may_run[self.keys[number]] += 1
        assert all(number == 1 for number in may_run.values())


class OrderLifeToItsEnd(OrderLife):
    """As `OrderLife`; at its end nothing may be left waiting."""

    def teardown(self) -> None:
        try:
            self.node.bus.resume()
            for _ in range(20):
                self.cluster.live(6, self.node, step=3)
                self.run(failures=0)
                for key, record_id in self._held():
                    self.node.bus.discard(record_id)
                    self.queues[key].pop(0)
            assert self.node.bus.find() == []
            assert not any(self.queues.values())
            with self.node.store.database.begin() as connection:
                for table in ("queue_ordered", "queue_order_heads"):
                    left = connection.execute(text(f"SELECT count(*) FROM {table}"))
                    assert left.scalar_one() == 0
        finally:
            super().teardown()


TestOrderLife = OrderLifeToItsEnd.TestCase
TestOrderLife.settings = settings(max_examples=40, stateful_step_count=30)
