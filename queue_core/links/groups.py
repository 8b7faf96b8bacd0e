"""Groups: entries that are counted together, and callbacks once all of them have ended.

A member's mark holds the id of its group. The transaction in which members end counts them in the
row of the group's ends. Two such transactions meet there, and the one that finds the group complete
posts its callbacks. This row is locked last, and in short transactions of the library only, so that
nobody waits for it for long.

Changes of a group by callers' transactions stand in its other row. Posts may wait for that one, but
no outcome does: it is read without a lock. The end of a member at the same time may not see them
before the commit, so a node looks at the group afterwards.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import msgspec
from sqlalchemy import Connection, Row

from queue_core.links.following import Following
from queue_core.links.link import Ending, RetryByHand
from queue_core.model.entry import Entry
from queue_core.model.states import State
from queue_core.runtime.clock import Clock
from sql.search_keys import RESERVED, texts, with_marks
from sql.statements.entries import Statements
from sql.statements.groups import Ended, Groups

GROUP_MARK = RESERVED + "group"
"""The mark of a member. Its text is the group's id."""
GROUP_HEADER = "group_id"
"""The header that tells a callback's handler which group it is about."""

LOOK_BATCH = 100
"""Groups that one transaction looks at, or deletes."""
KEPT = timedelta(days=30)
"""The time for which a complete group can be read."""

_LONGEST_ID = len(str(2**63))

_COUNTS = {State.PROCESSED: "succeeded", State.FAILED: "failed", State.REMOVED: "cancelled"}
"""By the state in which a member has ended, where it is counted."""


class Callbacks(msgspec.Struct, omit_defaults=True):
    """The entries to post when a group is complete."""

    on_succeeded: Following | None = None
    on_failed: Following | None = None
    on_finished: Following | None = None

    @property
    def encoded(self) -> str | None:
        """The value of their column; None if there are none."""
        return msgspec.json.encode(self).decode() if self != Callbacks() else None


class GroupLink:
    """The groups of one main table, as their members come and go."""

    mark = GROUP_MARK

    def __init__(self, groups: Groups, entries: Statements, clock: Clock) -> None:
        self.statements = groups
        self._entries = entries
        self._clock = clock
        self._table = entries.main.name

    # -- ends of members --------------------------------------------------------------------------

    def ended(self, connection: Connection, endings: Sequence[Ending], *, lent: bool) -> None:
        """See `Link.ended`."""
        counts = dict[int, Counter[str]]()
        # Members posted together have the same headers, which are read once.
        alike = Counter((entry.headers, state) for entry, state, _ in endings)
        for (headers, state), members in alike.items():
            group_id = group_of(headers)
            if group_id is not None:
                counts.setdefault(group_id, Counter())[_COUNTS[state]] += members
        if lent:
            for row in self._incomplete(connection, list(counts)):
                self.statements.adjust(
                    connection, row.group_id, counts[row.group_id], look=self._clock.now()
                )
        elif counts:
            ended = [Ended(group_id, **counts[group_id]) for group_id in sorted(counts)]
            self.statements.end(connection, ended)
            self._complete(connection, list(counts))

    def retried(self, connection: Connection, retry: RetryByHand, *, lent: bool) -> None:
        """See `Link.retried`. The member lives again; beside one that lives, it is a further one.

        A group that is complete stays so.
        """
        del lent
        group_id = group_of(retry.old.headers)
        for row in self._incomplete(connection, [] if group_id is None else [group_id]):
            more = {"total": 1} if retry.before is None else {_COUNTS[retry.before]: -1}
            self.statements.adjust(connection, row.group_id, more, look=None)

    def discarded(self, connection: Connection, old: Entry, *, lent: bool) -> None:
        """See `Link.discarded`. It is counted as failed already."""

    def renewed(self, connection: Connection, old: Entry, new_id: int) -> None:
        """See `Link.renewed`. The copy is the same member."""

    def _incomplete(self, connection: Connection, ids: Sequence[int]) -> list[Row[Any]]:
        """Those of the groups that are there and not complete."""
        found = self.statements.read(connection, ids)
        return [row for row in found if row.completed_date is None]

    # -- completion -------------------------------------------------------------------------------

    def seal(self, connection: Connection, group_id: int, *, lent: bool) -> bool:
        """Seal a group that is there; False if it is sealed already.

        `lent`: the connection is the caller's, so that a node sees whether it is complete.
        """
        now = self._clock.now()
        newly = self.statements.seal(connection, group_id, now, look=now if lent else None)
        if not lent:
            self.statements.lock_ends(connection, [group_id])
            self._complete(connection, [group_id])
        return newly

    def _complete(self, connection: Connection, ids: Sequence[int]) -> None:
        """Complete those groups that are sealed and of which no member lives.

        For a transaction that has locked their ends.
        """
        now = self._clock.now()
        for row in self.statements.completable(connection, ids):
            ended = counts_of(row)
            self.statements.complete(connection, ended, now)
            following = [one.row(row.queue_name, now) for one in _callbacks(row, ended)]
            if following:
                self._entries.insert(connection, following)

    # -- looks ------------------------------------------------------------------------------------

    def are_due(self, connection: Connection) -> bool:
        """Whether there is anything to `look` at."""
        return self.statements.are_due(connection, self._table, now=self._clock.now())

    def look(self, connection: Connection) -> int:
        """See whether groups are complete that callers' transactions have changed.

        In a transaction of the library. Returns their number.
        """
        now = self._clock.now()
        ids = self.statements.lock_due(connection, self._table, now=now, limit=LOOK_BATCH)
        if ids:
            self.statements.lock_ends(connection, ids)
            self._complete(connection, ids)
            self.statements.looked(connection, ids)
        return len(ids)

    def are_old(self, connection: Connection) -> bool:
        """Whether there is anything to `forget`."""
        return bool(self._old(connection, limit=1))

    def forget(self, connection: Connection) -> int:
        """Delete groups that have been complete for long, and return how many."""
        ids = self._old(connection, limit=LOOK_BATCH)
        self.statements.remove(connection, ids)
        return len(ids)

    def _old(self, connection: Connection, limit: int) -> list[int]:
        before = self._clock.now() - KEPT
        return self.statements.completed_before(connection, self._table, before=before, limit=limit)


def group_of(headers: str | None) -> int | None:
    """The id of the group of which an entry with these headers is a member."""
    text = texts(headers).get(GROUP_MARK.removeprefix(RESERVED), "")
    # A row by hand may have anything there.
    return int(text) if text.isascii() and text.isdecimal() and len(text) < _LONGEST_ID else None


def counts_of(row: Row[Any]) -> Ended:
    """The number of members of a group that have ended, by both its rows."""
    if row.completed_date is not None:  # a retry may have changed the other row since
        return Ended(row.group_id, row.ended_succeeded, row.ended_failed, row.ended_cancelled)
    return Ended(
        row.group_id,
        row.succeeded + row.ended_succeeded,
        row.failed + row.ended_failed,
        row.cancelled + row.ended_cancelled,
    )


def _callbacks(row: Row[Any], ended: Ended) -> Iterator[Following]:
    """The entries to post for a group that is complete."""
    if row.callbacks is None:
        return
    callbacks = msgspec.json.decode(row.callbacks, type=Callbacks)
    outcome = callbacks.on_failed if ended.failed or ended.cancelled else callbacks.on_succeeded
    for following in (outcome, callbacks.on_finished):
        if following is not None:
            headers = with_marks(following.headers, {GROUP_HEADER: str(row.group_id)})
            yield msgspec.structs.replace(following, headers=headers)
