"""Entries that wait until others have ended.

An entry that is awaited carries a mark. The transaction in which it ends notes that in the rows of
`queue_waits`, and decides about those who waited for it. A row that could not be seen or decided
about then has a look date: a node looks at it soon.

- A caller's transaction that posts a waiting entry may stay open for long. So it locks nothing of
  the awaited entry; a node sets the mark once it has committed, and learns of ends meanwhile.
- A caller's transaction that changes a waiting entry may hold it for long. Then it is passed over.
- Two awaited entries may end at once. One of them finds the row of the waiting entry locked, and
  passes it over, too.

Nobody waits for a lock that a caller's transaction can hold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import Connection, Row

from queue_core.links.link import Ending, RetryByHand
from queue_core.links.links import Links, carries, is_awaited
from queue_core.links.ordering import Ordering
from queue_core.links.serving_nodes import ServingNodes
from queue_core.links.verdict import UNKNOWN, Verdict, reason_of, verdict_on
from queue_core.model.entry import Entry, from_row
from queue_core.model.lanes import ANY_NODE
from queue_core.model.states import State
from queue_core.runtime.clock import Clock
from sql.search_keys import AWAITED, with_marks
from sql.statements.entries import Statements
from sql.statements.waits import Wait, Waits

BATCH = 500
"""Waiting entries that one transaction decides about. Others are left to the next look."""
AGAIN = timedelta(seconds=0.05)
"""The time until the next look at rows that another transaction holds."""
LATER = timedelta(minutes=10)
"""The time between two looks at all waits: processes of an older version tell nobody of an end."""


class Dependencies:
    """The entries of one main table that wait for others."""

    mark = AWAITED

    def __init__(
        self,
        waits: Waits,
        entries: Statements,
        clock: Clock,
        *,
        ordering: Ordering,
        nodes: ServingNodes,
        others: Links,
    ) -> None:
        """`others`: the links of other kinds, which are told of cancelled entries."""
        self.statements = waits
        self._ordering = ordering
        self._nodes = nodes
        self._entries = entries
        self._clock = clock
        self._table = entries.main.name
        self._others = others

    # -- posts ------------------------------------------------------------------------------------

    def enter(
        self,
        connection: Connection,
        waits: Sequence[Wait],
        *,
        on_failed: Mapping[int, str],
        lanes: Mapping[int, str],
        ends: Mapping[int, str],
    ) -> None:
        """Enter the waits of new entries, by the ids of those. A look decides about them.

        `ends`: the states in which awaited entries have ended, of those that are nowhere.
        """
        now = self._clock.now()
        rows = [
            {
                "table_name": self._table,
                **wait._asdict(),
                "on_failed": on_failed[wait.waiter_id],
                "lane": lanes[wait.waiter_id],
                "awaited_state": ends.get(wait.awaited_id),
                "look_date": now,
            }
            for wait in waits
        ]
        self.statements.add(connection, rows)

    def waits_of(self, connection: Connection, ids: Sequence[int]) -> list[Row[Any]]:
        """The waits of entries for others."""
        return self.statements.of_waiters(connection, self._table, ids=ids)

    def removed(self, connection: Connection, ids: Sequence[int], *, lent: bool) -> None:
        """Delete the waits of removed entries that were held: nobody looks at those.

        Not one that somebody changes: the entry that it names is retried, and will end.
        `lent`: the connection is a caller's, which is not to lock what others write. So it enters a
        row, in which the entry waits for itself, that has a node do it.
        """
        held = [row for row in self.waits_of(connection, ids) if row.look_date is None]
        if not lent:
            waits = [Wait(row.waiter_id, row.awaited_id) for row in held]
            free = self.statements.lock_free(connection, self._table, waits)
            self.statements.remove(connection, self._table, free)
        elif held:
            values = {"awaited_state": State.REMOVED.value, "look_date": self._clock.now()}
            rows = {
                row.waiter_id: {**row._asdict(), "awaited_id": row.waiter_id, **values}
                for row in held
            }
            self.statements.add(connection, list(rows.values()))

    # -- ends of awaited entries ------------------------------------------------------------------

    def ended(self, connection: Connection, endings: Sequence[Ending], *, lent: bool) -> None:
        """See `Link.ended`."""
        ended = {one.entry.record_id: one.state for one in endings}
        self._spread(connection, ended, lent=lent)

    def _spread(
        self, connection: Connection, ended: dict[int, State], *, lent: bool = False
    ) -> None:
        """Note ends, decide about up to `BATCH` waiting entries, and go on with the cancelled."""
        now, left = self._clock.now(), BATCH
        while ended:
            rows = self.statements.of_awaited(connection, self._table, ids=list(ended))
            for state in sorted(set(ended.values())):
                noted = [
                    Wait(row.waiter_id, row.awaited_id)
                    for row in rows
                    if ended[row.awaited_id] is state and row.awaited_state is None
                ]
                values = {"awaited_state": state.value, "look_date": now}
                self.statements.change(connection, self._table, noted, values)
            waiters = sorted({row.waiter_id for row in rows})[:left]
            left -= len(waiters)
            ended, _ = self._decide(connection, waiters, lent=lent)

    def retried(self, connection: Connection, retry: RetryByHand, *, lent: bool) -> None:
        """See `Link.retried`. Those that still wait for the entry wait for the copy.

        One of them may stand in the order key of the copy, or hold up one that does. So the copy
        goes first: it waits for nobody but a head, which waits for nobody. So nothing ever waits
        for itself.
        """
        waiters = self._renew(connection, retry.old, retry.new_id)
        if waiters and self._entries.live_ids(connection, ids=waiters):
            self._ordering.put_first(connection, retry.new_id, lent=lent)

    def discarded(self, connection: Connection, old: Entry, *, lent: bool) -> None:
        """See `Link.discarded`. It is for a person to decide about those that wait."""

    def renewed(self, connection: Connection, old: Entry, new_id: int) -> None:
        """See `Link.renewed`."""
        self._renew(connection, old, new_id)

    def _renew(self, connection: Connection, old: Entry, new_id: int) -> list[int]:
        """Let those that wait for an entry wait for its copy; their ids.

        Some may have been removed since.
        """
        rows = self.statements.of_awaited(connection, self._table, ids=[old.record_id])
        waits = [Wait(row.waiter_id, row.awaited_id) for row in rows]
        values = {"awaited_id": new_id, "awaited_state": None, "look_date": self._clock.now()}
        self.statements.change(connection, self._table, waits, values)
        return [wait.waiter_id for wait in waits]

    # -- looks ------------------------------------------------------------------------------------

    def are_due(self, connection: Connection) -> bool:
        """Whether there is anything to `look` at."""
        return self.statements.are_due(connection, self._table, now=self._clock.now())

    def look(self, connection: Connection) -> int:
        """Look at the due rows, in a transaction of the library, and return their number."""
        now = self._clock.now()
        rows = self.statements.lock_due(connection, self._table, now=now, limit=BATCH)
        self.attend(connection, rows)
        return len(rows)

    def attend(self, connection: Connection, rows: Sequence[Row[Any]]) -> None:
        """Learn the ends of awaited entries, and decide about the entries that wait for them.

        For a transaction of the library, in which `rows` are locked, or were entered.
        """
        open_ids = {row.awaited_id for row in rows if row.awaited_state is None}
        ended, marked_ids = self._learn(connection, sorted(open_ids))
        again, later = list[Wait](), list[Wait]()
        for row in rows:
            wait = Wait(row.waiter_id, row.awaited_id)
            if row.awaited_state is not None or row.awaited_id in marked_ids:
                later.append(wait)
            elif row.awaited_id in ended:
                later += self._follow(connection, wait, *ended[row.awaited_id])
            else:
                again.append(wait)
        now = self._clock.now()
        self.statements.change(connection, self._table, again, {"look_date": now + AGAIN})
        self.statements.change(connection, self._table, later, {"look_date": now + LATER})
        # While somebody holds the waiting entry, the decision is still to come.
        cancelled, held = self._decide(connection, sorted({row.waiter_id for row in rows}))
        again = [wait for wait in later if wait.waiter_id in held]
        self.statements.change(connection, self._table, again, {"look_date": now + AGAIN})
        self._spread(connection, cancelled)

    def _learn(
        self, connection: Connection, ids: Sequence[int]
    ) -> tuple[dict[int, tuple[int, str | None]], set[int]]:
        """Of awaited entries, the last ones of those that have ended, and whose ids are marked.

        They are marked here, unless somebody holds them.
        """
        if not ids:
            return {}, set()
        entries, marked_ids = self._entries, set[int]()
        for live_row in entries.lock_free(connection, ids=ids):
            record_id = live_row.record_id
            marked_ids.add(record_id)
            if not is_awaited(live_row.headers):
                headers = with_marks(live_row.headers, {AWAITED: ""})
                entries.change(connection, record_id=record_id, values={"headers": headers})
        # After the locks: an entry that was not locked has ended by now, or is held.
        live = entries.live_ids(connection, ids=ids)
        gone = [record_id for record_id in ids if record_id not in live]
        ends, ended = entries.ends(connection, ids=gone), dict[int, tuple[int, str | None]]()
        nowhere = set[int]()
        for record_id in gone:
            end = ends.get(record_id)
            if end is not None and end.processing_state != State.REAPED:
                ended[record_id] = record_id, end.processing_state
                continue
            first_id = record_id if end is None or end.origin_id is None else end.origin_id
            found = entries.last_of_chain(connection, first_id)
            if found is None or found[1] == State.REAPED:
                nowhere.add(record_id)
            else:
                ended[record_id] = found
        if nowhere:
            # A node that keeps only failures has handled it before it could be marked, more likely
            # than that somebody has deleted its failure since.
            state = UNKNOWN if self._nodes.keep_all(connection) else State.PROCESSED.value
            ended |= {record_id: (record_id, state) for record_id in nowhere}
        return ended, marked_ids

    def _follow(
        self, connection: Connection, wait: Wait, last_id: int, state: str | None
    ) -> list[Wait]:
        """Note how the awaited entry has ended, or that it lives on under another id.

        Returns the wait if an end was noted.
        """
        waits = self.waits_of(connection, [wait.waiter_id])
        if last_id != wait.awaited_id and last_id in {row.awaited_id for row in waits}:
            self.statements.remove(connection, self._table, [wait])
            return []
        values = {"awaited_id": last_id, "awaited_state": state, "look_date": self._clock.now()}
        self.statements.change(connection, self._table, [wait], values)
        return [] if state is None else [Wait(wait.waiter_id, last_id)]

    # -- decisions --------------------------------------------------------------------------------

    def _decide(
        self, connection: Connection, ids: Sequence[int], *, lent: bool = False
    ) -> tuple[dict[int, State], set[int]]:
        """Decide about waiting entries.

        Returns those that are cancelled and awaited, and the ids of those that somebody holds.
        """
        if not ids:
            return {}, set()
        entries = self._entries
        live = entries.live_ids(connection, ids=ids)
        locked = {row.record_id: row for row in entries.lock_free(connection, ids=sorted(live))}
        # Read once they are locked: an end at the same time has been noted, or finds them locked.
        by_waiter = dict[int, list[Row[Any]]]()
        for row in self.statements.of_waiters(connection, self._table, ids=ids):
            by_waiter.setdefault(row.waiter_id, []).append(row)
        over, held, cancelled = list[Wait](), list[Wait](), dict[str, list[int]]()
        released = list[Row[Any]]()
        for waiter_id, rows in by_waiter.items():
            # A row that is not noted may be in the hands of another transaction.
            noted = [Wait(waiter_id, row.awaited_id) for row in rows if row.awaited_state]
            waiter = locked.get(waiter_id)
            if waiter_id not in live or (waiter and not self._waits(connection, waiter)):
                over += noted
            elif waiter is not None:
                verdict, failed = verdict_on(rows)
                if verdict is Verdict.HOLD:
                    held += noted
                elif verdict is Verdict.CANCEL and failed is not None:
                    cancelled.setdefault(reason_of(failed), []).append(waiter_id)
                    over += noted
                elif verdict is Verdict.RELEASE:
                    self._release(connection, waiter, rows[0].lane, lent=lent)
                    released.append(waiter)
                    over += noted
        self.statements.change(connection, self._table, held, {"look_date": None})
        self.statements.remove(connection, self._table, over)
        for reason, waiters in cancelled.items():
            self._cancel(connection, waiters, reason, lent=lent)
        if not lent:
            self._ordering.start_keys_of(connection, released)
        awaited = {
            waiter_id: State.REMOVED
            for waiters in cancelled.values()
            for waiter_id in waiters
            if is_awaited(locked[waiter_id].headers)
        }
        return awaited, live - locked.keys()

    def release(self, connection: Connection, waiter: Entry, *, lent: bool) -> bool:
        """Let a locked entry run, without regard to its waits; False if it doesn't wait for others.

        The end of another entry that it waits for removes the rest. `lent`: the connection is a
        caller's.
        """
        if not self._waits(connection, waiter):
            return False
        rows = self.waits_of(connection, [waiter.record_id])
        # Without a row, one was deleted by hand.
        self._release(connection, waiter, rows[0].lane if rows else ANY_NODE, lent=lent)
        noted = [Wait(row.waiter_id, row.awaited_id) for row in rows if row.awaited_state]
        self.statements.remove(connection, self._table, noted)
        if not lent:
            self._ordering.start_keys_of(connection, [waiter])
        return True

    def _waits(self, connection: Connection, waiter: Row[Any] | Entry) -> bool:
        """Whether a locked entry waits for others, and not just for the turn of its order key."""
        return waiter.processing_state == State.WAITING and (
            not carries(waiter.headers, self._ordering.mark)
            or self._ordering.keeps(connection, waiter.record_id)
        )

    def _release(
        self, connection: Connection, waiter: Row[Any] | Entry, lane: str, *, lent: bool
    ) -> None:
        if carries(waiter.headers, self._ordering.mark):
            self._ordering.release(connection, waiter.record_id, lane, lent=lent)
            return
        if not lent:
            lane = self._nodes.lane(connection, lane)
        # Not due before it may run: its wait is no delay of the queue.
        due = max(waiter.effective_date, self._clock.now())
        self._entries.start_waiting(connection, record_id=waiter.record_id, lane=lane, due=due)

    def _cancel(
        self, connection: Connection, ids: Sequence[int], reason: str, *, lent: bool
    ) -> None:
        values = {
            "processing_state": State.REMOVED.value,
            "finished_date": self._clock.now(),
            "last_error": reason,
        }
        linked = self._entries.locked_marked(connection, ids=ids)
        self._entries.to_history(connection, ids=ids, values=values)
        endings = [Ending(from_row(row), State.REMOVED) for row in linked]
        self._others.ended(connection, endings, lent=lent)
