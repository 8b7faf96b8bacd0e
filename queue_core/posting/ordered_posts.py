"""Posts with order keys: all are inserted WAITING, and those whose turn it is start.

One that waits for other entries, besides, stands in the lane of such entries already.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from queue_core.links.ordering import FAILURE_MARK, KEY_MARK
from queue_core.model.lanes import WAITING_LANE, Lane
from queue_core.model.posting import OrderFailure, Posting
from queue_core.model.refusal import refused
from queue_core.model.states import State
from queue_core.posting.draft import Draft
from queue_core.posting.key_options import check_needed
from queue_core.posting.linked_post import LinkedPost
from queue_core.runtime.exact import exact_text
from queue_core.storage.arguments import storable_name
from sql.search_keys import with_marks
from sql.statements.ordered import OrderKey
from sql.tables import ORDER_KEY_LENGTH

FAILURES = get_args(OrderFailure)


def check_order(queue_name: str, postings: Sequence[Posting]) -> None:
    """Check the options of a post that are about order keys. Raises InvalidPostError."""
    for posting in postings:
        if posting.order_key is None:
            check_needed(queue_name, posting, "order_key", "order_failure")
            continue
        storable_name(posting.order_key, "order_key", limit=ORDER_KEY_LENGTH, queue_name=queue_name)
        if exact_text(posting.order_failure) not in FAILURES:
            raise refused(queue_name, "order_failure", posting.order_failure, "hold or skip")
        if posting.key is not None and posting.on_conflict in {"requeue", "debounce"}:
            # Its successor is made when the running entry ends, and would stand at another place.
            raise refused(
                queue_name,
                "on_conflict",
                posting.on_conflict,
                "return, raise or replace, with an order_key",
            )


class OrderedPosts:
    """The order keys of one post, in one transaction: `before` the insertion, and after.

    A caller's transaction must not wait for others who post with a key. So its keys start once it
    has committed.
    """

    def __init__(self, post: LinkedPost, drafts: Sequence[Draft]) -> None:
        self._post = post
        self._ordering = post.store.ordering
        table = post.store.config.table
        self._ordered = [
            (draft, OrderKey(table, post.queue_name, draft.posting.order_key))
            for draft in drafts
            if draft.posting.order_key is not None
        ]
        self._lanes = list[Lane]()

    def before(self) -> None:
        """Let the rows stand for entries that wait."""
        for draft, key in self._ordered:
            self._lanes.append(Lane(draft.row["lane"]))
            marks = {KEY_MARK: key.order_key, FAILURE_MARK: draft.posting.order_failure}
            draft.row = {
                **draft.row,
                "headers": with_marks(draft.row["headers"], marks),
                "lane": WAITING_LANE,
                "processing_state": State.WAITING.value,
            }

    def after(self) -> None:
        """Enter the inserted entries, and start those that may."""
        entered = [
            (key, draft.record_id, lane)
            for (draft, key), lane in zip(self._ordered, self._lanes, strict=True)
        ]
        if not entered:
            return
        self._ordering.enter(self._post.connection, entered, unstarted=self._post.lent)
        if not self._post.lent:
            for key in sorted({key for key, _, _ in entered}):
                self._ordering.start(self._post.connection, key)
