"""Order keys: entries of one key run one after the other, in the order of posting.

Of each key one entry, the head, may be claimed, or runs, or waits for its retry. All others are
WAITING. The transaction in which the head ends lets the next one start. So the order holds whatever
happens to the head meanwhile: a delay, a retry, the death of its node.

An entry may have to wait for others, besides (`dependencies`). It keeps its place meanwhile. If it
is the first, the key has no head until it is released.

Two transactions that start and end heads of a key meet at the head's row. The end of a head deletes
its row first, and looks for the next entry then. A post or a release either inserts the row, or
locks it. So the one sees the other's row. A caller's transaction, which may stay open,
locks no head: it marks its entries, and a node gives their key a turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from operator import itemgetter
from typing import Any

from sqlalchemy import Connection, Row

from queue_core.links.link import Ending, RetryByHand
from queue_core.links.links import carries
from queue_core.links.serving_nodes import ServingNodes
from queue_core.model.entry import Entry
from queue_core.model.lanes import ANY_NODE, WAITING_LANE, Lane
from queue_core.model.states import State
from queue_core.runtime.clock import Clock
from sql.search_keys import texts
from sql.statements.entries import Statements
from sql.statements.ordered import Ordered, OrderKey

KEY_MARK, FAILURE_MARK = "!order", "!order_failure"
SKIP = "skip"

_REMOVED = Lane("!removed")
"""The lane of an entry that a caller's transaction has removed, until its key has a turn.

