"""The rows of keys that a post takes, all locked in their order.

A key that nobody has is locked by its insertion, which waits for transactions that have just taken
it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from datetime import datetime
from functools import partial
from typing import Any
from uuid import uuid4

from sqlalchemy import Connection, Row
from sqlalchemy.exc import DBAPIError

from queue_core.errors import KeyLockedError
from queue_core.links.hold import kept, later
from queue_core.links.keys import LOOK_SECONDS
from queue_core.posting.draft import Draft
from queue_core.posting.linked_post import LinkedPost
from queue_core.runtime.shown import shown
from sql.statements.key_shapes import KeyRow

KEY_WAIT_SECONDS = 5.0
"""The wait of a caller's transaction for others that have taken its key, unless he says so."""

TRIES = 100
"""The tries of a key that another's end frees at the same moment."""


class TakenKeys:
    """The keys that one post takes, in one transaction.

    `by_key`: its drafts that have a key.
    """

    def __init__(
        self, post: LinkedPost, drafts: Sequence[Draft], by_key: Mapping[str, Sequence[Draft]]
    ) -> None:
        self._post = post
        self._keys, self._table_name = post.store.keys.keys, post.store.keys.table_name
        self._drafts = drafts
        self._by_key = by_key
        capabilities = post.store.database.dialect.capabilities
        hurries = any(draft.posting.key_wait == 0 for draft in drafts)
        self._makes = (post.lent or hurries) and capabilities.waiters_deadlock
        """Whether keys are entered by a transaction apart."""
        self._taken_by = uuid4().hex
        self._complete = set[str]()
        """Keys that were taken with all that belongs to them."""
        self.ids_ahead = post.store.statements.capabilities.inserts_at_once
        """Whether a key is taken with the id of its entry; else the id is written afterwards."""

    def take(self, keys: Sequence[str], there: Sequence[str]) -> list[Row[Any]]:
        """Lock keys, and return the rows of those that others have. This post has taken the rest.

        `there`: those of them that somebody had.
        """
        with self._waiting(keys):
            rows = self._taken(keys, there)
        return [row for row in rows if row.taken_by != self._taken_by]

    def give(self, new: Mapping[str, Draft]) -> None:
        """Give keys to the entries that were inserted, by key."""
        rows = [self._row(key, draft) for key, draft in new.items() if key not in self._complete]
        if rows:
            self._keys.put(
                self._post.connection,
                self._table_name,
                self._post.queue_name,
                rows=rows,
                taken_by=self._taken_by,
                look=self._look,
            )

    def _taken(self, keys: Sequence[str], there: Sequence[str]) -> list[Row[Any]]:
        """The rows of keys, all locked. Those that nobody had are taken by this post.

        Rows that are `there` are locked first: an INSERT that finds them would lock the gaps
        before them as well, on InnoDB in REPEATABLE READ, and others could take no keys there.
        """
        if self._makes:
            self._make([key for key in keys if key not in set(there)])
            there = keys
        rows = self._keys.find(
            self._post.connection,
            self._table_name,
            self._post.queue_name,
            keys=there,
            lock=True,
            nowait=self._makes and self._seconds(keys) == 0,
        )
        found = {row.entry_key: row for row in rows}
        if self._makes and len(found) < len(keys):  # deleted this moment, since nobody had them
            raise self._key_locked(keys)
        for _ in range(TRIES):
            missing = [key for key in keys if key not in found]
            if not missing:
                break
            added = self._keys.add(
                self._post.connection,
                self._table_name,
                self._post.queue_name,
                rows=[self._row(key, self._by_key[key][0]) for key in missing],
                taken_by=self._taken_by,
                look=self._look,
            )
            if added is None:
                self._complete |= set(missing) if self.ids_ahead else set()
                break
            # A key that was there is not, if its entry has ended meanwhile.
            found |= {row.entry_key: row for row in added}
        else:
            raise self._key_locked(keys)
        self._complete |= {
            key for key, row in found.items() if row.taken_by == self._taken_by and row.record_id
        }
        return list(found.values())

    @property
    def _look(self) -> datetime:
        """When keys that are kept for a time are to be looked after first."""
        last = max(draft.row["effective_date"] for draft in self._drafts)
        return later(last, LOOK_SECONDS)

    def _row(self, key: str, draft: Draft) -> KeyRow:
        """A key as it belongs to the draft's entry."""
        record_id = draft.row.get("record_id") if draft.answer is None else draft.answer
        return KeyRow(key, record_id, *kept(draft.posting.keep))

    def _make(self, keys: Sequence[str]) -> None:
        """Commit rows of keys that nobody has, to be locked then.

        On InnoDB, of those who wait for a row that is being inserted, all but one are rolled back
        if that is. Those who wait for the lock of a row that is there get it one by one.
        """
        store = self._post.store

        def make(own: Connection) -> None:
            try:
                self._keys.make(
                    own,
                    self._table_name,
                    self._post.queue_name,
                    keys=keys,
                    taken_by=self._taken_by,
                    look=later(store.clock.now(), LOOK_SECONDS),
                )
            except DBAPIError as error:
                if not store.database.dialect.is_lock_refusal(error):
                    raise
                # Somebody has locked one that is there: the post waits for it in its own way.

        if keys:
            store.reaching(partial(store.database.write, make))

    def _seconds(self, keys: Sequence[str]) -> float | None:
        """The time for which the post may wait for others' transactions.

        None: as long as the library's transactions wait for any lock, for which nothing is to be
        set.
        """
        given = [
            draft.posting.key_wait
            for key in keys
            for draft in self._by_key[key]
            if draft.posting.key_wait is not None
        ]
        return max(given, default=KEY_WAIT_SECONDS if self._post.lent else None)

    @contextmanager
    def _waiting(self, keys: Sequence[str]) -> Iterator[None]:
        """Wait for others' transactions no longer than was asked for."""
        dialect = self._post.store.database.dialect
        seconds = self._seconds(keys)
        limited = (
            nullcontext() if seconds is None else dialect.lock_waits(self._post.connection, seconds)
        )
        try:
            with limited:
                yield
        except DBAPIError as error:
            if not dialect.is_lock_refusal(error):
                raise
            error.hide_parameters = True
            raise self._key_locked(keys) from error

    def _key_locked(self, keys: Sequence[str]) -> KeyLockedError:
        which = f"the key {shown(keys[0])}" if len(keys) == 1 else f"one of {len(keys)} keys"
        return KeyLockedError(
            f"{self._post.queue_name}: another open transaction has taken {which}. Nothing was "
            "written. Post again, or wait longer with key_wait.",
            queue_name=self._post.queue_name,
            key=keys[0] if len(keys) == 1 else None,
        )
