"""The moves of entries by a live node: a claim takes entries, an outcome sends one to history.

Each move is one short transaction, or one statement that commits by itself. One transaction may do
both, where that costs less. The entries of a dead node are moved by `cluster.redispatch`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from queue_core.errors import HistoryConflictError
from queue_core.links.links import is_awaited
from queue_core.model.entry import Entry, claimed
from queue_core.model.lanes import Lane
from queue_core.model.outcome import Finished
from queue_core.model.states import State
from queue_core.storage.endings import end_awaited, endings_of
from queue_core.storage.key_places import ALL_KEYS
from queue_core.storage.places import Claimed, Places
from queue_core.storage.progress import encode_progress
from queue_core.storage.return_to_lane import ReturnToLane
from queue_core.storage.seating import Seating
from queue_core.storage.store import FIRST_DATE, Store
from sql.statements.claims import Claim
from sql.statements.entries import Moved
from sql.statements.outcomes import Batch, FinishRow
from sql.tables import ERROR_LENGTH

T = TypeVar("T")

_RECORD_ID, _ORDER = attrgetter("record_id"), attrgetter("order")


class Written(NamedTuple):
    """The result of a transaction with outcomes."""

    lost: set[int]
    """Ids of entries that had been taken over: nothing changed for them."""
    claimed: Claimed | None
    """Its claim as well; None if it was to claim nothing."""


class Moves:
    """The moves of one bus or service."""

    def __init__(
        self, store: Store, places: Places, placed: Callable[[Lane, Sequence[int]], None]
    ) -> None:
        """`placed` is told of the ids whose claims took places, once these are committed."""
        self._store = store
        self._places = places
        self._placed = placed

    def claim(
        self,
        lane: Lane,
        owner: str,
        limit: int,
        since: datetime = FIRST_DATE,
        ahead: timedelta = timedelta(),
    ) -> Claimed:
        """Claim up to `limit` entries of `lane` for `owner`, and return them.

        They are due from `since` (UTC) on, and now or within `ahead`.
        """
        claim = self.to_claim(lane, owner, limit, since, ahead)
        if self._places.lanes:
            with self._within(claim) as reserved:
                if reserved is not None:
                    entries = self._claim(reserved)
                    found = self._places.reserved(reserved, limit, entries)
                    if entries:
                        return self._told(found)
            if self._places.roomy(lane):
                claimed = self._store.database.write_autocommit(
                    partial(self._places.claim, claim=claim), lambda _, found: found
                )
                if claimed is not None:
                    return self._told(claimed)
            claim_places = partial(_claim_places, self._store, self._places, claim)
            return self._told(self._store.database.write(claim_places))
        entries = self._claim(claim)
        if not self._places.concern(entries):
            return _all_of(entries)
        # None of them starts before it has a place.
        seat = partial(self._seat, claim=claim, entries=entries)
        return self._told(self._store.database.write(seat))

    def _claim(self, claim: Claim) -> list[Entry]:
        move = partial(self._store.statements.move, owner=claim.owner, claim=claim)
        _, rows = self._run_move(move, lambda connection, moved: moved(connection))
        return _entries(claim, rows)

    def _seat(self, connection: Connection, claim: Claim, entries: Sequence[Entry]) -> Claimed:
        return Seating(self._places, connection, claim).seat(entries)

    def register(self, owner: str, entries: Sequence[Entry]) -> None:
        """Count entries that `owner` runs, and that took no place, as if they had."""
        if self._places.concern(entries):
            register = partial(self._places.register, owner=owner, entries=entries)
            self._store.database.write(register)
            for lane, those in self._places.by_lane(entries):
                self._placed(lane, [entry.record_id for entry in those])
            keyed = [entry.record_id for entry in entries if self._places.keys.concern(entry)]
            self._placed(ALL_KEYS, keyed)

    def _told(self, claimed: Claimed) -> Claimed:
        for lane, ids in claimed.placed.items():
            self._placed(lane, ids)
        for lane, reserve in claimed.reserves.items():
            self._places.reserves.learn(lane, reserve)
        return claimed

    def _within(self, claim: Claim | None) -> AbstractContextManager[Claim | None]:
        """For a block that claims by a reserve, if there is one: see `Reserves.within`."""
        places = self._places
        return places.reserves.within(() if places.keys.queues else places.lanes.values(), claim)

    def to_claim(
        self, lane: Lane, owner: str, limit: int, since: datetime, ahead: timedelta
    ) -> Claim:
        """The claim that `claim` would make, for `record` to make along with outcomes."""
        now = self._store.clock.now()
        until = now + timedelta(seconds=self._store.config.claim_seconds)
        return Claim(lane, owner, limit, since, now + ahead, until)

    def record(
        self,
        owner: str,
        finished: Sequence[Finished],
        returns: Sequence[ReturnToLane] = (),
        claim: Claim | None = None,
    ) -> Written:
        """Write outcomes, return entries, and make a claim, all in one transaction.

        They are two if history keeps only some of the outcomes.
        """
        if self._store.config.history == "all":
            return self._record(owner, finished, returns, claim)
        handled = [one for one in finished if _is_handled(one)]
        written = Written(set(), None)
        if handled or claim is not None:
            written = self._record(owner, handled, (), claim, kept=False)
        failed = [one for one in finished if not _is_handled(one)]
        if failed or returns:
            written.lost.update(self._record(owner, failed, returns, None).lost)
        return written

    def _record(
        self,
        owner: str,
        finished: Sequence[Finished],
        returns: Sequence[ReturnToLane],
        claim: Claim | None,
        *,
        kept: bool = True,
    ) -> Written:
        recording = _Recording(self._store, self._places, owner, finished, returns, kept=kept)
        with self._within(claim) as reserved:
            if claim is not None:
                recording.add_claim(claim, reserved)
            lost, claimed = self._run_move(
                recording.move, recording.learn, autocommit=recording.autocommit
            )
            if claimed is not None:
                self._told(claimed)
        apart = recording.by_row + (recording.among(lost) if lost else [])
        if apart:
            lost -= {one.entry.record_id for one in apart}
            lost |= self._end_apart(owner, apart)
        return Written(lost, claimed)

    def _end_apart(self, owner: str, finished: Sequence[Finished]) -> set[int]:
        """End entries by what their rows say, and return the ids of those taken over."""

        def work(connection: Connection) -> set[int]:
            lost = [
                one
                for one in sorted(finished, key=lambda one: one.entry.record_id)
                if not end_awaited(self._store, connection, owner, one)
            ]
            recorded = _recorded(self._store, connection, owner, lost)
            return {one.entry.record_id for one in lost} - recorded

        return self._store.database.write(work)

    def _run_move(
        self,
        move: Callable[[Connection], Moved],
        learn: Callable[[Connection, Moved], T],
        *,
        autocommit: bool = True,
    ) -> T:
        """Run `move`, then `learn`, which reads the result of the move.

        Both share one transaction. With `autocommit` they need none where a move is one statement.
        """
        database = self._store.database
        if autocommit and self._store.statements.capabilities.moves_at_once:
            return database.write_autocommit(move, learn)
        return database.write(lambda connection: learn(connection, move(connection)))


class _Recording:
    """The outcomes, returns and claim of one transaction: `move` writes and claims, then `learn`.

    `autocommit`: a move that is one statement needs no transaction.
    """

    def __init__(
        self,
        store: Store,
        places: Places,
        owner: str,
        finished: Sequence[Finished],
        returns: Sequence[ReturnToLane],
        *,
        kept: bool,
    ) -> None:
        self._store = store
        self._places = places
        self._owner = owner
        self._returns = returns
        self._kept = kept
        # Most entries have no headers, and for them nothing is called.
        headed = [one for one in finished if one.entry.headers is not None]
        by_row = [one for one in headed if is_awaited(one.entry.headers)]
        by_row += [one for one in finished if one.may_have_succeeded and one not in by_row]
        self.by_row = by_row
        """The outcomes that are left out: the rows of their entries say how those end."""
        self._finished = [one for one in finished if one not in by_row] if by_row else finished
        self._batch = batch_of(store, self._finished, kept=kept)
        links = store.links
        self._linked = [
            one for one in headed if one not in by_row and links.concern(one.entry.headers)
        ]
        self._claim: Claim | None = None
        self._reserved: Claim | None = None
        self._limited = False
        # A return needs a transaction; outcomes alone are one statement, which commits by itself.
        self.autocommit = not (returns or self._linked)

    def add_claim(self, claim: Claim, reserved: Claim | None) -> None:
        """Make a claim as well, by a reserve if there is one."""
        self._claim, self._reserved = claim, reserved
        if reserved is None and self._places.limit_any:
            self._limited, self.autocommit = True, False

    def move(self, connection: Connection) -> Moved:
        """Write the outcomes, and claim; where places are limited, `learn` claims."""
        batch = self._batch
        taking = self._claim if self._reserved is None else self._reserved
        try:
            return self._store.statements.move(
                connection,
                owner=self._owner,
                batch=batch if batch.ids else None,
                claim=None if self._limited else taking,
            )
        except IntegrityError as error:
            if not batch.ids or not self._store.database.dialect.is_duplicate(error):
                raise
            ids, table = ", ".join(map(str, batch.ids[:10])), self._store.config.history_table
            raise HistoryConflictError(
                f"{table} holds other content under an id of {ids}: {error.orig}. Nothing of this "
                "batch was moved. Ids are never reused, so somebody wrote to the tables by hand.",
                table=table,
                record_id=batch.ids[0],
            ) from error

    def learn(self, connection: Connection, moved: Moved) -> tuple[set[int], Claimed | None]:
        """Do what follows the move; return the ids of entries taken over, and what was claimed."""
        ids, rows = moved(connection)
        lost = set(self._batch.ids) - ids
        for one in sorted(self._returns, key=_ORDER):
            if not one.apply(connection):
                lost.add(one.record_id)
        # Last: others wait for rows that are locked here. And not for rows that a former try
        # recorded: that has told them.
        if self._linked:
            self._store.links.ended(connection, endings_of(self._linked, besides=lost))
        waiting = [one.entry for one in self._returns if one.record_id not in lost]
        if waiting:
            self._store.limit_keys.freed(connection, waiting)
        if lost:
            tried = self.among(lost)
            lost -= _recorded(self._store, connection, self._owner, tried, kept=self._kept)
        claim, reserved = self._claim, self._reserved
        if claim is None:
            return lost, None
        if self._limited:
            return lost, _claim_places(self._store, self._places, claim, connection)
        entries = _entries(claim, rows)
        if reserved is None:
            return lost, _all_of(entries)
        return lost, self._places.reserved(reserved, claim.limit, entries)

    def among(self, ids: Collection[int]) -> list[Finished]:
        """The outcomes of the entries with these ids."""
        return [one for one in self._finished if one.entry.record_id in ids]


def _recorded(
    store: Store,
    connection: Connection,
    owner: str,
    finished: Sequence[Finished],
    *,
    kept: bool = True,
) -> set[int]:
    """The ids whose very outcome stands in history. If it keeps none: that are nowhere.

    A former try recorded it, and its COMMIT gave no answer.
    """
    if not finished:
        return set()
    if not kept:
        ids = {one.entry.record_id for one in finished}
        search = partial(store.search, connection, where=lambda table: [table.c.record_id.in_(ids)])
        return ids - {row.record_id for past in (False, True) for row in search(past=past)}
    tried = {
        (one.entry.record_id, one.entry.claim_count, one.state, one.finished_date)
        for one in finished
    }
    rows = store.search(
        connection,
        past=True,
        where=lambda table: [
            table.c.record_id.in_([one.entry.record_id for one in finished]),
            table.c.processing_owner == owner,
        ],
    )
    return {
        row.record_id
        for row in rows
        if (row.record_id, row.claim_count, row.processing_state, row.finished_date) in tried
    }


def _claim_places(store: Store, places: Places, claim: Claim, connection: Connection) -> Claimed:
    seating = Seating(places, connection, claim)
    rows = [] if seating.claim is None else store.statements.claim(connection, seating.claim)
    return seating.seat(_entries(claim, rows))


def _entries(claim: Claim, rows: Sequence[Sequence[Any]]) -> list[Entry]:
    return [claimed(row, claim.owner, claim.until) for row in rows]


def _all_of(entries: list[Entry]) -> Claimed:
    return Claimed(entries, len(entries))


def _is_handled(finished: Finished) -> bool:
    return finished.state is State.PROCESSED and not finished.undelivered


def batch_of(store: Store, finished: Sequence[Finished], *, kept: bool = True) -> Batch:
    """The outcomes as `Statements.move` and `Statements.finish` take them."""
    endings = [
        FinishRow(
            entry.record_id,
            entry.claim_count,
            entry.created_date,
            outcome.state,
            outcome.finished_date,
            outcome.started_date,
            outcome.error_count,
            encode_progress(outcome.progress),
            outcome.last_error[:ERROR_LENGTH] if outcome.last_error else None,
        )
        for outcome in finished
        for entry in (outcome.entry,)
    ]
    endings.sort(key=_RECORD_ID)
    return store.statements.batch(endings, kept=kept)
