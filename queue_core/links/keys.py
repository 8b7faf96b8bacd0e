"""The link of an entry to its idempotency key, which is free, or kept, when the entry ends.

The end of an entry waits for no transaction that has locked its key, since that may stay open: it
passes the key over. So a key may name an entry that has ended. Then the entry itself tells where
the key stands (`holds`), and `look` makes up for keys that were passed over.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Any
from uuid import uuid4

import msgspec
from sqlalchemy import Connection, Row

from queue_core.errors import DuplicateKeyError
from queue_core.links.following import Following
from queue_core.links.hold import FOREVER, LIVING, WAITING, Hold, hold_of, later
from queue_core.links.link import Ending, RetryByHand
from queue_core.links.links import carries
from queue_core.model.entry import Entry
from queue_core.model.states import State
from queue_core.runtime.clock import Clock
from sql.search_keys import RESERVED, texts, with_marks
from sql.statements.entries import Statements
from sql.statements.key_shapes import PERIOD, KeyRow
from sql.statements.keys import Keys

KEY_MARK = RESERVED + "key"
"""The mark of an entry with a key. Its text is the key."""
KEEP_MARK = RESERVED + "keep"
"""The mark of an entry whose key is not kept for as long as it lives. Its text is the keep, or
seconds. It tells a retry by hand, which finds the key free.
"""

LOOK_SECONDS = 3_600.0
"""The time from the due date of an entry to a look at its key, if that is kept for a time."""
LOOK_BATCH = 500
"""Keys that one transaction looks after."""


def entries_of(rows: Sequence[Row[Any]]) -> list[int]:
    """The entries of keys, besides those whose end the rows tell."""
    return [row.record_id for row in rows if row.record_id and row.ended_state is None]


class KeyLink:
    """The keys of one main table, as their entries come and go."""

    mark = KEY_MARK

    def __init__(self, keys: Keys, statements: Statements, clock: Clock, table_name: str) -> None:
        self.keys = keys
        self.table_name = table_name
        self._statements = statements
        self._clock = clock

    # -- where keys stand -------------------------------------------------------------------------

    def holds(
        self,
        connection: Connection,
        rows: Sequence[Row[Any]],
        live: Mapping[int, Row[Any]] | None = None,
    ) -> dict[str, Hold]:
        """The states of the keys of `rows`, all of one queue, by key.

        `live`: those of their entries that have not ended, if that is known.
        """
        ids = entries_of(rows)
        if live is None:
            live = self.live(connection, ids)
        gone = [record_id for record_id in ids if record_id not in live]
        past = dict[int, Row[Any]]()
        if gone:
            past = self.keys.states(connection, self._statements.past, ids=gone, dates=True)
        now = self._clock.now()
        return {
            row.entry_key: hold_of(row, live.get(row.record_id), past.get(row.record_id), now)
            for row in rows
        }

    def seen(self, connection: Connection, queue_name: str, keys: Sequence[str]) -> dict[str, Hold]:
        """The states of those of `keys` that somebody has, by key, as one statement sees them."""
        main = self._statements.main
        rows = self.keys.with_entries(connection, main, queue_name, keys=keys)
        # A restored database may give the id of an entry that has ended to another one.
        live = {
            row.record_id: row
            for row in rows
            if row.ended_state is None and row.processing_state is not None
        }
        return self.holds(connection, rows, live)

    def live(self, connection: Connection, ids: Sequence[int]) -> dict[int, Row[Any]]:
        """Those of `ids` that have not ended, as `connection` sees them."""
        if not ids:
            return {}
        return self.keys.states(connection, self._statements.main, ids=ids, dates=False)

    # -- endings ----------------------------------------------------------------------------------

    def ended(self, connection: Connection, endings: Sequence[Ending], *, lent: bool) -> None:
        """See `Link.ended`."""
        del lent
        ends = {one.entry.record_id: one for one in endings}
        for queue_name, keys in _by_queue(one.entry for one in endings):
            found = self.keys.find(
                connection, self.table_name, queue_name, keys=keys, lock=True, skip_locked=True
            )
            mine = [row for row in found if row.record_id in ends]
            self._end(connection, queue_name, mine, ends)

    def _end(
        self,
        connection: Connection,
        queue_name: str,
        rows: Sequence[Row[Any]],
        ends: Mapping[int, Ending],
    ) -> None:
        now, free = self._clock.now(), list[str]()
        kept = dict[tuple[State, str, float | None], list[str]]()
        for row in rows:
            _, state, asked = ends[row.record_id]
            if row.requeue is not None:
                self.follow(connection, row)
            elif asked is not None and row.keep != FOREVER:
                period = state, PERIOD, asked.total_seconds()
                kept.setdefault(period, []).append(row.entry_key)
            elif row.keep in {WAITING, LIVING} or state is State.REMOVED:
                free.append(row.entry_key)
            else:
                kept.setdefault((state, row.keep, row.keep_seconds), []).append(row.entry_key)
        self.keys.remove(connection, self.table_name, queue_name, free)
        for (state, keep, seconds), keys in kept.items():
            values = {
                "keep": keep,
                "keep_seconds": seconds,
                "ended_state": state.value,
                "ended_date": now,
                "look_date": None if seconds is None else later(now, seconds),
            }
            self.keys.change(connection, self.table_name, queue_name, keys, values)

    def follow(self, connection: Connection, row: Row[Any]) -> tuple[int, datetime]:
        """Insert the entry that was to follow. It has the key; returns its id and date."""
        record_id, date = self._insert_requeued(connection, row)
        fresh = {
            "record_id": record_id,
            "requeue": None,
            "look_date": later(date, LOOK_SECONDS) if row.keep == PERIOD else None,
        }
        self.keys.change(connection, self.table_name, row.queue_name, [row.entry_key], fresh)
        return record_id, date

    def _insert_requeued(self, connection: Connection, row: Row[Any]) -> tuple[int, datetime]:
        following = msgspec.json.decode(row.requeue, type=Following)
        values = following.row(row.queue_name, self._clock.now())
        [record_id] = self._statements.insert(connection, [values])
        return record_id, values["effective_date"]

    def held(self, connection: Connection, entries: Sequence[Entry]) -> set[int]:
        """The ids of those among `entries` that have keys which somebody has locked.

        The keys of the others are locked then. So `renewed` waits for nobody.
        """
        mine = [entry for entry in entries if carries(entry.headers, KEY_MARK)]
        held = set[int]()
        for queue_name, keys in _by_queue(mine):
            find = partial(self.keys.find, connection, self.table_name, queue_name, keys=keys)
            free = {row.entry_key for row in find(lock=True, skip_locked=True)}
            held |= {row.record_id for row in find() if row.entry_key not in free}
        return held & {entry.record_id for entry in mine}

    def renewed(self, connection: Connection, old: Entry, new_id: int) -> None:
        """See `Link.renewed`. It waits for posts that have locked the key."""
        found = self.keys.find(
            connection, self.table_name, old.queue_name, keys=[key_of(old.headers)], lock=True
        )
        for row in found:
            if row.record_id == old.record_id:
                values = {"record_id": new_id}
                self.keys.change(
                    connection, self.table_name, old.queue_name, [row.entry_key], values
                )

    def discarded(self, connection: Connection, old: Entry, *, lent: bool) -> None:
        """See `Link.discarded`. The key stays as it is: the effect was tried."""

    def retried(self, connection: Connection, retry: RetryByHand, *, lent: bool) -> None:
        """See `Link.retried`. The copy gets the key again.

        An entry that was to follow the old one, and does not stand yet, follows the copy. Raises
        DuplicateKeyError if another entry has the key by now; by `force` it goes on without.
        """
        del lent
        old, new_id = retry.old, retry.new_id
        key, queue_name, record_id = key_of(old.headers), old.queue_name, old.record_id
        taken_by = uuid4().hex
        found = self.keys.add(
            connection,
            self.table_name,
            queue_name,
            rows=[KeyRow(key, None, LIVING, None)],
            taken_by=taken_by,
        )
        (keep, seconds), requeue = _kept_by(old.headers), None
        if found and found[0].taken_by != taken_by:
            hold = self.holds(connection, found)[key]
            if hold.held and hold.record_id != record_id:
                if retry.force:
                    return
                raise DuplicateKeyError(
                    f"{queue_name}: entry {record_id} had the key {key!r}, which belongs to entry "
                    f"{hold.record_id} now ({hold.state.value}). Nothing was written; to run it "
                    "once more without its key, retry it with force=True (--force).",
                    queue_name=queue_name,
                    key=key,
                    record_id=hold.record_id,
                    answer=hold.state.value,
                )
            keep, seconds, requeue = hold.keep, hold.keep_seconds, found[0].requeue
        self.keys.put(
            connection,
            self.table_name,
            queue_name,
            rows=[KeyRow(key, new_id, keep, seconds)],
            taken_by=taken_by,
            look=later(self._clock.now(), LOOK_SECONDS),
        )
        if requeue is not None:
            values = {"requeue": requeue, "look_date": self._clock.now()}
            self.keys.change(connection, self.table_name, queue_name, [key], values)

    # -- by hand ----------------------------------------------------------------------------------

    def release(self, connection: Connection, queue_name: str, key: str) -> bool:
        """Free a key; False if nobody had it. An entry that was to follow is posted at once."""
        # A key that is not there must not be locked: InnoDB would lock the gap.
        if not self.keys.find(connection, self.table_name, queue_name, keys=[key]):
            return False
        for row in self.keys.find(connection, self.table_name, queue_name, keys=[key], lock=True):
            if row.requeue is not None:
                self._insert_requeued(connection, row)
        return self.keys.remove(connection, self.table_name, queue_name, [key]) == 1

    # -- maintenance ------------------------------------------------------------------------------

    def are_due(self, connection: Connection) -> bool:
        """Whether there is anything to `look` at."""
        return self.keys.are_due(connection, self.table_name, now=self._clock.now())

    def look(self, connection: Connection) -> int:
        """Delete keys whose time is over, and make up for keys that endings have passed over.

        Returns how many were looked at, at most `LOOK_BATCH`.
        """
        now = self._clock.now()
        rows = self.keys.to_look_at(connection, self.table_name, now=now, limit=LOOK_BATCH)
        for queue_name, group in groupby(
            sorted(rows, key=attrgetter("queue_name", "entry_key")), attrgetter("queue_name")
        ):
            self._look(connection, queue_name, list(group), now)
        return len(rows)

    def _look(
        self, connection: Connection, queue_name: str, rows: Sequence[Row[Any]], now: datetime
    ) -> None:
        ids = [row.record_id for row in rows if row.record_id]
        main = self._statements.main
        live = self.keys.states(connection, main, ids=ids, dates=True)
        holds = self.holds(connection, rows)
        free = list[str]()
        for row in rows:
            hold, values = holds[row.entry_key], dict[str, Any]()
            entry = live.get(row.record_id)
            if entry is not None:
                values["look_date"] = later(max(now, entry.effective_date), LOOK_SECONDS)
            elif row.requeue is not None:
                self.follow(connection, row)
            elif not hold.held:
                free.append(row.entry_key)
            else:
                # An entry that is nowhere has ended by now, and was deleted from history.
                ended = hold.ended_date or now
                values = {
                    "ended_state": hold.ended_state or "",
                    "ended_date": ended,
                    "look_date": later(ended, row.keep_seconds) if row.keep_seconds else None,
                }
            if values:
                self.keys.change(connection, self.table_name, queue_name, [row.entry_key], values)
        self.keys.remove(connection, self.table_name, queue_name, free)


def key_of(headers: str | None) -> str:
    """The key of an entry whose headers carry the mark."""
    return texts(headers).get(KEY_MARK.removeprefix(RESERVED), "")


def with_key(headers: str | None, key: str, keep: str, seconds: float | None) -> str:
    """Headers with the marks of a key, and of the `keep` with which its row stands."""
    marks = {KEY_MARK: key}
    if keep != LIVING:
        marks[KEEP_MARK] = keep if seconds is None else repr(seconds)
    return with_marks(headers, marks)


def _kept_by(headers: str | None) -> tuple[str, float | None]:
    """How long the key of an entry with these headers is kept: as its row says it."""
    text = texts(headers).get(KEEP_MARK.removeprefix(RESERVED), LIVING)
    return (text, None) if text in {WAITING, LIVING, FOREVER} else (PERIOD, float(text))


def _by_queue(entries: Iterable[Entry]) -> list[tuple[str, list[str]]]:
    """The keys of entries by queue, in the order in which they are locked."""
    found = dict[str, set[str]]()
    for entry in entries:
        found.setdefault(entry.queue_name, set()).add(key_of(entry.headers))
    return [(queue_name, sorted(found[queue_name])) for queue_name in sorted(found)]
