"""Entries that wait for others, on real tables against a model, together with all that may happen.

Failures, retries by hand, removals, releases, truncations, callers' transactions, dead nodes and
their copies: whatever comes, no entry starts before those that it waits for have ended as it needs,
and none is left waiting without a reason.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule
from sqlalchemy import text

from queue_core.model.posting import OnFailed
from queue_core.model.states import State
from queue_core.reading.live_entries import Entries
from stickybus import ImmediateRetries
from tests.contract.harness import Order, database_of
from tests.properties.node_life import NodeLife, number_of


@dataclass
class Known:
    """What the model knows of an event."""

    on_failed: OnFailed
    after: list[int] = field(default_factory=list)
    """The numbers of those that it waits for."""
    released: bool = False
    succeeded: bool = False
    over: bool = False
    """It was removed, or has failed, at least once."""


class WaitsLife(NodeLife):
    """Posts that wait for others."""

    retry_policy = ImmediateRetries(0)

    def __init__(self) -> None:
        super().__init__()
        self.known = dict[int, Known]()
        self.ids = dict[int, int]()
        """The ids under which events were posted, by their numbers."""

    def handle(self, order: Order, context: Any) -> None:
        mine = self.known[order.number]
        for number in mine.after if not (mine.released or mine.over) else ():
            other = self.known[number]
            if not (other.succeeded or (other.over and mine.on_failed == "run")):
                self.faults.append(f"{order} runs before {number}: {other}")
        if self.fails():
            mine.over = True
            raise RuntimeError
        mine.succeeded = True

    # -- what happens -----------------------------------------------------------------------------

    @rule(
        after=st.lists(st.integers(0, 5), max_size=3),
        on_failed=st.sampled_from(["cancel", "run", "hold"]),
        inside=st.sampled_from([None, None, "commit", "rollback"]),
        delay=st.sampled_from([0, 0, 5]),
        by_node=st.booleans(),
    )
    def post(
        self,
        *,
        after: list[int],
        on_failed: OnFailed,
        inside: str | None,
        delay: int,
        by_node: bool,
    ) -> None:
        newest = sorted(self.ids, reverse=True)
        others = sorted({newest[place] for place in after if place < len(newest)})
        others = [number for number in others if self._is_somewhere(self.ids[number])]
        number = next(self.numbers)
        ids = [self.ids[other] for other in others]
        options: dict[str, Any] = {"after": ids, "on_failed": on_failed, "delay": delay}
        self.known[number] = Known(on_failed, others)
        record_id = self.post_order(number, options, inside, by_node=by_node)
        if inside != "rollback":
            self.ids[number] = record_id

    def _is_somewhere(self, record_id: int) -> bool:
        bus = self.node.bus
        return bool(bus.find(record_ids=[record_id]) or bus.history(record_ids=[record_id]))

    @rule(failures=st.sampled_from([0, 1, 2]))
    def run(self, *, failures: int) -> None:
        self.failures = failures
        self.node.run()
        self.failures = 0

    @rule(seconds=st.sampled_from([1, 4]))
    def live(self, *, seconds: int) -> None:
        self.cluster.live(seconds, self.node)
        self.node.lifecycle.claim_loop.turn()

    @rule()
    def retry(self) -> None:
        for entry in self.node.bus.history(states=[State.FAILED, State.REMOVED]):
            if not self.was_retried(entry.record_id):
                self.known[number_of(entry)].over = True
                self.node.bus.retry(entry.record_id)
                return

    @rule(place=st.integers(0, 5))
    def remove(self, *, place: int) -> None:
        found = self.node.bus.find(states=["AVAILABLE", "WAITING"])
        if place < len(found):
            self.known[number_of(found[place])].over = True
            Entries(self.node.store, "bus").remove(found[place].record_id)

    @precondition(lambda self: self.node.bus.find(states="WAITING"))
    @rule()
    def release(self) -> None:
        entry = self.node.bus.find(states="WAITING")[0]
        self.known[number_of(entry)].released = True
        assert self.node.bus.release(entry.record_id)

    @rule()
    def truncate(self) -> None:
        # Whatever was not noted by then is unknown from then on.
        for _ in range(3):
            self.cluster.live(1, self.node)
            self.node.lifecycle.claim_loop.turn()
        for entry in self.node.bus.history():
            self.known[number_of(entry)].over |= entry.processing_state is not State.PROCESSED
        self.node.bus.truncate_history()

    # -- what holds -------------------------------------------------------------------------------

    @invariant()
    def none_runs_too_early(self) -> None:
        for entry in self.node.bus.history(states=[State.REMOVED]):
            self.known[number_of(entry)].over = True
        assert self.faults == []

    @invariant()
    def none_waits_without_a_row(self) -> None:
        waiting = {entry.record_id for entry in self.node.bus.find(states="WAITING")}
        with database_of(self.node.bus).begin() as connection:
            rows = connection.execute(text("SELECT waiter_id FROM queue_waits")).scalars().all()
        assert waiting <= set(rows)


class WaitsLifeToItsEnd(WaitsLife):
    """As `WaitsLife`; at its end only what is held may be left waiting."""

    def teardown(self) -> None:
        try:
            for _ in range(12):
                self.cluster.live(6, self.node, step=3)
                self.run(failures=0)
            left = {entry.record_id for entry in self.node.bus.find()}
            with database_of(self.node.bus).begin() as connection:
                rows = connection.execute(text("SELECT * FROM queue_waits")).all()
            held = {row.waiter_id for row in rows if row.on_failed != "run"}
            held = {one for one in held if all(r.awaited_state for r in rows if r.waiter_id == one)}
            # What waits for held ones waits as well.
            grown = True
            while grown:
                more = {row.waiter_id for row in rows if row.awaited_id in held}
                grown, held = not more <= held, held | more
            assert left <= held, (left, rows)
            self.none_runs_too_early()
        finally:
            super().teardown()


TestWaitsLife = WaitsLifeToItsEnd.TestCase
TestWaitsLife.settings = settings(max_examples=15, stateful_step_count=20)
