"""MySQL's and MariaDB's statements of the work queue: ids first, then writes by sorted key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Select, Table, Update, bindparam, update
from sqlalchemy.util import memoized_property

from sql.statements.work.counts import WorkCounts
from sql.statements.work.docs import WorkDocs
from sql.statements.work.history import WorkHistory
from sql.statements.work.tasks import WorkTasks

# A scan, which the optimisers prefer while a table is small, would wait for every row that another
# transaction has locked, and in a caller's REPEATABLE READ it would lock all of them.
BY_KEY = "FORCE INDEX (PRIMARY)"


class MySQLWorkTasks(WorkTasks):
    """See `WorkTasks`."""

    def takes_at_once(self, limit: int) -> bool:
        """See `WorkTasks.takes_at_once`."""
        del limit
        return False

    def _looked_up(self, statement: Select[Any]) -> Select[Any]:
        return statement.with_hint(self.table, BY_KEY)

    def _by_arrival(self, statement: Select[Any]) -> Select[Any]:
        # InnoDB locks all index entries that it reads under a lock: this one answers the ORDER BY.
        return statement.with_hint(self.table, f"FORCE INDEX ({self.claim_index})")

    def _by_lease(self, statement: Select[Any]) -> Select[Any]:
        return statement.with_hint(self.table, "FORCE INDEX (work_tasks_leases)")

    @memoized_property
    def _first(self) -> Select[Any]:
        return self._available(*self.columns)

    @memoized_property
    def _take(self) -> Update:
        # The driver writes the list into the text.
        among = self.table.c.task_id.op("IN")(bindparam("ids"))
        return (
            update(self.table)
            .prefix_with(f"/*+ INDEX({self.table.name} PRIMARY) */")
            .where(among)
            .values(**self._taken())
        )

    def claim(self, connection: Connection, claim: Mapping[str, Any]) -> list[Sequence[Any]]:
        """See `WorkTasks.claim`."""
        rows = self._rows(connection, self._first, claim)
        if not rows:
            return rows
        self._change(connection, self._take, {**claim, "ids": sorted(row[0] for row in rows)})
        names = [column.name for column in self.columns]
        taken = {
            "claimant": claim["by"],
            "arrival_date": claim["until"],
            "lease_date": claim["until"],
            "modified_date": claim["now"],
        }
        claimed = list[Sequence[Any]]()
        for row in rows:
            values = dict(zip(names, row, strict=True)) | taken
            values["version"] += 1
            values["claims"] += 1
            claimed.append(tuple(values.values()))
        return claimed


class MySQLWorkHistory(WorkHistory):
    """See `WorkHistory`."""

    def _looked_up(self, statement: Select[Any]) -> Select[Any]:
        return statement.with_hint(self.tasks, BY_KEY)


class MySQLWorkDocs(WorkDocs):
    """See `WorkDocs`."""

    def _looked_up(self, table: Table, statement: Select[Any]) -> Select[Any]:
        return statement.with_hint(table, BY_KEY)


class MySQLWorkCounts(WorkCounts):
    """See `WorkCounts`."""

    def _by(self, statement: Select[Any], table: Table, index: str) -> Select[Any]:
        return statement.with_hint(table, f"FORCE INDEX ({index})")
