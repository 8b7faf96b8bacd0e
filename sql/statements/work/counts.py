"""The statements on the counts of tasks and docs.

A transaction adds rows of its own and reads none. Its rows are folded with others into their sum
when it has ended. So nobody waits for a count, however long a transaction is open.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    FromClause,
    Row,
    ScalarSelect,
    Select,
    Table,
    and_,
    bindparam,
    cast,
    delete,
    func,
    insert,
    literal_column,
    or_,
    select,
)

from sql.drivers.hot_path import use_of
from sql.statements.base import HotStatements
from sql.tables import (
    in_schema,
    work_doc_sets,
    work_docs,
    work_namespace_counts,
    work_queue_counts,
    work_tasks,
)


class Count(NamedTuple):
    """The changes of a transaction to the count of a name; see `work_queue_counts`."""

    name: str
    amount: int
    minute: datetime | None = None


class Names(NamedTuple):
    """Names that are asked for: from the first of a range up to its end, or one of a list.

    Without both: all.
    """

    ranges: Sequence[tuple[str, str | None]] = ()
    names: Sequence[str] = ()
    limit: int | None = None


class WorkCounts(HotStatements):
    """With a `schema`, they find the tables whatever the session's search path is."""

    def __init__(self, schema: str | None = None) -> None:
        super().__init__()
        self.queues = in_schema(work_queue_counts, schema)
        self.namespaces = in_schema(work_namespace_counts, schema)
        self.tasks = in_schema(work_tasks, schema)
        self.sets = in_schema(work_doc_sets, schema)
        self.docs = in_schema(work_docs, schema)
        self._added = {
            table: insert(table).values(
                {name: bindparam(name, type_=table.c[name].type) for name in Count._fields}
            )
            for table in (self.queues, self.namespaces)
        }

    # -- parts that databases write differently ---------------------------------------------------

    def _by(self, statement: Select[Any], table: Table, index: str) -> Select[Any]:
        """The same read of a table, made to use one of its indices."""
        del table, index
        return statement

    # -- writes -----------------------------------------------------------------------------------

    def add(self, connection: Connection, table: Table, counts: Sequence[Count]) -> None:
        """Add counts to those of `table`, `queues` or `namespaces`."""
        rows = [count._asdict() for count in counts]
        if len(rows) == 1 and use_of(connection) is not None:
            self._change(connection, self._added[table], rows[0])
        elif rows:
            connection.execute(self._added[table], rows)

    def fold(self, connection: Connection, table: Table, *, now: datetime, limit: int) -> int:
        """Fold the oldest rows into one for each name and minute; returns how many were folded.

        Rows that another transaction folds are left alone.
        """
        oldest = select(table).order_by(table.c.count_id).limit(limit)
        rows = connection.execute(oldest.with_for_update(skip_locked=True)).all()
        if not rows:
            return 0
        sums = Counter[tuple[str, datetime | None]]()
        for row in rows:
            if row.minute is None or row.minute > now:
                sums[row.name, row.minute] += row.amount
        folded = delete(table).where(table.c.count_id.in_([row.count_id for row in rows]))
        connection.execute(folded)
        self.add(
            connection,
            table,
            [Count(name, amount, minute) for (name, minute), amount in sums.items() if amount],
        )
        return len(rows)

    def has_more(self, connection: Connection, table: Table, *, than: int) -> bool:
        """Whether `table` has more than `than` rows."""
        row = select(table.c.count_id).order_by(table.c.count_id).offset(than).limit(1)
        return connection.execute(row).first() is not None

    # -- reads ------------------------------------------------------------------------------------

    def _totals(self, table: Table, names: Names) -> Select[Any]:
        """Name, and sum of the amounts, of each name that is asked for and has any."""
        total = func.sum(table.c.amount)
        found = select(table.c.name, cast(total, BigInteger).label("total")).where(
            table.c.minute.is_(None)
        )
        wanted: list[ColumnElement[bool]] = [
            table.c.name >= first
            if end is None
            else and_(table.c.name >= first, table.c.name < end)
            for first, end in names.ranges
        ]
        if names.names:
            wanted.append(table.c.name.in_(names.names))
        if wanted:
            found = found.where(or_(*wanted))
        grouped = found.group_by(table.c.name).having(total > 0)
        return (
            self._by(grouped, table, f"{table.name}_by_name")
            .order_by(table.c.name)
            .limit(names.limit)
        )

    def totals(self, connection: Connection, table: Table, names: Names) -> list[Row[Any]]:
        """Each name that is asked for with the sum of its amounts, if that is not 0, by name."""
        return list(connection.execute(self._totals(table, names)))

    def queue_stats(
        self, connection: Connection, names: Names, *, now: datetime, minute: datetime
    ) -> list[Row[Any]]:
        """Of each queue its name, and its numbers.

        They are `total`, `held`, `soon` (unclaimed, and due until `minute`), `later` (the same,
        but due after it), and `max_claims`. No statement reads more than those that are held, and
        those that are due in a minute.
        """
        tasks, counts = self.tasks, self.queues
        named = self._totals(counts, names).subquery("named")
        held = self._by(select(func.count()), tasks, "work_tasks_leases").where(
            tasks.c.queue == named.c.name, tasks.c.lease_date > now
        )
        soon = self._of_queue(select(func.count()), named.c.name).where(
            tasks.c.arrival_date > now,
            tasks.c.arrival_date <= minute,
            tasks.c.claims == literal_column("0"),
        )
        later = self._by(
            select(func.sum(counts.c.amount)), counts, "work_queue_counts_by_name"
        ).where(counts.c.name == named.c.name, counts.c.minute > minute)
        most = (
            self._by(select(tasks.c.claims), tasks, "work_tasks_claims")
            .where(tasks.c.queue == named.c.name, tasks.c.claims > literal_column("0"))
            .order_by(tasks.c.queue.desc(), tasks.c.claims.desc())
            .limit(literal_column("1"))
        )
        return list(
            connection.execute(
                select(
                    named.c.name,
                    named.c.total,
                    _number(held, named).label("held"),
                    _number(soon, named).label("soon"),
                    cast(func.coalesce(_number(later, named), 0), BigInteger).label("later"),
                    func.coalesce(_number(most, named), 0).label("max_claims"),
                ).order_by(named.c.name)
            )
        )

    def namespace_stats(
        self, connection: Connection, names: Names, *, now: datetime
    ) -> list[Row[Any]]:
        """Of each namespace its name, the `total` of its docs, and how many are `held`."""
        sets, docs = self.sets, self.docs
        named = self._totals(self.namespaces, names).subquery("named")
        held = (
            self._by(select(func.count()), sets, "work_doc_sets_held")
            .select_from(sets)
            .join(
                docs,
                and_(docs.c.namespace == sets.c.namespace, docs.c.doc_key == sets.c.doc_key),
            )
            .where(sets.c.namespace == named.c.name, sets.c.arrival_date > now)
        )
        counted = select(named.c.name, named.c.total, _number(held, named).label("held"))
        return list(connection.execute(counted.order_by(named.c.name)))

    # -- are they right ---------------------------------------------------------------------------

    def compared(self, connection: Connection, *, up_to: int, limit: int) -> list[Row[Any]]:
        """Of the first queues with at most `up_to` tasks: name, `total` as counted, `there`."""
        counts = self.queues
        total = func.sum(counts.c.amount)
        named = self._by(
            select(counts.c.name, cast(total, BigInteger).label("total"))
            .where(counts.c.minute.is_(None))
            .group_by(counts.c.name)
            .having(total <= up_to),
            counts,
            "work_queue_counts_by_name",
        )
        first = named.order_by(counts.c.name).limit(limit).subquery("named")
        there = self._of_queue(select(func.count()), first.c.name)
        return list(
            connection.execute(
                select(first.c.name, first.c.total, _number(there, first).label("there"))
            )
        )

    def uncounted(self, connection: Connection, *, among: int) -> list[str]:
        """Queues of the first tasks, by queue, that no count names."""
        tasks, counts = self.tasks, self.queues
        first = (
            self._of_queue(select(tasks.c.queue))
            .order_by(tasks.c.queue, tasks.c.arrival_date)
            .limit(among)
            .subquery("first_tasks")
        )
        counted = select(counts.c.name).where(counts.c.name == first.c.queue)
        missing = select(first.c.queue).distinct().where(~counted.exists())
        return list(connection.scalars(missing))

    def _of_queue(
        self, statement: Select[Any], queue: ColumnElement[str] | None = None
    ) -> Select[Any]:
        """The same read of the tasks of a queue, or of all, by the index of claims."""
        tasks = self.tasks
        # True of all; it tells PostgreSQL that the index has all of them.
        read = self._by(statement, tasks, "work_tasks_claim").where(
            tasks.c.queue >= literal_column("''")
        )
        return read if queue is None else read.where(tasks.c.queue == queue)


def _number(statement: Select[Any], named: FromClause) -> ScalarSelect[Any]:
    """A number for each of the rows of `named`."""
    return statement.correlate(named).scalar_subquery()
