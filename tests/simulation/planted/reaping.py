"""Bugs of reaping."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from sqlalchemy import Connection, literal

import queue_core.cluster.reaper
import sql.statements.base
import sql.statements.lanes
from queue_core.cluster.reaper import Reaper
from sql.statements.entries import Statements
from sql.statements.nodes import DEAD, Nodes
from tests.simulation.planted.bugs import Planting, bug


@bug
def reaper_without_lock() -> list[Planting]:
    """A reaper moves what a node left without looking whether it has come back."""
    row: Any = Nodes.node

    def node(self: Nodes, connection: Connection, name: str, *, lock: bool = False) -> Any:
        return SimpleNamespace(state=DEAD) if lock else row(self, connection, name)

    return [(Nodes, "node", node)]


@bug
def reaper_leaves_what_ran() -> list[Planting]:
    """A reaper moves only what waited."""
    batch: Any = Reaper._batch

    def moved(self: Reaper, connection: Connection, *, kind: Any, **options: Any) -> Any:
        if kind is queue_core.cluster.reaper._Kind.CLAIMED:
            return [], []
        return batch(self, connection, kind=kind, **options)

    return [(Reaper, "_batch", moved)]


@bug
def retries_lost_at_restart() -> list[Planting]:
    """The copy of a reaped entry forgets its failures."""
    fresh: Any = sql.statements.base.fresh
    return [
        (
            sql.statements.lanes,
            "fresh",
            lambda table, lane: fresh(table, lane) | {"error_count": literal(0)},
        )
    ]


@bug
def crash_not_counted() -> list[Planting]:
    """What killed its process is not remembered for it."""
    copy_anew: Any = Statements.copy_anew

    def copied(self: Statements, connection: Connection, **options: Any) -> int:
        return int(copy_anew(self, connection, **options | {"crashes": 0}))

    return [(Statements, "copy_anew", copied)]
