"""Bugs of places that a node has ahead of its claims."""

from __future__ import annotations

from typing import Any

from sqlalchemy import true

from queue_core.holding.ledger import Ledger
from queue_core.storage.reserves import Reserves
from sql.statements.claims import Claims
from sql.statements.places import Places
from tests.simulation.planted.bugs import Planting, bug, nothing


@bug
def reserve_taken_for_granted() -> list[Planting]:
    """A claim by a reserve does not ask whether that stands."""
    return [(Claims, "_reserve_stands", lambda _self: true())]


@bug
def reserve_after_another_limit() -> list[Planting]:
    """A changed limit leaves what was reserved before."""
    lock_reserves: Any = Places.lock_reserves

    def locked(self: Places, connection: Any, *, lane: str) -> list[str]:
        lock_reserves(self, connection, lane=lane)
        return []

    return [(Places, "lock_reserves", locked)]


@bug
def reserve_without_count() -> list[Planting]:
    """What a node has claimed by its reserve is not counted."""
    return [(Ledger, "placed", lambda _self, _lane: set())]


@bug
def reserve_in_doubt() -> list[Planting]:
    """A node goes on claiming by a reserve after a claim whose end it does not know."""
    return [(Reserves, "forget", nothing)]


@bug
def reserve_of_the_other_unseen() -> list[Planting]:
    """A claim counts the places of others without what they have reserved."""
    bunches: Any = Places.bunches

    def listed(self: Places, connection: Any, *, lane: str) -> list[Any]:
        return [one for one in bunches(self, connection, lane=lane) if not one.reserved]

    return [(Places, "bunches", listed)]
