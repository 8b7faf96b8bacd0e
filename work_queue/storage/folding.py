"""Counts are folded by those who add to them, and by those who read them."""

from __future__ import annotations

from functools import partial

from sqlalchemy import Table
from sqlalchemy.exc import SQLAlchemyError

from queue_core.runtime.log import get_logger
from queue_core.storage.transactions import Transactions
from sql.statements.work.counts import WorkCounts

log = get_logger(__name__)

ROWS = 64
"""One process adds this number of rows. Then it folds twice as many, of all processes."""
MOST_ROWS = 2_000
"""Whoever reads more rows than these folds them first."""


class Folding:
    """Keeps few rows in the tables of counts, however many are added."""

    def __init__(self, transactions: Transactions, counts: WorkCounts) -> None:
        self._transactions = transactions
        self._counts = counts
        self._added = 0

    def added(self, rows: int) -> None:
        """Rows were added. In a transaction of our own, no lock is held now."""
        self._added += rows
        if self._added < ROWS:
            return
        self._added = 0
        try:
            self.fold(2 * ROWS)
        except SQLAlchemyError as error:  # the next ones fold more
            log.warning("counts_not_folded", error_type=type(error).__name__)

    def added_elsewhere(self, rows: int) -> None:
        """Rows were added in a caller's transaction, beside which nothing can be folded."""
        self._added += rows

    def before_read(self) -> None:
        """Fold if more rows are there than a read should sum up."""
        counts, database = self._counts, self._transactions.database
        for table in (counts.queues, counts.namespaces):
            while database.fetch(partial(counts.has_more, table=table, than=MOST_ROWS)):
                if self._fold(table, MOST_ROWS) < MOST_ROWS:
                    break

    def fold(self, limit: int) -> None:
        """Fold the oldest rows of each table, up to the given number."""
        for table in (self._counts.queues, self._counts.namespaces):
            self._fold(table, limit)

    def _fold(self, table: Table, limit: int) -> int:
        now = self._transactions.clock.now()
        fold = partial(self._counts.fold, table=table, now=now, limit=limit)
        return self._transactions.database.write(fold)
