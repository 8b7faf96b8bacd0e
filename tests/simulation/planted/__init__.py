"""Bugs that can be planted in the engine, by name: the simulator must catch each of them.

Each replaces one function of the engine by one that forgets what that function is there for.
"""

from tests.simulation.planted import (
    fences,
    hand_over,
    leases,
    ledger,
    links,
    order_keys,
    reaping,
    reserves,
)
from tests.simulation.planted.bugs import BUGS, planted

__all__ = [
    "BUGS",
    "fences",
    "hand_over",
    "leases",
    "ledger",
    "links",
    "order_keys",
    "planted",
    "reaping",
    "reserves",
]
