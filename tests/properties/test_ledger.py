"""The in-flight ledger against a model.

The model has held and waiting entries, and the rights of an old claim.
"""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from queue_core.holding.ledger import Ledger
from queue_core.model.lanes import ANY_NODE, SUSPECT, Lane
from queue_core.model.transit import Transit

CAPACITY = 12
ids = st.integers(1, 30)
lanes = st.sampled_from([None, Lane("own"), ANY_NODE, SUSPECT])


class LedgerLife(RuleBasedStateMachine):
    """Calls as the claim loop, the poster and the finish loop make them."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger(CAPACITY)
        self.held = dict[int, tuple[int, Lane | None]]()
        self.waiting = list[int]()
        self.given_back = list[tuple[int, int]]()
        self.counts = dict[int, int]()

    def _with_pool(self) -> list[int]:
        return sorted(set(self.held) - set(self.waiting))

    def _forget(self, gone: Iterable[int]) -> None:
        for record_id in gone:
            self.given_back.append((record_id, self.held.pop(record_id)[0]))

    @rule(wanted=st.lists(ids, max_size=6, unique=True), lane=lanes)
    def claim(self, wanted: list[int], lane: Lane | None) -> None:
        """Never more than there is room for; each claim of an entry has a count of its own."""
        new = [record_id for record_id in wanted if record_id not in self.held][: self.ledger.room]
        for record_id in new:
            self.counts[record_id] = self.counts.get(record_id, 0) + 1
            self.held[record_id] = (self.counts[record_id], lane)
        told = Transit()
        claims = [(record_id, self.counts[record_id]) for record_id in new]
        self.ledger.add(claims, lane, told)
        assert told.held == new
        self.ledger.add(claims, lane, told)  # another thread has found them, too
        assert told.held == new

    @rule(data=st.data())
    def wait(self, data: st.DataObject) -> None:
        free = self._with_pool()
        later = data.draw(st.lists(st.sampled_from(free), max_size=4, unique=True)) if free else []
        transit = Transit()
        transit.later = later
        self.ledger.wait(transit)
        self.waiting += later

    @rule(limit=st.integers(0, 5))
    def load(self, limit: int) -> None:
        """What waits goes to the pool in the order in which it came."""
        assert self.ledger.first_waiting(limit) == self.waiting[:limit]
        assert self.ledger.next_waiting(limit) == self.waiting[:limit]
        del self.waiting[:limit]

    @precondition(lambda self: self._with_pool())
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        gone = data.draw(
            st.lists(st.sampled_from(self._with_pool()), min_size=1, max_size=4, unique=True)
        )
        self.ledger.give_up([(record_id, self.held[record_id][0]) for record_id in gone])
        self._forget(gone)

    @precondition(lambda self: self.given_back)
    @rule(data=st.data())
    def give_up_an_old_claim(self, data: st.DataObject) -> None:
        """An outcome that comes late, of an entry that was claimed again meanwhile.

        It stays held.
        """
        self.ledger.give_up([data.draw(st.sampled_from(self.given_back))])

    @precondition(lambda self: self._with_pool())
    @rule(data=st.data())
    def discard(self, data: st.DataObject) -> None:
        gone = data.draw(
            st.lists(st.sampled_from(self._with_pool()), min_size=1, max_size=4, unique=True)
        )
        self.ledger.discard(gone)
        self._forget(gone)

    @rule()
    def clear(self) -> None:
        """It joins the cluster anew."""
        self.ledger.keep(())
        self._forget(list(self.held))
        self.waiting.clear()

    @invariant()
    def it_holds_what_the_model_holds(self) -> None:
        ledger = self.ledger
        assert dict(ledger.held()) == {
            record_id: count for record_id, (count, _) in self.held.items()
        }
        assert (len(ledger), ledger.waiting) == (len(self.held), len(self.waiting))
        assert ledger.all_waiting() == self.waiting
        assert ledger.active == len(self._with_pool())
        assert 0 <= ledger.room == CAPACITY - len(self.held)
        for lane in (ANY_NODE, SUSPECT):
            assert ledger.held_from(lane) == sum(origin == lane for _, origin in self.held.values())
        assert all((record_id in ledger) == (record_id in self.held) for record_id in self.counts)


TestLedger = LedgerLife.TestCase
TestLedger.settings = settings(max_examples=80, stateful_step_count=40)
