"""Posting: from postings to committed rows, in a transaction of our own or in the caller's.

In our own, the COMMIT that returned proves the rows, and sticky events go to the pool from memory. In the caller's
nothing is proved by any event: the lifecycle looks the rows up when the end of the transaction is announced. A
process that isn't running as a node posts into the lane of any node.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Any

from queue_core.cluster.process_nodes import name_of
from queue_core.holding.hand_over import Handing
from queue_core.lifecycle import Lifecycle
from queue_core.model.config import Mode
from queue_core.model.entry import ANY_NODE, Posting
from queue_core.running.subscriber import Router
from queue_core.runtime.callers import CallersConnection
from queue_core.storage.reserved_ids import OutdatedIdsError


class Poster:
    """Posts for one bus or service."""

    def __init__(self, lifecycle: Lifecycle, router: Router) -> None:
        self._lifecycle = lifecycle
        self._store = lifecycle.store
        self._router = router
        self._mode = lifecycle.config.mode

    def post(
        self, queue_name: str, postings: Sequence[Posting], given: CallersConnection | None = None
    ) -> list[int]:
        """Write `postings` and return their ids, in order; see the module.

        Raises InvalidPostError or PayloadError before anything is written; whatever the database raises, after the
        transaction (our own) was rolled back.
        """
        lifecycle = self._lifecycle
        self._store.check_process()
        if not postings:
            return []
        if not lifecycle.running:
            self._store.keep_time(given)
        if given is not None:
            return self._post_inside(queue_name, postings, given)
        lease = lifecycle.claims.lease
        rows, claimed = self._rows(queue_name, postings, may_claim=True)
        start = perf_counter()
        handing, written = Handing(), list[int]()
        try:
            ids = self._store.reaching(lambda: self._post(rows, handing, written, claimed=claimed), written)
            seconds = perf_counter() - start
            if claimed:
                entries = [
                    self._store.columns.entry(record_id, row)
                    for record_id, row in zip(ids, rows, strict=True)
                ]
                lifecycle.hand_over.run(entries, lease, handing)
            elif rows[0]["lane"] == ANY_NODE:
                lifecycle.hints.tell(len(ids))
            lifecycle.metrics.posted(queue_name, len(ids), seconds)  # after what others wait for
            if lifecycle.running and not claimed:
                lifecycle.claimer.expect(min(row["effective_date"] for row in rows))
        except BaseException:
            lifecycle.hand_over.leave(handing)
            raise
        return ids

    def _rows(
        self, queue_name: str, postings: Sequence[Posting], *, may_claim: bool
    ) -> tuple[list[dict[str, Any]], bool]:
        lifecycle = self._lifecycle
        # Once: a row born claimed in a lane that isn't its owner's would never be found.
        running = lifecycle.running
        claimed = (
            running
            and may_claim
            and self._mode is Mode.STICKY_EVENTS
            and lifecycle.ledger.room >= len(postings)
            and all(posting.at is None for posting in postings)  # else it would start before its date
        )
        rows = self._store.columns.rows(
            queue_name,
            postings,
            creator=lifecycle.name or name_of(lifecycle.config),
            lane=lifecycle.name if running and self._mode is not Mode.POLLING else ANY_NODE,
            claimed=claimed,
        )
        return rows, claimed

    def _post(
        self, rows: list[dict[str, Any]], handing: Handing, written: list[int], *, claimed: bool
    ) -> list[int]:
        """Insert and commit. Ids of claimed rows enter the ledger before the COMMIT: the sweep may see the rows after it."""
        ledger, reserved, ids = self._lifecycle.ledger, self._store.reserved_ids, handing.ids
        # A claimed row must not be seen before its id is known.
        taken, opened = reserved.take(len(rows)) if claimed else ([], 0)
        database = self._store.database

        def hold(found: list[int]) -> None:
            if claimed:
                ids[:] = found  # first, for `forget` to know them
                ledger.add((record_id, 1) for record_id in found)

        def forget() -> None:
            # Once: on SQLite, ids that were rolled back may be another post's by now.
            ledger.discard(ids)
            ids.clear()

        def work(connection: Any) -> list[int]:
            if taken and database.opened != opened:
                raise OutdatedIdsError
            written[:] = inserted = self._store.insert(connection, rows)
            if not taken:
                hold(inserted)
            return inserted

        single = not claimed and (len(rows) == 1 or self._store.statements.inserts_at_once)
        try:
            if taken:
                hold(taken)
                written[:] = taken
                for row, record_id in zip(rows, taken, strict=True):
                    row["record_id"] = record_id
                try:
                    return database.insert_single(work)
                except OutdatedIdsError:
                    forget()
                    reserved.clear()
                    taken.clear()
                    written.clear()
                    for row in rows:
                        del row["record_id"]
            return database.insert_single(work) if single else database.write(work, forget)
        except BaseException:
            # Whether a failed COMMIT took effect is for the sweep to find out.
            forget()
            reserved.clear()
            raise

    def _post_inside(
        self, queue_name: str, postings: Sequence[Posting], given: CallersConnection
    ) -> list[int]:
        lifecycle = self._lifecycle
        borrowed = self._store.borrow(given)
        announces = borrowed.announces
        rows, claimed = self._rows(queue_name, postings, may_claim=announces)
        lifecycle.ledger.changes += claimed

        def work(connection: Any) -> list[int]:
            ids = self._store.insert(connection, rows)
            if borrowed.raw or rows[0]["lane"] == ANY_NODE:
                lifecycle.hints.tell_inside(borrowed, rows[0]["lane"])
            return ids

        ids = self._store.inside_borrowed(borrowed, queue_name, work)
        lifecycle.metrics.posted(queue_name, len(ids))
        if not lifecycle.running:
            return ids
        earliest = min(row["effective_date"] for row in rows)

        def ended() -> None:
            if claimed or earliest <= lifecycle.clock.now():
                lifecycle.announce(list(ids) if claimed else [])
            else:
                lifecycle.claimer.expect(earliest)

        if announces:
            borrowed.when_ended(ended)
        else:
            lifecycle.claimer.expect(earliest)
        return ids
