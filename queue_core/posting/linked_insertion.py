"""The insertion of postings of which some have links, such as an order key.

It takes more than one statement, so it leaves the way of all other posts, which are one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

from sqlalchemy import Connection

from queue_core.errors import InvalidPostError
from queue_core.links.ordering import FAILURE_MARK, KEY_MARK
from queue_core.model.entry import OrderFailure, Posting, State
from queue_core.model.lanes import ANY_NODE, WAITING_LANE, Lane
from queue_core.posting.waiting_posts import WaitingPosts
from queue_core.runtime.shown import shown
from queue_core.storage.rows import name
from queue_core.storage.store import Store
from sql.search_keys import marked
from sql.statements.ordered import OrderKey
from sql.tables import ORDER_KEY_LENGTH


class LinkedInsertion:
    """The rows of one post, which are marked here: they stand for the entries as they wait."""

    def __init__(
        self,
        store: Store,
        queue_name: str,
        postings: Sequence[Posting],
        rows: Sequence[dict[str, Any]],
    ) -> None:
        self._store = store
        self._rows = rows
        self._lanes = [Lane(row["lane"]) for row in rows]
        self._keys = [_order_key(store.config.table, queue_name, posting) for posting in postings]
        self._waiting = WaitingPosts(store, queue_name, postings)
        self.written: list[int] = []
        """The ids that a COMMIT without answer may have written."""
        self.started: set[Lane] = set()
        """The lanes of the entries that may be claimed after the COMMIT."""
        for row, posting, key in zip(rows, postings, self._keys, strict=True):
            if posting.after:
                row["lane"], row["processing_state"] = WAITING_LANE, State.WAITING.value
                continue
            if key is None:
                self.started.add(Lane(row["lane"]))
                continue
            marks = {KEY_MARK: key.order_key, FAILURE_MARK: posting.order_failure}
            row["headers"] = marked(row["headers"], marks)
            row["lane"], row["processing_state"] = WAITING_LANE, State.WAITING.value

    def insert(self, connection: Connection) -> list[int]:
        """Insert the rows in a transaction of our own; each key that may starts at once."""
        ids = self._insert(connection, unstarted=False)
        if self._waiting.attend(connection):
            self.started.add(ANY_NODE)
        for key in sorted({key for key in self._keys if key is not None}):
            lane = self._store.ordering.start(connection, key)
            if lane is not None:
                self.started.add(lane)
        return ids

    def insert_inside(self, connection: Connection) -> list[int]:
        """Insert the rows in a caller's transaction, which must not wait for others.

        So the keys start once it has committed.
        """
        return self._insert(connection, unstarted=True)

    def _insert(self, connection: Connection, *, unstarted: bool) -> list[int]:
        self._waiting.check(connection, lent=unstarted)
        self.written[:] = ids = self._store.insert(connection, self._rows)
        self._waiting.enter(connection, ids, self._lanes)
        entered = [
            (key, record_id, lane)
            for key, record_id, lane in zip(self._keys, ids, self._lanes, strict=True)
            if key is not None
        ]
        if entered:
            self._store.ordering.enter(connection, entered, unstarted=unstarted)
        return ids


def _order_key(table: str, queue_name: str, posting: Posting) -> OrderKey | None:
    """The order key of a posting. Raises InvalidPostError."""
    if posting.order_key is None:
        return None
    if posting.order_failure not in get_args(OrderFailure):
        raise InvalidPostError(
            f"{queue_name}: order_failure={shown(posting.order_failure)} is not allowed: hold or skip. "
            "Nothing was written.",
            queue_name=queue_name,
            key="order_failure",
        )
    text = name(posting.order_key, "order_key", limit=ORDER_KEY_LENGTH, queue_name=queue_name)
    if not text:
        raise InvalidPostError(
            f"{queue_name}: order_key is an empty text. Nothing was written; leave it out for an event without order.",
            queue_name=queue_name,
            key="order_key",
        )
    return OrderKey(table, queue_name, text)
