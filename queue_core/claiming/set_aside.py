"""Entries that were set aside in a lane of their own, and come back from it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence

from sqlalchemy import Connection

from queue_core.holding.holdings import Holdings
from queue_core.model.lanes import SUSPECT, Lane
from queue_core.model.mode import Mode
from queue_core.reading.nodes import live_nodes, served_by
from queue_core.storage.store import Store

PAGE = 1_000
"""Entries that one transaction brings back. No benchmark compares it with others."""


def bring_back(holdings: Holdings, lanes: Sequence[Lane]) -> bool:
    """Let the first entries of each lane be claimed again, in their order.

    Returns whether more may be there.
    """
    sticky = _sticky_nodes(holdings.store) if lanes else ()
    full = [_bring_back(holdings, lane, sticky) == PAGE for lane in lanes]
    return any(full)


def _bring_back(holdings: Holdings, lane: Lane, sticky: Collection[str]) -> int:
    statements, other = holdings.store.statements, holdings.return_lane

    def work(connection: Connection) -> int:
        targets = defaultdict[Lane, list[int]](list)
        rows = statements.free_page(connection, lane=lane, limit=PAGE)
        for row in rows:
            owner = row.creating_owner
            targets[Lane(owner) if owner in sticky else other].append(row.record_id)
        for to_lane, ids in targets.items():
            statements.change_lane(
                connection, ids=ids, from_lane=lane, to_lane=to_lane, suspect_lane=SUSPECT
            )
        return len(rows)

    return holdings.store.database.write(work)


def _sticky_nodes(store: Store) -> set[str]:
    """The live nodes that run their own posts: these go back to them.

    If one has died meanwhile, its reaper finds it in its lane.
    """
    return {
        node.name
        for node in live_nodes(store)
        for served in served_by(node, store.config.table)
        if served.get("mode", Mode.POLLING) != Mode.POLLING
    }
