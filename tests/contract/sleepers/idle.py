"""Nodes that have nothing to do."""

from __future__ import annotations

from bus.persistent import PersistentBus
from tests.contract.harness import eventually, lifecycle_of
from tests.contract.sleepers.server import Server

MINUTES = 600.0
"""A poll interval that no test waits for."""


def asleep(bus: PersistentBus, server: Server) -> int:
    """Wait until a node sleeps, and has looked since it does; returns its session."""
    session = server.sleeper()
    loop = lifecycle_of(bus).claim_loop
    eventually(lambda: loop._next_turn_at - loop._clock.monotonic() > 1.0, "the node has looked")
    return session
