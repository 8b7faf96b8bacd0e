"""The insertion of postings that have links: the steps of each kind before it and after it.

It is one transaction with the insertion, the caller's or our own. Of the caller's it is a part that
is undone as a whole, so that an exception anywhere leaves his transaction as it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Connection

from queue_core.model.posting import Posting
from queue_core.posting.draft import Draft
from queue_core.posting.grouped_posts import GroupedPosts
from queue_core.posting.keyed_posts import KeyedPosts
from queue_core.posting.linked_post import LinkedPost
from queue_core.posting.ordered_posts import OrderedPosts
from queue_core.posting.waiting_posts import WaitingPosts
from queue_core.runtime.callers import CallersConnection
from queue_core.storage.store import Store


class Inserted(NamedTuple):
    """The result of a post with links."""

    ids: list[int]
    """The answers, in order."""
    earliest: datetime | None
    """The first date of new or changed entries; None if there are none."""


class LinkedInsertion:
    """Inserts postings of one bus or service, some of which have links."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def write(
        self,
        callers: CallersConnection | None,
        queue_name: str,
        postings: Sequence[Posting],
        rows: Sequence[dict[str, Any]],
    ) -> Inserted:
        """Write `postings`, which were checked, and whose rows are `rows`.

        In the transaction of the caller's connection if there is one, else in one of its own.
        """
        dialect = self._store.database.dialect

        def work(connection: Connection) -> Inserted:
            with nullcontext() if callers is None else dialect.part(connection):
                # Anew in each run: a transaction of the library may run again.
                drafts = list(map(Draft, postings, rows))
                post = LinkedPost(self._store, connection, queue_name, callers is not None)
                return self._insert(post, drafts)

        return self._store.write(callers, queue_name, work)

    def _insert(self, post: LinkedPost, drafts: Sequence[Draft]) -> Inserted:
        keys = KeyedPosts(post, drafts)
        keys.before()
        fresh = [draft for draft in drafts if draft.inserts]
        order = OrderedPosts(post, fresh)
        waits = WaitingPosts(post, fresh)
        groups = GroupedPosts(post, fresh)
        groups.before()
        waits.before()
        order.before()  # in the places of those that wait, too
        ids = self._store.insert(post.connection, [draft.row for draft in fresh])
        for draft, record_id in zip(fresh, ids, strict=True):
            draft.answer = record_id
        groups.after()  # before the order keys, for whose rows outcomes may wait
        keys.after()
        order.after()
        waits.after()
        dates = [draft.row["effective_date"] for draft in fresh]
        dates += [draft.changed for draft in drafts if draft.changed is not None]
        answers = [draft.answer for draft in drafts if draft.answer is not None]
        return Inserted(answers, min(dates, default=None))
