"""Bugs of fences."""

from __future__ import annotations

from typing import Any

from sqlalchemy import bindparam

import queue_core.storage.progress
import sql.statements.claims
from queue_core.running.exactly_once import ExactlyOnce
from queue_core.running.handler_pool import HandlerPool
from sql.statements.entries import Statements
from sql.statements.nodes import LIVE
from sql.tables import queue_nodes
from tests.simulation.planted.bugs import Planting, bug


@bug
def fence_removed() -> list[Planting]:
    """Outcomes, retries and releases ask for the id alone."""

    def held(self: Statements, batch: Any) -> list[Any]:
        return [self.main.c.record_id == batch.c.record_id]

    def fence(self: Statements, _owner: str, record_id: int, _claim_count: int) -> list[Any]:
        return [self.main.c.record_id == record_id]

    return [(Statements, "_held", held), (Statements, "_fence", fence)]


@bug
def finish_without_claim() -> list[Planting]:
    """A finish asks for the owner, but not for the claim."""

    def holds(self: Statements, _batch: Any) -> list[Any]:
        return [self.main.c.processing_owner == bindparam("owner")]

    return [(Statements, "_claim_holds", holds)]


@bug
def fence_of_the_node_table() -> list[Planting]:
    """A finish asks whether the owner's node lives, instead of asking the row."""

    def holds(_self: Statements, _batch: Any) -> list[Any]:
        lives = (queue_nodes.c.name == bindparam("owner")) & (queue_nodes.c.state == LIVE)
        return [queue_nodes.select().where(lives).exists()]

    return [(Statements, "_claim_holds", holds)]


@bug
def release_leaves_the_fence() -> list[Planting]:
    """What is given back, and what is claimed, keeps its claim count."""

    def unraised(self: Statements) -> dict[str, Any]:
        values: dict[str, Any] = taken(self)
        del values["claim_count"]
        return values

    taken: Any = Statements._taken
    return [
        (sql.statements.claims, "raised", lambda count: count),
        (Statements, "_taken", unraised),
    ]


@bug
def exactly_once_unfenced() -> list[Planting]:
    """An exactly-once handler's work is committed whether the entry is still its own or not."""
    record: Any = ExactlyOnce._record

    def recorded(self: ExactlyOnce, *arguments: Any, **options: Any) -> bool:
        record(self, *arguments, **options)
        return True

    return [(ExactlyOnce, "_record", recorded)]


@bug
def recorded_success_forgotten() -> list[Planting]:
    """A retry is written over the successes that were recorded since its entry was claimed."""
    return [(queue_core.storage.progress, "with_recorded", lambda progress, _row: progress)]


@bug
def exactly_once_runs_again() -> list[Planting]:
    """Run an exactly-once handler again after a lock time-out, though its lease may have ended."""
    return [(HandlerPool, "may_call", lambda _self, _run: True)]
