"""Posting: from postings to committed rows, in a transaction of its own or in the caller's.

In our own, the COMMIT that returned proves the rows, and sticky events go to the pool from memory.
In the caller's no event proves anything: `storage.callers_connection` announces the end of the
transaction, and then the claim loop looks the rows up (`announced_commits`). An entry with a date
is only expected: the claimer looks for it then. A process that doesn't run as a node posts into the
lane of any node.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from time import perf_counter
from typing import Any, TypeAlias

import msgspec
from sqlalchemy import Connection

from queue_core.claiming.claimer import Claimer
from queue_core.claiming.hint_sender import HintSender
from queue_core.claiming.limited_keys import LimitedKeys
from queue_core.claiming.repeated_look import RepeatedLook
from queue_core.cluster.process_nodes import name_of
from queue_core.holding.holdings import Holdings
from queue_core.metrics import Metrics
from queue_core.model.lanes import ANY_NODE
from queue_core.model.mode import Mode
from queue_core.model.posting import PLAIN, Posting
from queue_core.posting.announced_commits import AnnouncedCommits
from queue_core.posting.checks import checked
from queue_core.posting.insertion import Insertion
from queue_core.posting.linked_insertion import LinkedInsertion
from queue_core.posting.posted_hand_over import PostedHandOver
from queue_core.runtime.callers import CallersConnection
from queue_core.runtime.middleware import Around, chained


class Post(msgspec.Struct, frozen=True):
    """One call of `Poster.post`."""

    queue_name: str
    postings: Sequence[Posting]
    connection: CallersConnection | None


AroundPost: TypeAlias = Around[Post, list[int]]
"""Middleware around each post: gets the rest of the chain and the post, and returns the ids.