And of rows that stand for a turn which is put off.
"""


class Turn(Enum):
    """The result of a look at an order key."""

    GIVEN = "given"
    """Its first entry has started."""
    NONE = "none"
    """None may start now."""
    LATER = "later"
    """A transaction holds its first entry. A node is to look again."""


class Ordering:
    """The order keys of one main table."""

    mark = KEY_MARK

    def __init__(
        self, ordered: Ordered, entries: Statements, clock: Clock, *, nodes: ServingNodes
    ) -> None:
        self.statements = ordered
        self._entries = entries
        self._nodes = nodes
        self._clock = clock

    def key_of(self, queue_name: str, headers: str | None) -> OrderKey:
        """The key of an entry that carries the mark."""
        return OrderKey(self._entries.main.name, queue_name, order_key_of(headers))

    def start(self, connection: Connection, key: OrderKey) -> Turn:
        """Let the first entry of a key start, unless one may already.

        For a transaction of the library.
        """
        ordered = self.statements
        # Sought before one is made: on MariaDB and MySQL an INSERT that finds a head takes a shared
        # lock, and two that have such a lock each end in a deadlock when they lock the head.
        while not ordered.lock_head(connection, key):
            first = ordered.first(connection, key)
            if first is None or first.lane == WAITING_LANE:
                return Turn.NONE
            if not ordered.begin(connection, key, first.record_id):
                continue
            # Another head may have ended while this waited for its row.
            if ordered.first(connection, key) != first:
                ordered.end_head(connection, key, first.record_id)
                continue
            started = self._let_go(connection, first.record_id, first.lane)
            if started:
                return Turn.GIVEN
            ordered.end_head(connection, key, first.record_id)
            if started is None:
                self._put_off(connection, key, -first.record_id)
                return Turn.LATER
            # Somebody has deleted its row by hand.
            ordered.remove(connection, key.table_name, first.record_id)
        return Turn.NONE

    def _let_go(self, connection: Connection, record_id: int, lane: str) -> bool | None:
        """Let an entry be claimed; False if it doesn't wait, None if somebody holds it.

        That may be a transaction of a caller, which removes or changes it.
        """
        entries = self._entries
        if entries.lock_free(connection, ids=[record_id]):
            lane = self._nodes.lane(connection, lane)
            return entries.start_waiting(connection, record_id=record_id, lane=lane)
        return None if entries.live_ids(connection, ids=[record_id]) else False

    def _put_off(self, connection: Connection, key: OrderKey, record_id: int) -> None:
        """Have a node give a key its turn, as if an entry of this id had been removed.

        An id below zero stands for an entry that still lives.
        """
        if record_id not in self.statements.unstarted_in(connection, key, _REMOVED):
            self.enter(connection, [(key, record_id, _REMOVED)], unstarted=True)

    def begin_turn(self, connection: Connection, key: OrderKey) -> Turn:
        """As `start`, for entries that callers' transactions have changed."""
        for record_id in self.statements.unstarted_in(connection, key, _REMOVED):
            self.statements.remove(connection, key.table_name, record_id)
            self.statements.end_head(connection, key, record_id)
        # First: a commit after it has another turn.
        all_free = self.statements.started(connection, key)
        turn = self._resume(connection, key) or self.start(connection, key)
        return turn if all_free else Turn.LATER

    def _resume(self, connection: Connection, key: OrderKey) -> Turn | None:
        """Let the retry of the entry that holds a key start, if a caller's transaction made it."""
        head = self._held_head(connection, key)
        if head is not None and self.statements.lock_head(connection, key):
            head = self._held_head(connection, key)
        if head is None:
            return None
        retried = self._entries.successor(connection, head.record_id)
        # A retry may have been removed, and retried, before it had its turn.
        while retried is not None and retried.last_id is not None:
            retried = self._entries.successor(connection, retried.last_id)
        if retried is None or not retried.record_id:
            return None
        started = self._let_go(connection, retried.record_id, ANY_NODE)
        if started is None:
            self._put_off(connection, key, -retried.record_id)
            return Turn.LATER
        if started:
            self.statements.resume(connection, key, head.record_id, retried.record_id)
        return Turn.GIVEN if started else None

    def _held_head(self, connection: Connection, key: OrderKey) -> Row[Any] | None:
        head = self.statements.head(connection, key)
        return head if head is not None and head.held_since is not None else None

    def ended(self, connection: Connection, endings: Sequence[Ending], *, lent: bool) -> None:
        """See `Link.ended`."""
        keys = [self.key_of(one.entry.queue_name, one.entry.headers) for one in endings]
        # By key, as posts lock the heads of several.
        for key, (entry, state, _) in sorted(zip(keys, endings, strict=True), key=itemgetter(0)):
            record_id = entry.record_id
            if lent:
                self.statements.give_lane(
                    connection, key.table_name, record_id, _REMOVED, unstarted=True
                )
                continue
            kept = state is State.REMOVED and self.keeps(connection, record_id)
            self.statements.remove(connection, key.table_name, record_id)
            if state is State.FAILED and texts(entry.headers).get(FAILURE_MARK[1:]) != SKIP:
                self.statements.hold(connection, key, record_id, self._clock.now())
            elif kept:
                self.start(connection, key)
            else:
                self._go_on(connection, key, record_id)

    def _go_on(self, connection: Connection, key: OrderKey, record_id: int) -> None:
        if self.statements.end_head(connection, key, record_id):
            self.start(connection, key)

    def keeps(self, connection: Connection, record_id: int) -> bool:
        """Whether an entry has a place, but waits for others before its turn can come."""
        lane = self.statements.lane(connection, self._entries.main.name, record_id)
        return lane == WAITING_LANE

    def release(
        self, connection: Connection, record_id: int, lane: str, *, lent: bool = False
    ) -> None:
        """Let an entry have its turn, because it waits for others no longer.

        The turn comes with the next start of its key. `lent`: the transaction is a caller's, so a
        node starts the key.
        """
        table_name = self._entries.main.name
        self.statements.give_lane(connection, table_name, record_id, lane, unstarted=lent)

    def start_keys_of(self, connection: Connection, entries: Iterable[Row[Any] | Entry]) -> None:
        """Start the keys of those that carry the mark."""
        keys = {
            self.key_of(entry.queue_name, entry.headers)
            for entry in entries
            if carries(entry.headers, KEY_MARK)
        }
        for key in sorted(keys):  # as posts lock the heads of several
            self.start(connection, key)

    def discarded(self, connection: Connection, old: Entry, *, lent: bool) -> None:
        """See `Link.discarded`. The others go on."""
        key = self.key_of(old.queue_name, old.headers)
        self._pass_on(connection, key, old.record_id, lent=lent)

    def _pass_on(
        self, connection: Connection, key: OrderKey, record_id: int, *, lent: bool
    ) -> None:
        if lent:
            self._put_off(connection, key, record_id)
        else:
            self._go_on(connection, key, record_id)

    def let_go(self, connection: Connection, record_id: int, *, lent: bool) -> bool:
        """Let the others go on behind a failed entry that history no longer has.

        False if no key is held by it. `lent`: the connection is a caller's.
        """
        for row in self.statements.held(connection, self._entries.main.name):
            if row.record_id == record_id:
                key = OrderKey(row.table_name, row.queue_name, row.order_key)
                self._pass_on(connection, key, record_id, lent=lent)
                return True
        return False

    def retried(self, connection: Connection, retry: RetryByHand, *, lent: bool) -> None:
        """See `Link.retried`.

        The copy takes its place before the others, if its failure holds them, else behind them.
        """
        old, new_id = retry.old, retry.new_id
        key = self.key_of(old.queue_name, old.headers)
        # A caller's transaction locks no head: a node resumes the key.
        resumed = not lent and self.statements.resume(connection, key, old.record_id, new_id)
        self.enter(connection, [(key, new_id, ANY_NODE)], unstarted=lent)
        if not resumed:
            values = {"processing_state": State.WAITING.value, "lane": WAITING_LANE}
            self._entries.change(connection, record_id=new_id, values=values)
            if not lent:
                self.start(connection, key)

    def put_first(self, connection: Connection, record_id: int, *, lent: bool) -> None:
        """Let an entry run before all others of its key, if it has one, but for the head.

        For an entry that waits for nothing else. `lent`: the connection is a caller's, so a node
        starts the key.
        """
        table_name = self._entries.main.name
        for row in self.statements.places(connection, table_name, ids=[record_id]):
            self.statements.put_first(connection, row.place)
            if not lent:
                self.start(connection, OrderKey(table_name, row.queue_name, row.order_key))

    def renewed(self, connection: Connection, old: Entry, new_id: int) -> None:
        """See `Link.renewed`."""
        key = self.key_of(old.queue_name, old.headers)
        self.statements.renew(connection, key, old.record_id, new_id)

    def enter(
        self,
        connection: Connection,
        entries: Sequence[tuple[OrderKey, int, Lane]],
        *,
        unstarted: bool = False,
    ) -> None:
        """Enter entries by key, id and lane in the order of posting."""
        rows = [
            {**key._asdict(), "record_id": record_id, "lane": lane, "unstarted": unstarted}
            for key, record_id, lane in entries
        ]
        self.statements.add(connection, rows)


def order_key_of(headers: str | None) -> str:
    """The order key of an entry whose headers carry the mark."""
    return texts(headers).get(KEY_MARK[1:], "")
