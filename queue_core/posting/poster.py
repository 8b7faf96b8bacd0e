"""Posting: from postings to committed rows, in a transaction of our own or in the caller's.

In our own, the COMMIT that returned proves the rows, and sticky events go to the pool from memory.
In the caller's nothing is proved by any event: the claim loop looks the rows up when the end of the
transaction is announced. A process that isn't running as a node posts into the lane of any node.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from time import perf_counter
from typing import Any

from sqlalchemy import Connection

from queue_core.claiming.claimer import Claimer
from queue_core.claiming.hint_sender import HintSender
from queue_core.cluster.process_nodes import name_of
from queue_core.holding.handing import Handing
from queue_core.holding.holdings import Holdings
from queue_core.metrics import Metrics
from queue_core.model.config import Mode
from queue_core.model.entry import Posting
from queue_core.model.lanes import ANY_NODE
from queue_core.posting.announced_commits import AnnouncedCommits
from queue_core.posting.hand_over import HandOver
from queue_core.runtime.callers import CallersConnection
from queue_core.storage.reserved_ids import OutdatedIdsError


class Poster:
    """Posts for one bus or service."""

    def __init__(
        self,
        holdings: Holdings,
        claimer: Claimer,
        hand_over: HandOver,
        announced: AnnouncedCommits,
        *,
        hints: HintSender,
        metrics: Metrics,
    ) -> None:
        self._holdings = holdings
        self._store = holdings.store
        self._config = holdings.config
        self._hand_over = hand_over
        self._announced = announced
        self._claimer = claimer
        self._hints = hints
        self._metrics = metrics

    def post(
        self, queue_name: str, postings: Sequence[Posting], given: CallersConnection | None = None
    ) -> list[int]:
        """Write `postings` and return their ids, in order; see the module.

        Raises InvalidPostError or PayloadError before anything is written; whatever the database
        raises, after the transaction (our own) was rolled back.
        """
        holdings = self._holdings
        self._store.check_process()
        if not postings:
            return []
        if not holdings.running:
            self._store.keep_time(given)
        if given is not None:
            return self._post_inside(queue_name, postings, given)
        lease = holdings.lease
        rows, claimed = self._rows(queue_name, postings, may_claim=True)
        start = perf_counter()
        handing, written = Handing(), list[int]()
        try:
            ids = self._store.reaching(
                lambda: self._post(rows, handing, written, claimed=claimed), written
            )
            seconds = perf_counter() - start
            if claimed:
                entries = [
                    self._store.rows.entry(record_id, row)
                    for record_id, row in zip(ids, rows, strict=True)
                ]
                self._hand_over.run(entries, lease, handing)
            elif rows[0]["lane"] == ANY_NODE:
                self._hints.tell(len(ids))
            self._metrics.posted(queue_name, len(ids), seconds)  # after what others wait for
            if holdings.running and not claimed:
                self._claimer.expect(min(row["effective_date"] for row in rows))
        except BaseException:
            self._hand_over.leave(handing)
            raise
        return ids

    def _rows(
        self, queue_name: str, postings: Sequence[Posting], *, may_claim: bool
    ) -> tuple[list[dict[str, Any]], bool]:
        holdings = self._holdings
        # Once: a row born claimed in a lane that isn't its owner's would never be found.
        running = holdings.running
        claimed = (
            running
            and may_claim
            and self._config.mode is Mode.STICKY_EVENTS
            and holdings.ledger.room >= len(postings)
            and all(
                posting.at is None for posting in postings
            )  # else it would start before its date
        )
        rows = self._store.rows.rows(
            queue_name,
            postings,
            creator=holdings.name or name_of(self._config),
            lane=holdings.own_lane
            if running and self._config.mode is not Mode.POLLING
            else ANY_NODE,
            claimed=claimed,
        )
        return rows, claimed

    def _post(
        self, rows: list[dict[str, Any]], handing: Handing, written: list[int], *, claimed: bool
    ) -> list[int]:
        """Insert and commit.

        Ids of claimed rows enter the ledger before the COMMIT: the sweep may see the rows after it.
        """
        ledger, reserved, ids = self._holdings.ledger, self._store.reserved_ids, handing.ids
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

        def work(connection: Connection) -> list[int]:
            if taken and database.opened != opened:
                raise OutdatedIdsError
            written[:] = inserted = self._store.insert(connection, rows)
            if not taken:
                hold(inserted)
            return inserted

        autocommit = not claimed and (
            len(rows) == 1 or self._store.statements.capabilities.inserts_at_once
        )
        try:
            if taken:
                hold(taken)
                written[:] = taken
                for row, record_id in zip(rows, taken, strict=True):
                    row["record_id"] = record_id
                try:
                    return database.insert_autocommit(work)
                except OutdatedIdsError:
                    forget()
                    reserved.clear()
                    taken.clear()
                    written.clear()
                    for row in rows:
                        del row["record_id"]
            return database.insert_autocommit(work) if autocommit else database.write(work, forget)
        except BaseException:
            # Whether a failed COMMIT took effect is for the sweep to find out.
            forget()
            reserved.clear()
            raise

    def _post_inside(
        self, queue_name: str, postings: Sequence[Posting], given: CallersConnection
    ) -> list[int]:
        holdings = self._holdings
        borrowed = self._store.borrow(given)
        announces = borrowed.announces
        rows, claimed = self._rows(queue_name, postings, may_claim=announces)
        holdings.ledger.changes += claimed

        def work(connection: Connection) -> list[int]:
            ids = self._store.insert(connection, rows)
            if borrowed.raw or rows[0]["lane"] == ANY_NODE:
                self._hints.tell_inside(borrowed, rows[0]["lane"])
            return ids

        ids = self._store.inside_borrowed(borrowed, queue_name, work)
        self._metrics.posted(queue_name, len(ids))
        if not holdings.running:
            return ids
        earliest = min(row["effective_date"] for row in rows)

        def ended() -> None:
            if claimed or earliest <= holdings.clock.now():
                self._announced.add(list(ids) if claimed else [])
            else:
                self._claimer.expect(earliest)

        if announces:
            borrowed.when_ended(ended)
        else:
            self._claimer.expect(earliest)
        return ids

    def rescheduled(self, date: datetime, given: CallersConnection | None = None) -> None:
        """The date of an entry was changed, in the caller's transaction if one is given: all nodes may be concerned."""
        if given is None:
            self._hints.tell()
            self._claimer.expect(date)
            return
        borrowed = self._store.borrow(given)
        self._store.inside_borrowed(
            borrowed, self._config.table, lambda _: self._hints.tell_inside(borrowed, ANY_NODE)
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
