"""Statements of the engine, each on ids of tables that are empty or full."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from sqlalchemy import Connection

from queue_core.model.entry import Entry, claimed
from queue_core.model.lanes import (
    AFTER_KEYED,
    ANY_NODE,
    KEYED,
    LIMITED,
    PARKED,
    SUSPECT,
    WAITING_LANE,
)
from queue_core.model.states import State
from queue_core.storage.store import FIRST_DATE
from sql.search_keys import StoredKey
from sql.statements.claims import Claim, ReserveName
from sql.statements.entries import Statements
from sql.statements.outcomes import FinishRow
from tests.contract.plans.tables import ANN, BATCH, DEAD, NODE, OWN


@dataclass(frozen=True)
class Tables:
    """What an operation works on: the first ids of the main table and of history, and the time."""

    statements: Statements
    connection: Connection
    now: datetime
    ids: Sequence[int]
    past_ids: Sequence[int]

    def claim(
        self, lane: str, limit: int = BATCH, reserve: ReserveName | None = None
    ) -> list[Entry]:
        until = self.now + timedelta(minutes=5)
        claim = Claim(lane, NODE, limit, FIRST_DATE, self.now, until, reserve)
        rows = self.statements.claim(self.connection, claim)
        assert bool(rows) == bool(self.ids)
        return [claimed(row, NODE, until) for row in rows]

    def finish(self) -> None:
        """Claim, and finish what was claimed; on an empty table ids that are gone.

        One half leaves no row of history.
        """
        claimed = self.claim(OWN)
        raised = {row.record_id: (1, row.created_date) for row in claimed} or dict.fromkeys(
            range(1, 11), (1, self.now)
        )
        endings = [
            FinishRow(record_id, count, created, State.PROCESSED.value, self.now, self.now)
            for record_id, (count, created) in sorted(raised.items())
        ]
        half = len(endings) // 2
        moved = [
            record_id
            for kept, some in ((True, endings[:half]), (False, endings[half:]))
            for record_id in self.statements.finish(
                self.connection, owner=NODE, batch=self.statements.batch(some, kept=kept)
            )
        ]
        assert len(moved) == len(claimed)

    def give_back(self) -> None:
        claims = [(row.record_id, 1) for row in self.claim(OWN)[:10]]
        self.statements.release(
            self.connection,
            owner=NODE,
            lane=ANY_NODE,
            suspect_lane=SUSPECT,
            claims=claims or [(1, 1)],
        )

    def retry(self) -> None:
        for row in self.claim(OWN)[:10]:
            self.statements.change_claimed(
                self.connection,
                owner=NODE,
                record_id=row.record_id,
                claim_count=1,
                created_date=row.created_date,
                values={"processing_state": "AVAILABLE", "lane": OWN, "effective_date": self.now},
            )

    def reap(self) -> None:
        """The reaper's and a restarted node's work on a lane.

        Its entries ran, are due, or are due later.
        """
        page = partial(self.statements.locked_page, self.connection, lane=DEAD, limit=10)
        page(state="IN_PROCESSING")
        page = partial(
            self.statements.locked_page, self.connection, lane=OWN, state="AVAILABLE", limit=10
        )
        due = [row.record_id for row in page(due_by=self.now)]
        later = [row.record_id for row in page(due_after=self.now)]
        self.statements.copy_anew(self.connection, ids=due, lane=ANY_NODE, crashes=0)
        ended = {"processing_state": "REAPED", "finished_date": self.now}
        self.statements.to_history(self.connection, ids=due, values=ended)
        self.statements.change_lane(
            self.connection, ids=later or [1], from_lane=OWN, to_lane=ANY_NODE, suspect_lane=SUSPECT
        )

    def sweep(self) -> None:
        self.statements.in_processing(self.connection, lane=DEAD)

    def park(self) -> None:
        page = partial(self.statements.page, self.connection, lane=PARKED, limit=BATCH)
        for row in page(after=None)[-1:]:
            page(after=(row.effective_date, row.record_id))

    def place(self) -> None:
        """What a claim of a limited queue asks and writes besides."""
        statements, connection = self.statements, self.connection
        claims = [row.claim for row in self.claim(OWN)[:10]] or [(1, 1)]
        statements.terms(connection, lane=LIMITED)
        statements.arrived(connection, lane=LIMITED, arrival_date=self.now)
        statements.take_places(connection, lane=LIMITED, owner=NODE, claims=claims)
        statements.bunches(connection, lane=LIMITED)
        held = statements.held_places(connection, lane=LIMITED, due_by=self.now)
        assert bool(held[NODE]) == bool(self.ids)
        statements.free_places(connection, lane=LIMITED)

    def reserve(self) -> None:
        """What a claim asks and writes that takes a reserve, one by it, and who ends it."""
        statements, connection = self.statements, self.connection
        name = ReserveName(LIMITED, -1, 1)
        statements.list_own(connection, lane=LIMITED, owner=NODE, due_by=self.now)
        statements.free_own_places(connection, lane=LIMITED, owner=NODE)
        statements.reserve_places(connection, owner=NODE, name=name, places=100)
        self.claim(OWN, 1, name)
        assert statements.lock_reserves(connection, lane=LIMITED) == [NODE]
        statements.list_all(connection, lane=LIMITED, due_by=self.now)

    def place_of_key(self) -> None:
        """What claims and endings of entries with limit keys ask and write besides."""
        statements, connection = self.statements, self.connection
        claims = [(ANN, *row.claim) for row in self.claim(OWN)[:10]] or [(ANN, 1, 1)]
        statements.key_terms(connection, lanes=[LIMITED])
        statements.add_keys(connection, {ANN: ("bus", "ann")})
        statements.lock_keys(connection, lanes=[ANN])
        statements.take_key_places(connection, owner=NODE, claims=claims)
        taken = statements.key_places(connection, lanes=[ANN])
        assert any(stands for _, _, _, stands in taken) == bool(self.ids)
        statements.let_wait(connection, owner=NODE, claims=claims)
        first = statements.first_of_keys(connection, lanes=[ANN])
        assert bool(first) == bool(self.ids)
        statements.wake(connection, ids=first.values() or [1], suspect_lane=SUSPECT)
        statements.free_key_places(connection, lanes=[ANN], ids=[one for _, one, _ in claims])
        statements.change_keys(connection, dates={ANN: (self.now, self.now)})

    def look_at_keys(self) -> None:
        """What a node asks of limit keys now and then."""
        statements, connection = self.statements, self.connection
        statements.page_of_keys(connection, after="", limit=10)
        statements.page_of_keys(connection, after="", limit=10, due_by=self.now)
        statements.keys_to_look_at(connection, now=self.now, limit=10)
        statements.next_look_at_keys(connection)
        statements.remove_idle_keys(connection, lanes=[ANN])
        statements.lanes(connection, besides=(ANN, ANN + "~"))
        statements.lane_counts(connection, lane=ANN, end=ANN + "~", until=self.now, limit=BATCH)

    def bring_back(self) -> None:
        """Whether a range of lanes has entries, its lanes, and the first entries of one of them."""
        self.statements.any_aside(self.connection, lanes=[(PARKED, PARKED + "~")])
        for lane in self.statements.lanes_between(self.connection, PARKED, PARKED + "~"):
            for due_by in (None, self.now):
                self.statements.free_page(self.connection, lane=lane, limit=BATCH, due_by=due_by)

    def look(self) -> None:
        """The lanes, what waits in each, and when the next entry is due."""
        for lane in self.statements.lanes(self.connection):
            self.statements.lane_counts(self.connection, lane=lane, until=self.now, limit=BATCH)
        lanes = (OWN, ANY_NODE, DEAD, PARKED)
        self.statements.due_and_next(self.connection, lanes=lanes, now=self.now)

    def announced(self) -> None:
        self.statements.owned(self.connection, ids=self.ids, owner=NODE)

    def remove(self) -> None:
        ids = self.statements.lock_available(self.connection, ids=self.ids[:10])
        ended = {"processing_state": "REMOVED", "finished_date": self.now}
        self.statements.to_history(self.connection, ids=ids, values=ended)

    def change(self) -> None:
        for record_id in self.ids[:10]:
            self.statements.lock_available(self.connection, ids=[record_id])
            self.statements.change(
                self.connection, record_id=record_id, values={"effective_date": self.now}
            )

    def search(self, *, past: bool) -> None:
        first = 5
        self._search({"search_key2": first}, past=past)
        self._search({"search_key1": 1, "search_key2": first}, past=past)

    def wait(self) -> None:
        """What is asked of entries that others wait for, and of those."""
        statements, connection, ids = self.statements, self.connection, list(self.ids[:10]) or [1]
        statements.live_ids(connection, ids=ids)
        statements.lock_free(connection, ids=ids)
        past_ids = list(self.past_ids[:10]) or [1]
        statements.ended_ids(connection, ids=past_ids)
        statements.ends(connection, ids=past_ids)
        for record_id in ids[0], past_ids[0]:
            statements.last_of_chain(connection, record_id)
        statements.waiting(connection, lane=WAITING_LANE, limit=BATCH)

    def miss(self) -> None:
        """What the doctor asks about rows that a hand has deleted."""
        statements, connection = self.statements, self.connection
        statements.unordered(connection, lane=WAITING_LANE, limit=BATCH)
        statements.headless(connection, lane=WAITING_LANE, limit=BATCH)
        statements.keyless(connection, lane=KEYED, end=AFTER_KEYED, limit=BATCH)

    def show(self) -> None:
        for past, ids in ((False, self.ids), (True, self.past_ids)):
            for record_id in ids[:3]:
                self._search({"record_id": record_id}, past=past)

    def newest(self) -> None:
        self._search({}, past=True, newest_first=True)

    def forget(self, *, past: bool) -> None:
        """All of one customer's rows, and some of them once more, by their ids."""
        keyed = partial(
            self.statements.keyed,
            self.connection,
            past=past,
            keys={"search_key2": StoredKey(6, "six")},
            queue_name=None,
            until=self.now,
        )
        ids = [row.record_id for row in keyed()][:10]
        keyed(ids=ids or [1])
        if past:
            self.statements.delete_ended(
                self.connection, ids=ids or [1], keys={"search_key2": StoredKey(6, "six")}
            )

    def dead_letters(self) -> None:
        self.statements.dead_letters(self.connection, limit=BATCH)
        self.statements.dead_letter_ids(self.connection, limit=BATCH)

    def windows(self, *, past: bool) -> None:
        """A window of ids, what matches in it, and some of that once more, by ids."""
        statements, states = self.statements, ["AVAILABLE", "PROCESSED"]
        first_id, last_id = statements.id_bounds(self.connection, past=past) or (1, 1)
        end = statements.range_page(
            self.connection, first_id=first_id, last_id=last_id, limit=BATCH, past=past
        )
        matching = partial(
            statements.matching,
            self.connection,
            past=past,
            where=lambda table: [table.c.processing_state.in_(states)],
            unretried=past,
        )
        found = matching(window=(first_id, end))
        matching(ids=found[:10] or [1])

    def reschedule(self) -> None:
        ids = self.statements.lock_available(self.connection, ids=self.ids[:10])
        self.statements.reschedule(self.connection, ids=ids or [1], due=self.now)
        self.statements.locked_progress(self.connection, ids=ids or [1])

    def _search(self, values: Mapping[str, int], *, past: bool, newest_first: bool = False) -> None:
        found = self.statements.search(
            self.connection,
            past=past,
            where=lambda table: [table.c[name] == value for name, value in values.items()],
            limit=BATCH,
            newest_first=newest_first,
        )
        assert bool(found) == bool(self.ids)

    def history_page(self) -> None:
        self.statements.history_page(
            self.connection, after=0, before=self.now, states=["PROCESSED"], limit=BATCH
        )

    def delete_history(self) -> None:
        deleted = self.statements.delete_history(
            self.connection, ids=self.past_ids or [1], before=self.now, states=["PROCESSED"]
        )
        assert deleted == len(self.past_ids)
