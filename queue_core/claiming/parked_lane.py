"""The parked lane: entries whose type or queue no node has known so far.

A node brings back the entries that it can handle, page by page, and ends FAILED the entries that
have waited for `unknown_retention_days`.
"""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection

from queue_core.claiming.claimer import Claimer
from queue_core.errors import ConfigurationError
from queue_core.holding.holdings import Holdings
from queue_core.links.link import Ending
from queue_core.model.entry import Entry
from queue_core.model.lanes import PARKED, SUSPECT
from queue_core.model.states import State
from queue_core.running.failed_hooks import FailedHooks
from queue_core.running.subscriber import Router

PAGE = 1_000
"""Parked entries that are read at a time. No benchmark compares it with others."""
EXPIRED_BATCH = 100
"""Entries that end in one transaction: they are read with their payloads, for the hooks."""


class ParkedLane:
    """The entries that are set aside, as one node sees them."""

    def __init__(
        self, holdings: Holdings, router: Router, claimer: Claimer, failed_hooks: FailedHooks
    ) -> None:
        self._holdings = holdings
        self._router = router
        self._claimer = claimer
        self._failed_hooks = failed_hooks
        self._at = 0.0
        self._asked = 0
        self._after: tuple[datetime, int] | None = None

    def look_at_all(self) -> None:
        """Handlers were added: begin anew."""
        self._after, self._at = None, 0.0
        self._asked += 1
        self._claimer.turn_soon()

    def turn(self, now: float) -> None:
        """Look at one page if it is time to: entries are due there, or handlers were added."""
        if now < self._at or not (self._claimer.finds_parked or self._at == 0.0):
            return
        store, config, asked = self._holdings.store, self._holdings.config, self._asked
        page = store.database.fetch(
            lambda connection: store.statements.page(
                connection, lane=PARKED, after=self._after, limit=PAGE
            )
        )
        known = [row.record_id for row in page if self.can_end(row.queue_name, row.class_name)]
        oldest = store.clock.now().timestamp() - config.unknown_retention_days * 86_400
        # An entry may be posted for a date long past.
        expired = [
            row.record_id
            for row in page
            if max(row.created_date, row.effective_date).timestamp() < oldest
        ]
        if known:
            store.database.write(
                lambda connection: store.statements.change_lane(
                    connection,
                    ids=known,
                    from_lane=PARKED,
                    to_lane=self._holdings.own_lane,
                    suspect_lane=SUSPECT,
                )
            )
            self._claimer.wake()
        unknown = sorted(set(expired) - set(known))
        for start in range(0, len(unknown), EXPIRED_BATCH):
            self._expire(unknown[start : start + EXPIRED_BATCH])
        if self._asked != asked:  # handlers were added meanwhile
            return
        full = len(page) == PAGE
        self._after = (page[-1].effective_date, page[-1].record_id) if full else None
        self._at = 0.0 if full and known else now + config.node.reap_period_seconds

    def can_end(self, queue_name: str, class_name: str) -> bool:
        """Whether an entry can be handled here, or nowhere.

        In the latter case it ends FAILED with the reason.
        """
        try:
            return self._router.subscribers(queue_name, class_name) is not None
        except ConfigurationError:
            return True

    def _expire(self, ids: list[int]) -> None:
        store = self._holdings.store
        reason = (
            "UnknownEvent: no node has known this type and queue for "
            f"{store.config.unknown_retention_days:g} days; it was never run. Its payload is kept "
            "here."
        )
        ended = {
            "processing_state": State.FAILED.value,
            "finished_date": store.clock.now(),
            "last_error": reason,
        }

        def work(connection: Connection) -> list[Entry]:
            locked = store.statements.lock_available(connection, ids=ids)
            rows = store.search(connection, where=lambda table: [table.c.record_id.in_(locked)])
            # Not those that another node has brought back meanwhile. SQLite, if asked, would read
            # the whole lane.
            rows = [row for row in rows if row.lane == PARKED]
            store.statements.to_history(
                connection, ids=[row.record_id for row in rows], values=ended
            )
            store.links.ended(connection, [Ending(row, State.FAILED) for row in rows])
            return rows

        for entry in store.database.write(work):
            self._failed_hooks.tell(entry, reason)
