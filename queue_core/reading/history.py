"""The history of a queue: its entries that have ended.

Audits search it. Users retry or discard its entries.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import nullcontext
from datetime import datetime
from typing import TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from queue_core.errors import EntryNotChangeableError, EntryNotFoundError
from queue_core.links.link import RetryByHand
from queue_core.model.entry import Entry
from queue_core.model.lanes import ANY_NODE
from queue_core.model.states import State
from queue_core.runtime.callers import CallersConnection
from queue_core.storage.arguments import flag, storable_integer
from queue_core.storage.filter import Filter
from queue_core.storage.progress import succeeded
from queue_core.storage.store import Store
from sql.statements.history import Successor

T = TypeVar("T")

REPEATABLE = (State.FAILED, State.REMOVED)
"""States of entries that may be tried again."""


class History:
    """The history of one queue (`queue_name`), or of the table (None)."""

    def __init__(self, store: Store, queue_name: str | None) -> None:
        self._store = store
        self._queue_name = queue_name
        self._label = queue_name or store.config.history_table

    def find(
        self,
        wanted: Filter,
        *,
        limit: int | None = None,
        newest_first: bool = False,
        connection: CallersConnection | None = None,
    ) -> list[Entry]:
        """Entries of history that are wanted, by ascending id (or the newest first)."""
        where = wanted.conditions(self._queue_name)
        limit = None if limit is None else storable_integer(limit, "limit", least=0)
        return self._store.read(
            connection,
            self._label,
            lambda inner: self._store.find(
                inner, past=True, where=where, limit=limit, newest_first=newest_first
            ),
        )

    def retry(
        self,
        record_id: int,
        *,
        all_subscribers: bool = False,
        force: bool = False,
        connection: CallersConnection | None = None,
    ) -> int:
        """Post a FAILED or REMOVED entry again, for any node.

        The new entry begins a new chain. Its `replay_of` is the former one. If retries of that one
        ended FAILED or REMOVED, the last of them is retried in its place. Subscribers that had
        succeeded run only with `all_subscribers`. The call refuses an entry whose last retry has
        ended otherwise, or lives, unless `force`. Of two calls at once, one wins. The new entry has
        the key of the former one. If another entry has that key, `force` posts without it.

        Returns:
            The id of the new entry.

        Raises:
            EntryNotFoundError: History has no such entry.
            EntryNotChangeableError: The entry ended otherwise, or was retried before.
            DuplicateKeyError: Another entry has the key.
        """
        record_id = storable_integer(record_id, "record_id")
        all_subscribers, force = flag(all_subscribers, "all_subscribers"), flag(force, "force")
        now = self._store.now(connection)

        part = self._store.database.dialect.part

        def work(inner: Connection) -> int:
            # Of the caller's transaction it is a part, which an error undoes.
            with nullcontext() if connection is None else part(inner):
                return self.retry_inside(
                    inner,
                    record_id,
                    now,
                    all_subscribers=all_subscribers,
                    force=force,
                    lent=connection is not None,
                )

        return self._in_turn(record_id, work, connection)

    def retry_inside(
        self,
        connection: Connection,
        record_id: int,
        now: datetime,
        *,
        all_subscribers: bool,
        force: bool = False,
        lent: bool = False,
    ) -> int:
        """As `retry`, in a transaction, which may be a caller's (`lent`).

        Raises IntegrityError if another call has won just now.
        """
        statements = self._store.statements
        done = self._ended(connection, record_id, REPEATABLE, "tried again")
        last_try, last = record_id, statements.successor(connection, record_id)
        # A later try's successes must not run again, and no second try may begin beside it.
        while last is not None and last.last_id is not None and last.state in REPEATABLE:
            last_try = last.last_id
            done = self._ended(connection, last_try, REPEATABLE, "tried again")
            last = statements.successor(connection, last_try)
        if last is not None and last.record_id and not force:
            raise self._tried_again(record_id, last)
        if not statements.take_turn(connection, last_try, last and last.record_id, now):
            raise self._tried_again(record_id)
        kept = None if all_subscribers else succeeded(done)
        new_id = statements.replay(connection, last_try, lane=ANY_NODE, now=now, progress=kept)
        for entry in self._entry(connection, last_try):
            retry = RetryByHand(entry, new_id, _before(entry, last), force)
            self._store.links.retried(connection, retry, lent=lent)
        return new_id

    def discard(self, record_id: int, *, connection: CallersConnection | None = None) -> bool:
        """Count a FAILED entry among the dead letters no more.

        The entry stays in history as it is. It may still be retried. An order key that it holds
        goes on, also if it was deleted from history.

        Returns:
            False if it was discarded before.

        Raises:
            EntryNotFoundError: History has no such entry.
            EntryNotChangeableError: The entry ended otherwise, or was retried. Its last retry is
                the dead letter then.
        """
        record_id = storable_integer(record_id, "record_id")
        now = self._store.now(connection)
        lent = connection is not None
        return self._in_turn(
            record_id,
            lambda inner: self.discard_inside(inner, record_id, now, lent=lent),
            connection,
        )

    def discard_inside(
        self, connection: Connection, record_id: int, now: datetime, *, lent: bool = False
    ) -> bool:
        """As `discard`, in a transaction, which may be a caller's; raises as `retry_inside`."""
        statements, ordering = self._store.statements, self._store.ordering
        if statements.ended_as(connection, record_id) is None and ordering.let_go(
            connection, record_id, lent=lent
        ):
            return True
        self._ended(connection, record_id, (State.FAILED,), "discarded")
        last = statements.successor(connection, record_id)
        if last is not None and last.record_id:
            raise self._tried_again(record_id, last)
        # A turn that posts nothing.
        if last is not None or not statements.take_turn(connection, record_id, None, now):
            return False
        for entry in self._entry(connection, record_id):
            self._store.links.discarded(connection, entry, lent=lent)
        return True

    def _entry(self, connection: Connection, record_id: int) -> list[Entry]:
        """The entry of this id."""
        return self._store.search(
            connection, past=True, where=lambda table: [table.c.record_id == record_id]
        )

    def _ended(
        self, connection: Connection, record_id: int, states: Collection[State], done: str
    ) -> str | None:
        """The `subscribers_done` of an entry that has ended in one of `states`.

        Raises EntryNotFoundError, or EntryNotChangeableError for another state.
        """
        ended = self._store.statements.ended_as(connection, record_id)
        if ended is None:
            raise EntryNotFoundError(
                f"{self._label}: there is no entry {record_id} in history. Nothing was written. It "
                f"may be live: stickybus entries show {record_id} --table "
                f"{self._store.config.table}",
                record_id=record_id,
            )
        state, subscribers_done = ended
        if state not in states:
            raise EntryNotChangeableError(
                f"{self._label}: entry {record_id} is {state}; only {' and '.join(states)} ones "
                f"can be {done}. Nothing was written.",
                record_id=record_id,
                state=state,
            )
        return subscribers_done

    def _in_turn(
        self, record_id: int, work: Callable[[Connection], T], connection: CallersConnection | None
    ) -> T:
        """Run work that takes the turn of an entry."""
        try:
            return self._store.write(connection, self._label, work)
        except IntegrityError as error:
            raise self._tried_again(record_id) from error

    def _tried_again(
        self, record_id: int, last: Successor | None = None
    ) -> EntryNotChangeableError:
        how = (
            f"as {last.record_id}, which {_how_it_is(last.state)}"
            if last
            else "by another call just now"
        )
        return EntryNotChangeableError(
            f"{self._label}: entry {record_id} was tried again {how}. Nothing was written; to run "
            "it once more all the same, retry it with force=True (--force).",
            record_id=record_id,
        )


def _how_it_is(state: str | None) -> str:
    return "has not ended, or is no longer in history" if state is None else f"is {state}"


def _before(entry: Entry, last: Successor | None) -> State | None:
    """The end of the last try of an entry before a retry; None if it lives, or is not known."""
    if last is None or not last.record_id:
        return entry.processing_state
    state = None if last.state is None else State(last.state)
    return None if state is State.REAPED else state
