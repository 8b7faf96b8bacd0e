"""Reads of tasks, docs and numbers. They lock nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import ceil
from typing import Any, TypeVar

from sqlalchemy import Connection, Row

from queue_core.storage.transactions import Transactions
from sql.statements.base import IDS
from sql.statements.work.counts import Names
from sql.statements.work.tasks import FailedTasks
from work_queue.counts import NamespaceStats, WorkStats
from work_queue.document import Doc
from work_queue.requests import DocQuery, NameQuery, TaskQuery
from work_queue.storage.folding import Folding
from work_queue.storage.modifying import Statements
from work_queue.storage.moment import minute_of
from work_queue.storage.rows import doc_of, task_of
from work_queue.task import Task

T = TypeVar("T")

RANGES = 200
"""The most prefixes that one statement names: SQLite takes no condition of a thousand parts."""
_SURROGATES = range(0xD800, 0xE000)


class Reads:
    """Each in a transaction of its own, or in a caller's."""

    def __init__(
        self, transactions: Transactions, statements: Statements, folding: Folding
    ) -> None:
        self._transactions = transactions
        self._statements = statements
        self._folding = folding

    def tasks(self, query: TaskQuery, callers: Any) -> list[Task]:
        """See `Backend.tasks`."""
        now, tasks = self._transactions.now(callers), self._statements.tasks
        failed = FailedTasks(query.failed_in, query.error_text) if query.failed else None
        if query.ids is None:
            rows = self._transactions.read(
                callers,
                query.queue or "",
                lambda connection: tasks.of_queue(
                    connection,
                    query.queue or "",
                    seen_by=query.claimant,
                    now=now,
                    failed=failed,
                    after=None if query.after is None else (query.after.at, query.after.id),
                    limit=query.limit,
                    values=query.with_values,
                ),
            )
            return [task_of(row, has_value=query.with_values) for row in rows]
        ids = query.ids
        rows = self._transactions.read(
            callers,
            query.queue or "",
            lambda connection: tasks.by_ids(connection, ids, values=query.with_values),
        )
        found = {
            row.task_id: task_of(row, has_value=query.with_values)
            for row in rows
            if query.queue in {None, row.queue}
            and (query.claimant in {None, row.claimant} or row.arrival_date <= now)
        }
        return _in_order(ids, found)[: query.limit]

    def docs(self, query: DocQuery, callers: Any) -> list[Doc]:
        """See `Backend.docs`."""
        docs, ids = self._statements.docs, query.ids
        if ids is not None:
            rows = self._transactions.read(
                callers,
                query.namespace,
                lambda connection: docs.by_ids(
                    connection, query.namespace, ids, contents=query.with_contents
                ),
            )
            return _in_order(
                ids, {row.doc_id: doc_of(row, has_content=query.with_contents) for row in rows}
            )
        rows = self._transactions.read(
            callers,
            query.namespace,
            lambda connection: docs.by_keys(
                connection,
                query.namespace,
                key=query.key,
                first=query.first_key,
                end=query.end_key,
                limit=query.limit,
                contents=query.with_contents,
            ),
        )
        return [doc_of(row, has_content=query.with_contents) for row in rows]

    def queues(self, query: NameQuery) -> dict[str, int]:
        """See `Backend.queues`."""
        counts = self._statements.counts
        rows = self._of_names(
            "queues",
            query,
            lambda connection, names: counts.totals(connection, counts.queues, names),
        )
        return {row.name: int(row.total) for row in rows}

    def queue_stats(self, query: NameQuery) -> list[WorkStats]:
        """See `Backend.queue_stats`."""
        now = self._transactions.now()
        rows = self._of_names(
            "queues",
            query,
            lambda connection, names: self._statements.counts.queue_stats(
                connection, names, now=now, minute=minute_of(now)
            ),
        )
        return [_stats(row) for row in rows]

    def namespace_stats(self, query: NameQuery) -> list[NamespaceStats]:
        """See `Backend.namespace_stats`."""
        now = self._transactions.now()
        rows = self._of_names(
            "namespaces",
            query,
            lambda connection, names: self._statements.counts.namespace_stats(
                connection, names, now=now
            ),
        )
        return [NamespaceStats(row.name, int(row.total), int(row.held)) for row in rows]

    def _of_names(
        self,
        place: str,
        query: NameQuery,
        read: Callable[[Connection, Names], Sequence[Row[Any]]],
    ) -> list[Row[Any]]:
        """The rows of all names that are asked for, each once, by name."""
        self._transactions.reaching(self._folding.before_read)

        def work(connection: Connection) -> dict[str, Row[Any]]:
            return {row.name: row for names in _parts(query) for row in read(connection, names)}

        found = self._transactions.read(None, place, work)
        return [found[name] for name in sorted(found)][: query.limit]


def _stats(row: Any) -> WorkStats:
    total, claimed, future = int(row.total), int(row.held), int(row.soon) + int(row.later)
    # The rest, as one snapshot saw it all; but PostgreSQL's dates may differ from ours by a moment.
    available = max(0, total - claimed - future)
    return WorkStats(row.name, total, claimed, available, future, int(row.max_claims))


def _in_order(ids: Sequence[str], found: Mapping[str, T]) -> list[T]:
    return [found[one] for one in ids if one in found]


def _parts(query: NameQuery) -> Iterator[Names]:
    """What is asked for, in parts that a statement can name. Mostly there is one."""
    ranges = [(prefix, _after(prefix)) for prefix in query.prefixes]
    of_ranges, of_names = ceil(len(ranges) / RANGES), ceil(len(query.names) / IDS)
    for part in range(max(1, of_ranges, of_names)):
        yield Names(
            ranges[part * RANGES : (part + 1) * RANGES],
            query.names[part * IDS : (part + 1) * IDS],
            query.limit,
        )


def _after(prefix: str) -> str | None:
    """The first text, by bytes, after all that begin with `prefix`; None: there is none."""
    shortened = prefix.rstrip("\U0010ffff")
    if not shortened:
        return None
    last = ord(shortened[-1]) + 1
    return shortened[:-1] + chr(_SURROGATES.stop if last in _SURROGATES else last)
