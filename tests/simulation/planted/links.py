"""Bugs of links between entries, but for order keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection

import queue_core.finishing.finisher
import queue_core.links.dependencies
import sql.statements.groups
from queue_core.claiming.linked_looks import LinkedLooks
from queue_core.links.groups import GroupLink
from queue_core.links.keys import KeyLink
from queue_core.links.verdict import Verdict
from queue_core.model.outcome import Outcome
from queue_core.posting.keyed_posts import KeyedPosts
from tests.simulation.planted.bugs import Planting, bug, nothing


@bug
def key_lost_at_the_reaping() -> list[Planting]:
    """The copy of a reaped entry does not have its idempotency key."""
    return [(KeyLink, "renewed", nothing)]


@bug
def key_taken_blindly() -> list[Planting]:
    """A post takes its key, whoever has it."""
    return [(KeyedPosts, "_settle", lambda self, key, draft, _hold: self._gain(key, draft))]


@bug
def outcomes_of_all_claims() -> list[Planting]:
    """A batch has an outcome of each claim of an entry."""

    def each(outcomes: Sequence[Outcome]) -> list[Outcome]:
        return list({one.entry.claim: one for one in reversed(outcomes)}.values())

    return [(queue_core.finishing.finisher, "one_each", each)]


@bug
def links_not_looked_after() -> list[Planting]:
    """Nobody looks at what entries of callers' transactions wait for."""
    return [(LinkedLooks, "look", lambda _self: 0)]


@bug
def wait_over_at_the_first_look() -> list[Planting]:
    """An entry starts though what it waits for has not ended."""
    return [
        (queue_core.links.dependencies, "verdict_on", lambda _rows: (Verdict.RELEASE, None)),
    ]


@bug
def group_complete_at_its_seal() -> list[Planting]:
    """A group is complete as soon as it is sealed."""

    def completable(self: Any, connection: Connection, ids: Sequence[int]) -> list[Any]:
        rows = self.read(connection, ids)
        return [row for row in rows if row.sealed_date and not row.completed_date]

    return [(sql.statements.groups.Groups, "completable", completable)]


@bug
def group_does_not_count() -> list[Planting]:
    """The ends of members are not counted."""
    return [(GroupLink, "ended", nothing)]
