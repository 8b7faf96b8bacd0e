"""Entries that wait for others and would wait for ever."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

from sqlalchemy import Connection

from queue_core.links.links import carries
from queue_core.links.ordering import KEY_MARK
from queue_core.model.lanes import WAITING_LANE
from sql.doctor.base import Check, Scope
from sql.doctor.finding import Finding, Severity, counted
from sql.statements.entries import Statements
from sql.statements.ordered import Ordered
from sql.statements.waits import Waits

LOOKED_AT = 1_000
"""Waiting entries of a table that are read at most."""
NAMED = 10
"""Entries that a finding names at most."""


class _Waiting:
    """The waiting entries of a table.

    The doctor seeks rows of them that somebody has deleted by hand, so it trusts no table.
    """

    def __init__(self, connection: Connection, statements: Statements) -> None:
        main = statements.main
        rows = statements.waiting(connection, lane=WAITING_LANE, limit=LOOKED_AT)
        ids = [row.record_id for row in rows]
        self.places = Ordered(main.schema).places(connection, main.name, ids=ids)
        keeping = {row.record_id for row in self.places if row.lane == WAITING_LANE}
        self.for_others = [
            row.record_id
            for row in rows
            if row.record_id in keeping or not carries(row.headers, KEY_MARK)
        ]
        """Those that wait for others, and not just for the turn of their order key."""
        self.waits = Waits(main.schema).of_waiters(connection, main.name, ids=self.for_others)

    def lost(self) -> list[int]:
        """Those that wait for others, and nothing says for which."""
        known = {row.waiter_id for row in self.waits}
        return [record_id for record_id in self.for_others if record_id not in known]

    def circular(self) -> list[tuple[int, int]]:
        """Waits without which nothing would wait for itself, as who waits and for whom."""
        awaited, before, found = self._awaited(), self._before(), list[tuple[int, int]]()
        while circle := _circle(awaited, before):
            # A key alone makes no circle. The newest one is the retry that has made this one.
            awaited_id, waiter_id = max(
                (one, other) for one, other in pairwise(circle) if one in awaited.get(other, ())
            )
            found.append((waiter_id, awaited_id))
            del awaited[waiter_id]  # as a release would
        return found

    def _awaited(self) -> dict[int, set[int]]:
        awaited = dict[int, set[int]]()
        for row in self.waits:
            awaited.setdefault(row.waiter_id, set()).add(row.awaited_id)
        return awaited

    def _before(self) -> dict[int, set[int]]:
        """By waiting entry, the last one that keeps a place before it in its key."""
        before, last = dict[int, set[int]](), dict[tuple[str, str], int]()
        for row in self.places:
            key = row.queue_name, row.order_key
            if key in last:
                before[row.record_id] = {last[key]}
            if row.lane == WAITING_LANE:
                last[key] = row.record_id
        return before


def _circle(*graphs: Mapping[int, set[int]]) -> list[int]:
    """Entries of which each is needed by the next one, and the first by the last; may be none.

    Each graph names, by entry, others that it needs.
    """
    sorter = TopologicalSorter[int]()
    for graph in graphs:
        for entry, needed in graph.items():
            sorter.add(entry, *needed)
    try:
        sorter.prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def lost_waits(connection: Connection, scope: Scope) -> Iterator[Finding]:
    """Entries that wait for others, but no row says for which: nothing would release them."""
    for statements in scope.statements():
        table = statements.main.name
        lost = _Waiting(connection, statements).lost()
        if lost:
            yield Finding(
                "lost-waits",
                Severity.DANGER,
                table,
                f"{counted(len(lost))} of {table}: waiting for others, but without a row in "
                "queue_waits that names them. Somebody has deleted it by hand. Nothing will "
                "release them.",
                _release(table, lost),
            )


def circular_waits(connection: Connection, scope: Scope) -> Iterator[Finding]:
    """Entries that wait for one that stands behind them in the order of a key."""
    for statements in scope.statements():
        table = statements.main.name
        circular = _Waiting(connection, statements).circular()
        if circular:
            named = ", ".join(f"{waiter} for {awaited}" for waiter, awaited in circular[:NAMED])
            yield Finding(
                "circular-waits",
                Severity.DANGER,
                table,
                f"{counted(len(circular))} of {table}: waiting for an entry that comes after it by "
                f"the order of a key ({named}). Somebody has changed rows by hand, or a preview "
                "of this version has retried it. Neither will start.",
                _release(table, [waiter for waiter, _ in circular]),
            )


def _release(table: str, ids: list[int]) -> str:
    return f"stickybus entries release {' '.join(map(str, ids[:NAMED]))} --table {table}"


WAIT_CHECKS: tuple[Check, ...] = (lost_waits, circular_waits)
