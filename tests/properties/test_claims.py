"""Claims on a real table against a model.

The fence holds in whatever order owners, reapers and late outcomes come.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from sqlalchemy import Connection, select

from queue_core.cluster.redispatch import recover, redispatch
from queue_core.holding.holdings import Holdings
from queue_core.model.entry import Entry
from queue_core.model.lanes import ANY_NODE, SUSPECT, Lane
from queue_core.model.outcome import Finished, Retried
from queue_core.model.posting import Posting
from queue_core.model.states import State
from queue_core.runtime.manual_clock import ManualClock
from queue_core.storage.return_to_lane import ReturnToLane
from stickybus import BusConfig, PersistentBus
from tests.contract.harness import Order
from tests.template import template

OWNERS = ("ann", "ben")
owners = st.sampled_from(OWNERS)
seconds = st.integers(0, 5)


@dataclass(frozen=True)
class Row:
    """What the model knows of a live entry. `root`: the entry that was posted."""

    state: State
    lane: str
    owner: str | None
    claims: int
    due: float
    root: int
    suspect: bool = False


class ClaimLife(RuleBasedStateMachine):
    """Several owners on one table. Every claim that was ever made may still write, at any time."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        path = Path(self._folder.name) / "claims.db"
        shutil.copyfile(template(), path)
        self.clock = ManualClock()
        config = BusConfig(node_name="ann", max_redispatches=2)
        self.bus = PersistentBus(f"sqlite:///{path}", config, clock=self.clock)
        self.store = self.bus._engine.store
        self.moves = Holdings(self.store, lambda _queue_name: None).moves
        self.live = dict[int, Row]()
        self.past = dict[int, State]()
        self.ends = dict[int, list[State]]()
        self.claims = list[tuple[str, Entry]]()
        self.written = set[tuple[str, int, int, State, float]]()

    def teardown(self) -> None:
        self.bus.close()
        self._folder.cleanup()

    # -- the model's answers ----------------------------------------------------------------------

    @property
    def _now(self) -> float:
        return self.clock.monotonic()

    def _holds(self, owner: str, entry: Entry) -> bool:
        row = self.live.get(entry.record_id)
        return row is not None and (row.state, row.owner, row.claims) == (
            State.IN_PROCESSING,
            owner,
            entry.claim_count,
        )

    def _end(self, record_id: int, state: State) -> None:
        self.past[record_id] = state
        root = self.live.pop(record_id).root
        if state is not State.REAPED:
            self.ends[root].append(state)

    def _redispatched(self, lane: str, wanted: State) -> None:
        """What stood in `lane` is REAPED, and its copies are found in the table."""
        gone = [
            (record_id, row)
            for record_id, row in sorted(self.live.items())
            if row.lane == lane
            and row.state is wanted
            and (wanted is not State.AVAILABLE or row.due <= self._now)
        ]
        copies = {
            entry.record_id: entry for entry in self.bus.find() if entry.record_id not in self.live
        }
        ended = {entry.record_id for entry in self.bus.history(states=[State.FAILED])}
        for record_id, row in gone:
            if record_id in ended and record_id not in self.past:
                self._end(record_id, State.FAILED)  # its processes died too often
                continue
            self._end(record_id, State.REAPED)
            (copy,) = [entry.record_id for entry in copies.values() if entry.origin_id == row.root]
            effective_date = copies.pop(copy).effective_date
            suspect = wanted is State.IN_PROCESSING
            # What was a suspect already runs again after a pause.
            pause = (effective_date - self.clock.now()).total_seconds()
            to = SUSPECT if suspect else ANY_NODE
            self.live[copy] = replace(
                row,
                state=State.AVAILABLE,
                lane=to,
                owner=None,
                claims=0,
                suspect=row.suspect or suspect,
                due=self._now + pause if row.suspect and suspect else row.due,
            )
        assert not copies, "a copy of nothing"

    # -- what happens -----------------------------------------------------------------------------

    @rule(
        owner=owners,
        lane=st.sampled_from([*OWNERS, ANY_NODE]),
        later=seconds,
        born=st.booleans(),
        count=st.integers(1, 3),
    )
    def post(self, owner: str, lane: str, later: int, born: bool, count: int) -> None:  # noqa: FBT001 -- drawn by name
        due = self.clock.now() + timedelta(seconds=0 if born else later)
        rows = self.store.rows.rows(
            "bus",
            [Posting(event=Order(number), at=due) for number in range(count)],
            creator=owner,
            lane=Lane(owner if born else lane),
            claimed=born,
        )
        ids = self.store.database.write(lambda connection: self.store.insert(connection, rows))
        for record_id, row in zip(ids, rows, strict=True):
            self.live[record_id] = Row(
                state=State.IN_PROCESSING if born else State.AVAILABLE,
                lane=owner if born else lane,
                owner=owner if born else None,
                claims=1 if born else 0,
                due=self._now + (0 if born else later),
                root=record_id,
            )
            self.ends[record_id] = []
            if born:
                self.claims.append((owner, self.store.rows.entry(record_id, row)))

    @rule(owner=owners, lane=st.sampled_from(["own", ANY_NODE, SUSPECT]), limit=st.integers(1, 4))
    def claim(self, owner: str, lane: str, limit: int) -> None:
        lane = owner if lane == "own" else lane
        due = sorted(
            (row.due, record_id)
            for record_id, row in self.live.items()
            if row.lane == lane and row.state is State.AVAILABLE and row.due <= self._now
        )
        claimed = self.moves.claim(Lane(lane), owner, limit).entries
        assert [entry.record_id for entry in claimed] == [record_id for _, record_id in due[:limit]]
        for entry in claimed:
            before = self.live[entry.record_id]
            assert entry.claim_count == before.claims + 1
            self.live[entry.record_id] = replace(
                before,
                state=State.IN_PROCESSING,
                lane=owner,
                owner=owner,
                claims=entry.claim_count,
            )
        self.claims += [(owner, entry) for entry in claimed]

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), claimer=owners)
    def lose_a_claim_to(self, data: st.DataObject, claimer: str) -> None:
        """Given back, and claimed again at once, perhaps by the same owner.

        Only the count tells the two apart.
        """
        owner, entry = data.draw(st.sampled_from(self.claims))
        self._release(owner, [(entry.record_id, entry.claim_count)], claimer)
        self.claim(claimer, "own", 4)

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), failed=st.booleans())
    def finish(self, data: st.DataObject, failed: bool) -> None:  # noqa: FBT001 -- drawn by name
        """A batch of one owner's claims, some of which may have been taken over since."""
        owner, _ = data.draw(st.sampled_from(self.claims))
        of_owner = {entry.record_id: entry for name, entry in self.claims if name == owner}
        chosen = data.draw(
            st.lists(st.sampled_from(sorted(of_owner)), min_size=1, max_size=4, unique=True),
            label=owner,
        )
        self._finish(owner, [of_owner[record_id] for record_id in chosen], failed=failed)

    @precondition(lambda self: self.claims)
    @rule(data=st.data())
    def finish_any(self, data: st.DataObject) -> None:
        owner, entry = data.draw(st.sampled_from(self.claims))
        self._finish(owner, [entry], failed=False)

    def _finish(self, owner: str, entries: list[Entry], *, failed: bool) -> None:
        state = State.FAILED if failed else State.PROCESSED
        held = [entry for entry in entries if self._holds(owner, entry)]
        outcomes = [
            Finished(
                entry=entry,
                state=state,
                started_date=None,
                finished_date=self.clock.now(),
                error_count=entry.error_count,
                progress={},
            )
            for entry in entries
        ]
        # The very same outcome is what a batch writes again whose COMMIT gave no answer: nothing of
        # it is lost.
        self.written |= {
            (owner, entry.record_id, entry.claim_count, state, self._now) for entry in held
        }
        known = {
            entry.record_id
            for entry in entries
            if (owner, entry.record_id, entry.claim_count, state, self._now) in self.written
        }
        lost = self.moves.record(owner, outcomes).lost
        assert lost == {entry.record_id for entry in entries} - known
        for entry in held:
            self._end(entry.record_id, state)

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), later=seconds)
    def retry(self, data: st.DataObject, later: int) -> None:
        owner, entry = data.draw(st.sampled_from(self.claims))
        now = self.clock.now()
        outcome = Retried(
            entry=entry,
            at=now + timedelta(seconds=later),
            error_count=entry.error_count + 1,
            progress={},
            started_date=now,
        )
        held = self._holds(owner, entry)
        retry = ReturnToLane(self.store, owner, Lane(owner), outcome)
        assert self.moves.record(owner, [], [retry]).lost == (set() if held else {entry.record_id})
        if held:
            lane = SUSPECT if entry.crash_count else owner
            before = self.live[entry.record_id]
            self.live[entry.record_id] = replace(
                before, state=State.AVAILABLE, lane=lane, owner=None, due=self._now + later
            )

    @precondition(lambda self: self.claims)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        owner, entry = data.draw(st.sampled_from(self.claims))
        self._release(owner, [(entry.record_id, entry.claim_count)], ANY_NODE)

    @rule(owner=owners, data=st.data())
    def sweep(self, owner: str, data: st.DataObject) -> None:
        """An owner finds some of what it runs unknown to its ledger."""
        standing = self.store.database.fetch(
            lambda connection: self.store.statements.in_processing(connection, lane=owner)
        )
        assert dict(standing) == {
            record_id: row.claims
            for record_id, row in self.live.items()
            if (row.lane, row.state) == (owner, State.IN_PROCESSING)
        }
        unknown = data.draw(st.lists(st.sampled_from(standing), unique=True)) if standing else []
        self._release(owner, unknown, owner)

    def _release(self, owner: str, claims: list[tuple[int, int]], lane: str) -> None:
        held = [
            record_id
            for record_id, count in claims
            if (row := self.live.get(record_id)) is not None
            and (row.state, row.owner, row.claims) == (State.IN_PROCESSING, owner, count)
        ]
        released = self.store.database.write(
            lambda connection: self.store.statements.release(
                connection, owner=owner, lane=lane, suspect_lane=SUSPECT, claims=claims
            )
        )
        assert released == len(held)
        for record_id in held:
            row = self.live[record_id]
            to = SUSPECT if row.suspect else lane
            self.live[record_id] = replace(
                row, state=State.AVAILABLE, lane=to, owner=None, claims=row.claims + 1
            )

    @rule(owner=owners)
    def die_and_come_back(self, owner: str) -> None:
        """What it ran becomes suspect; what only waited stays in its lane."""
        recover(self.store, owner, lambda _failed: None, crashed=True)
        self._redispatched(owner, State.IN_PROCESSING)

    @rule(owner=owners)
    def die_for_good(self, owner: str) -> None:
        """What it ran, what was due and what will be go to others."""
        recover(self.store, owner, lambda _failed: None, crashed=True)
        self._redispatched(owner, State.IN_PROCESSING)

        def reap(connection: Connection) -> None:
            due = self.store.statements.locked_page(
                connection, lane=owner, state=State.AVAILABLE, limit=100, due_by=self.clock.now()
            )
            redispatch(connection, self.store, due, crashed=True)

        self.store.database.write(reap)
        self._redispatched(owner, State.AVAILABLE)
        ids = [record_id for record_id, row in self.live.items() if row.lane == owner]
        moved = self.store.database.write(
            lambda connection: self.store.statements.change_lane(
                connection, ids=ids, from_lane=owner, to_lane=ANY_NODE, suspect_lane=SUSPECT
            )
        )
        assert moved == len(ids)
        self.live |= {record_id: replace(self.live[record_id], lane=ANY_NODE) for record_id in ids}

    @rule(later=seconds)
    def wait(self, later: int) -> None:
        self.clock.advance(seconds=later)

    # -- what always holds ------------------------------------------------------------------------

    @invariant()
    def the_tables_are_as_the_model(self) -> None:
        main, past = self.store.statements.main, self.store.statements.past
        columns = (
            main.c.record_id,
            main.c.processing_state,
            main.c.lane,
            main.c.processing_owner,
            main.c.claim_count,
        )
        with self.store.database.read() as connection:
            live = [
                tuple(row)
                for row in connection.execute(select(*columns).order_by(main.c.record_id))
            ]
            ended = connection.execute(select(past.c.record_id, past.c.processing_state)).all()
        assert live == [
            (record_id, row.state, row.lane, row.owner, row.claims)
            for record_id, row in sorted(self.live.items())
        ]
        assert len(ended) == len(self.past)
        assert {row.record_id: row.processing_state for row in ended} == self.past

    @invariant()
    def each_posted_entry_is_alive_or_has_ended_once(self) -> None:
        alive = [row.root for row in self.live.values()]
        assert {
            root: alive.count(root) + len(ends) for root, ends in self.ends.items()
        } == dict.fromkeys(self.ends, 1)


TestClaims = ClaimLife.TestCase
TestClaims.settings = settings(max_examples=25, stateful_step_count=30)
