"""A second look at faults: an entry may move between the reading of one table and the next."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any

from sqlalchemy import ColumnElement, Connection, Table, func, or_, select

from history_pipeline.audits.figures import Fault
from queue_core.model.states import State
from sql.database import Database
from sql.tables import entry_tables

MOST_SUSPECTS = 10_000
"""Faults that are looked up once more. A larger number is not caused by moving entries."""
_BATCH = 500
"""Ids that one statement looks at again."""


def confirmed(faults: Iterable[dict[str, Any]], database: Database) -> Iterator[dict[str, Any]]:
    """Return the faults that are still there.

    `faults` are rows of `FAULTS_SCHEMA`, sorted by fault and table.
    """
    for (table, fault), group in groupby(faults, key=itemgetter("table_name", "fault")):
        rows = list(group)
        ids = [row["record_id"] for row in rows]
        look = _LOOKS.get(fault)
        batches = range(0, len(ids), _BATCH) if look else ()
        gone = set[int]().union(
            *(look(database, table, ids[start : start + _BATCH]) for start in batches if look)
        )
        yield from (row for row in rows if row["record_id"] not in gone)


def _live_chains(database: Database, table: str, chains: Sequence[int]) -> set[int]:
    return database.fetch(partial(_chains_in, table=entry_tables(table).main, chains=chains))


def _not_live(database: Database, table: str, chains: Sequence[int]) -> set[int]:
    return set(chains) - _live_chains(database, table, chains)


def _with_end(database: Database, table: str, chains: Sequence[int]) -> set[int]:
    # In this order: what leaves the main table between the two looks is in history by the second.
    live = _live_chains(database, table, chains)
    history = entry_tables(table).history
    ended = partial(
        _chains_in, table=history, chains=chains, where=[history.c.processing_state != State.REAPED]
    )
    return live | database.fetch(ended)


def _chains_in(
    connection: Connection,
    *,
    table: Table,
    chains: Sequence[int],
    where: Sequence[ColumnElement[bool]] = (),
) -> set[int]:
    """Return the members of `chains` that have a row in the table."""
    chain = func.coalesce(table.c.origin_id, table.c.record_id)
    links = or_(table.c.origin_id.in_(chains), table.c.record_id.in_(chains))
    return set(connection.execute(select(chain).where(links, *where)).scalars())


_LOOKS: Mapping[str, Callable[[Database, str, Sequence[int]], set[int]]] = {
    Fault.NO_END: _with_end,
    Fault.ENDED_AND_LIVE: _not_live,
}
"""Functions that return the chains which no longer have a fault.

They are keyed by each fault that a moving entry can look like.
"""
