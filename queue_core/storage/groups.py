"""The groups of one main table, as they are stored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

from sqlalchemy import Connection, Row
from sqlalchemy.exc import DBAPIError

from queue_core.errors import GroupLockedError, GroupNotFoundError, GroupSealedError
from queue_core.links.groups import Callbacks, counts_of
from queue_core.model.group import GroupStatus
from queue_core.runtime.callers import CallersConnection
from queue_core.storage.store import Store

COUNT_LIMIT = 10_000
"""Groups that are counted at most: a scrape of the metrics has to be cheap."""
WAIT_SECONDS = 5.0
"""The wait of a post or a seal for another transaction that has posted into the group."""


class StoredGroups:
    """Reads and changes for one queue, in the caller's transaction or in one of the library.

    Without a name, reads for any queue of the table.
    """

    def __init__(self, store: Store, queue_name: str | None = None) -> None:
        self._store = store
        self._queue_name = queue_name or store.config.table
        self._statements = store.groups.statements

    def open(
        self,
        name: str | None,
        callbacks: Callbacks,
        creator: str,
        callers: CallersConnection | None = None,
    ) -> int:
        """Add a group without members, and return its id."""
        values = {
            "table_name": self._store.config.table,
            "queue_name": self._queue_name,
            "group_name": name,
            "created_by": creator,
            "created_date": self._store.now(callers),
            "callbacks": callbacks.encoded,
        }
        return self._store.write(
            callers, self._queue_name, partial(self._statements.open, values=values)
        )

    def seal(self, group_id: int, callers: CallersConnection | None = None) -> bool:
        """Seal a group; False if it is sealed.

        Raises GroupNotFoundError or GroupLockedError.
        """
        lent, dialect = callers is not None, self._store.database.dialect

        def work(connection: Connection) -> bool:
            self.rows(connection, [group_id], lent=lent)
            # In a savepoint: a refusal leaves the caller's transaction as it was.
            part = dialect.part(connection) if lent else nullcontext()
            with part, self.waiting(connection, group_id):
                return self._store.groups.seal(connection, group_id, lent=lent)

        return self._store.write(callers, self._queue_name, work)

    def status(self, group_id: int, callers: CallersConnection | None = None) -> GroupStatus:
        """The state of a group. Raises GroupNotFoundError."""

        def work(connection: Connection) -> GroupStatus:
            [row] = self.rows(connection, [group_id], lent=False)
            return status_of(row)

        return self._store.read(callers, self._queue_name, work)

    def newest(
        self, *, queue_name: str | None = None, incomplete: bool = False, limit: int | None = None
    ) -> list[GroupStatus]:
        """The groups of the table, the newest first: of a queue if given, or not complete."""

        def work(connection: Connection) -> list[GroupStatus]:
            rows = self._statements.newest(
                connection,
                self._store.config.table,
                queue_name=queue_name,
                incomplete=incomplete,
                limit=limit,
            )
            return [status_of(row) for row in rows]

        return self._store.read(None, self._queue_name, work)

    @contextmanager
    def waiting(self, connection: Connection, group_id: int) -> Iterator[None]:
        """Wait in this block for other transactions that have changed a group, and not for long.

        Raises GroupLockedError.
        """
        dialect = self._store.database.dialect
        try:
            with dialect.lock_waits(connection, WAIT_SECONDS):
                yield
        except DBAPIError as error:
            if not dialect.is_lock_refusal(error):
                raise
            raise GroupLockedError(
                f"{self._queue_name}: another transaction, which is still open, has posted into "
                f"group {group_id}. Nothing was written. Try again once it has ended.",
                queue_name=self._queue_name,
                group_id=group_id,
            ) from error

    def rows(self, connection: Connection, ids: Sequence[int], *, lent: bool) -> list[Row[Any]]:
        """Groups of this table by ascending id. Raises GroupNotFoundError if one is missing.

        `lent`: the connection is the caller's, whose transaction may not see the newest ones.
        """
        found = self._found(connection, ids)
        missing = sorted(set(ids) - found.keys())
        if missing and lent and not self._store.database.dialect.capabilities.one_writer:
            found |= self._store.database.fetch(lambda ours: self._found(ours, missing))
            missing = sorted(set(ids) - found.keys())
        if missing:
            raise not_found(
                missing[0], tables=self._store.config.table, queue_name=self._queue_name
            )
        return [found[group_id] for group_id in sorted(found)]

    def _found(self, connection: Connection, ids: Sequence[int]) -> dict[int, Row[Any]]:
        table = self._store.config.table
        rows = self._statements.read(connection, ids)
        return {row.group_id: row for row in rows if row.table_name == table}


def incomplete_groups(store: Store) -> int:
    """The number of incomplete groups of a table, counted up to `COUNT_LIMIT`."""
    return store.database.fetch(
        lambda connection: store.groups.statements.incomplete(
            connection, store.config.table, limit=COUNT_LIMIT
        )
    )


def status_of(row: Row[Any]) -> GroupStatus:
    """The state of a group by its rows."""
    ended = counts_of(row)
    return GroupStatus(
        table=row.table_name,
        queue_name=row.queue_name,
        group_id=row.group_id,
        name=row.group_name,
        created_by=row.created_by,
        created_date=row.created_date,
        sealed_date=row.sealed_date,
        completed_date=row.completed_date,
        total=row.total,
        succeeded=ended.succeeded,
        failed=ended.failed,
        cancelled=ended.cancelled,
    )


def not_found(group_id: int, *, tables: str, queue_name: str | None = None) -> GroupNotFoundError:
    """The error of a call about a group that is not there; of a write into `queue_name`."""
    subject, written = (f"{queue_name}: ", " Nothing was written.") if queue_name else ("", "")
    return GroupNotFoundError(
        f"{subject}there is no group {group_id} in {tables}.{written} Perhaps the transaction that "
        "opened it has not committed, or it was complete long ago.",
        queue_name=queue_name,
        group_id=group_id,
    )


def sealed(queue_name: str, group_id: int) -> GroupSealedError:
    """The error of a post into a sealed group."""
    return GroupSealedError(
        f"{queue_name}: group {group_id} is sealed: it takes no further members. Nothing was "
        "written. Post before it is sealed, or open another one.",
        queue_name=queue_name,
        group_id=group_id,
    )