In a caller's transaction the post has not committed when the rest returns.
"""


class Poster:
    """Posts for one bus or service.

    `around_post`: middleware, the first one outermost.
    """

    def __init__(
        self,
        holdings: Holdings,
        claimer: Claimer,
        hand_over: PostedHandOver,
        announced: AnnouncedCommits,
        *,
        ordered: RepeatedLook,
        linked_looks: RepeatedLook,
        limited_keys: LimitedKeys,
        hints: HintSender,
        metrics: Metrics,
        around_post: Sequence[AroundPost] = (),
    ) -> None:
        self._holdings = holdings
        self._store = holdings.store
        self._config = holdings.config
        self._hand_over = hand_over
        self._announced = announced
        self._ordered = ordered
        self._linked_looks = linked_looks
        self._limited_keys = limited_keys
        self._claimer = claimer
        self._hints = hints
        self._metrics = metrics
        self._linked_insertion = LinkedInsertion(holdings.store)
        self._chain = chained(self._write, around_post)

    @property
    def creator(self) -> str:
        """The poster: the node, or its name in a process that doesn't run as one."""
        return self._holdings.name or name_of(self._config)

    def post(
        self,
        queue_name: str,
        postings: Sequence[Posting],
        connection: CallersConnection | None = None,
    ) -> list[int]:
        """Write `postings` and return their ids, in order.

        They are written in the transaction of the caller's `connection` if there is one, else in
        one of its own. Raises InvalidPostError or PayloadError before anything is written, and any
        error of the database after that transaction was rolled back.
        """
        self._store.check_process()
        if not postings:
            return []
        return self._chain(Post(queue_name, postings, connection))

    def _write(self, post: Post) -> list[int]:
        rules = self._store.types.after_rules
        if rules.declared:
            post = msgspec.structs.replace(
                post, postings=rules.applied(post.queue_name, post.postings)
            )
        for posting in post.postings:
            if (
                posting.key is not None
                or posting.order_key is not None
                or posting.after is not None
                or posting.group is not None
            ):
                return self._post_linked(post)
            if (
                # By identity: the answer of `==` may be none. What is equal passes the checks.
                posting.keep is not PLAIN.keep
                or posting.on_conflict is not PLAIN.on_conflict
                or posting.order_failure is not PLAIN.order_failure
                or posting.key_wait is not None
                or posting.on_failed is not PLAIN.on_failed
            ):
                checked(post.queue_name, [posting])
        if post.connection is not None:
            return self._post_inside(post, post.connection)
        return self._post_and_commit(post)

    def _post_and_commit(self, post: Post) -> list[int]:
        """Post in a transaction of its own."""
        holdings = self._holdings
        epoch = holdings.epoch
        rows, claimed = self._rows(post, may_claim=True)
        start = perf_counter()
        insertion = Insertion(self._store, holdings.ledger, rows, claimed)
        try:
            ids = self._store.reaching(insertion.commit, insertion.written)
            seconds = perf_counter() - start
            if claimed:
                entries = [
                    self._store.rows.entry(record_id, row)
                    for record_id, row in zip(ids, rows, strict=True)
                ]
                self._hand_over.submit(entries, epoch, insertion.transit)
            elif rows[0]["lane"] == ANY_NODE:
                self._hints.tell(len(ids))
            self._metrics.took("post", seconds)  # after the part that others wait for
            if not claimed and holdings.running:
                self._claimer.expect(min(row["effective_date"] for row in rows))
        except BaseException:
            self._hand_over.leave(insertion.transit)
            raise
        return ids

    def _rows(self, post: Post, *, may_claim: bool) -> tuple[list[dict[str, Any]], bool]:
        """The rows, and whether they are born claimed."""
        holdings, postings = self._holdings, post.postings
        # Once: a row born claimed in a lane that isn't its owner's would never be found.
        running = holdings.running
        if not running:
            self._store.keep_time(post.connection)
        keyed = post.queue_name in holdings.places.keys.queues and any(
            posting.limit_key is not None for posting in postings
        )
        claimed = (
            running
            and not keyed
            and may_claim
            and self._config.mode is Mode.STICKY_EVENTS
            and post.queue_name not in holdings.places.lanes  # else it would pass by the limit
            and holdings.ledger.room >= len(postings)
            # Else it would start before its date.
            and all(posting.at is None for posting in postings)
        )
        rows = self._store.rows.rows(
            post.queue_name,
            postings,
            creator=self.creator,
            lane=holdings.own_lane
            # Entries of a limit key are claimed by age, not by the node that has posted them.
            if running and self._config.mode is not Mode.POLLING and not keyed
            else ANY_NODE,
            claimed=claimed,
        )
        return rows, claimed

    def _post_inside(self, post: Post, connection: CallersConnection) -> list[int]:
        """Post in the caller's transaction."""
        holdings = self._holdings
        borrowed = self._store.borrow(connection, post.queue_name)
        # It may ask the database, inside the transaction.
        announces = self._store.inside_borrowed(
            borrowed, post.queue_name, lambda _: borrowed.announces
        )
        rows, claimed = self._rows(post, may_claim=announces)
        holdings.ledger.changes += claimed

        def work(inside: Connection) -> list[int]:
            lane = rows[0]["lane"]
            others = borrowed.raw or lane == ANY_NODE
            hint = self._hints.hint_inside(borrowed, lane) if others else None
            return self._store.insert(inside, rows, hint)

        ids = self._store.inside_borrowed(borrowed, post.queue_name, work)
        if rows[0]["lane"] == ANY_NODE:
            self._hints.tell_after(borrowed)
        if claimed:
            self._store.database.dialect.writes_for_caller()
        if not holdings.running:
            return ids
        earliest = min(row["effective_date"] for row in rows)
        announced = self._announced
        expected = announced.expect(ids) if claimed and borrowed.on_commit is not None else None

        def ended() -> None:
            if expected is not None:
                expected()
            elif claimed or earliest <= holdings.clock.now():
                announced.add(list(ids) if claimed else [])
            else:
                self._claimer.expect(earliest)

        if announces:
            borrowed.when_ended(ended)
        else:
            self._claimer.expect(earliest)
        return ids

    def _post_linked(self, post: Post) -> list[int]:
        """Post entries with links. None is born claimed, so they take the claim loop's way."""
        postings = checked(post.queue_name, post.postings)
        post = msgspec.structs.replace(post, postings=postings)
        rows, _ = self._rows(post, may_claim=False)
        start = perf_counter()
        try:
            ids, earliest = self._linked_insertion.write(
                post.connection, post.queue_name, postings, rows
            )
            if post.connection is None:
                self._metrics.took("post", perf_counter() - start)
            if earliest is not None:
                self.rescheduled(earliest, post.connection)
        except BaseException:
            if post.connection is None:
                self._claimer.look()  # it may have committed
            raise
        if post.connection is not None and any(
            posting.order_key is not None or posting.after for posting in postings
        ):
            self.links_changed(post.connection)
        return ids

    def freed(self, connection: CallersConnection | None = None) -> None:
        """Entries were released, removed, retried or discarded, so others may start.

        This was done in the transaction of the caller's `connection`, if there is one.
        """
        self.rescheduled(self._store.now(connection), connection)
        if connection is not None:
            self.links_changed(connection)

    def links_changed(self, connection: CallersConnection) -> None:
        """Let a node decide about links once the caller's transaction has ended."""
        if self._holdings.running:
            borrowed = self._store.borrow(connection)
            if borrowed.announces:
                borrowed.when_ended(self._linked_ended)

    def _linked_ended(self) -> None:
        self._ordered.announce()
        self._linked_looks.announce()
        self._limited_keys.announce()

    def rescheduled(self, date: datetime, connection: CallersConnection | None = None) -> None:
        """The date of an entry was changed to `date` (UTC), which may concern all nodes.

        It was changed in the transaction of the caller's `connection`, if there is one.
        """
        if connection is None:
            self._hints.tell()
            self._claimer.expect(date)
            return
        borrowed = self._store.borrow(connection)
        self._store.inside_borrowed(
            borrowed, self._config.table, lambda _: self._hints.tell_inside(borrowed)
        )

        def ended() -> None:
            if date <= self._holdings.clock.now():
                self._announced.add([])
            else:
                self._claimer.expect(date)

        if borrowed.announces:
            borrowed.when_ended(ended)
        else:
            self._claimer.expect(date)
