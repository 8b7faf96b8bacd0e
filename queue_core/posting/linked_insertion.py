"""The insertion of postings that have links: what each kind does before it and after it.

It is one transaction with the insertion, the caller's or our own. What an exception cuts off
anywhere is undone as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection

from queue_core.model.entry import Posting
from queue_core.runtime.callers import CallersConnection
from queue_core.storage.store import Store


class Draft:
    """A posting on its way into the table."""

    def __init__(self, posting: Posting, row: dict[str, Any]) -> None:
        self.posting = posting
        self.row: dict[str, Any] | None = row
        """The row to insert, which a step may change. None: nothing is inserted."""
        self.record_id: int | None = None
        """The answer of the post: the new id, or another one that a step has found instead."""


class LinkedInsertion:
    """Inserts postings of one bus or service, some of which have links."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def write(
        self,
        given: CallersConnection | None,
        queue_name: str,
        postings: Sequence[Posting],
        rows: Sequence[dict[str, Any]],
    ) -> tuple[list[int], datetime | None]:
        """As `insert`, in the transaction of the caller's connection if one is given.

        Else in one of our own, which may run again: nothing that it does outlives an attempt.
        """

        def work(connection: Connection) -> tuple[list[int], datetime | None]:
            return self.insert(connection, queue_name, postings, rows)

        return self._store.write(given, queue_name, work)

    def insert(
        self,
        connection: Connection,
        queue_name: str,
        postings: Sequence[Posting],
        rows: Sequence[dict[str, Any]],
    ) -> tuple[list[int], datetime | None]:
        """Write `postings`, whose rows are `rows`.

        Returns:
            The ids, in order, and the earliest date of what is new or changed; None if nothing is.
        """
        drafts = [Draft(posting, dict(row)) for posting, row in zip(postings, rows, strict=True)]
        # Steps before the insertion stand here.
        written = [draft for draft in drafts if draft.row is not None]
        ids = self._store.insert(connection, [draft.row for draft in written if draft.row])
        for draft, record_id in zip(written, ids, strict=True):
            draft.record_id = record_id
        # Steps after it stand here.
        dates = [draft.row["effective_date"] for draft in written if draft.row]
        return [draft.record_id for draft in drafts if draft.record_id is not None], min(
            dates, default=None
        )
