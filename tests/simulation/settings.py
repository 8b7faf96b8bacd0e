"""The settings of a simulation, which all its processes share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from stickybus import (
    Circuit,
    Mode,
    NodeConfig,
)


@dataclass(frozen=True)
class Order:
    """The event. Its number is its key."""

    number: int


@dataclass(frozen=True)
class Settings:
    """What all processes of one simulation have in common."""

    faces: tuple[str, ...] = ("bus",)
    mode: Mode = Mode.STICKY_EVENTS
    subscribers: int = 1
    exactly_once: int = 0
    """The number of subscribers whose effects happen exactly once."""
    max_run_seconds: float | None = None
    queue_capacity: int = 6
    max_failure_retries: int = 2
    max_redispatches: int = 1
    handler_threads: int = 2
    max_entries_claimed: int = 3
    lease_seconds: float = 15.0
    circuit: bool = False
    """Whether failed entries wait for a probe."""
    long_leases: str = ""
    """The nodes whose leases are four times as long: a deployment may change them, node by node."""
    history: Literal["all", "failures"] = "all"

    @property
    def retry(self) -> Circuit | None:
        """The policy of all handlers; None for that of the configuration."""
        if not self.circuit:
            return None
        retries = self.max_failure_retries
        return Circuit(initial_seconds=0.5, maximum_seconds=8, max_retries=retries, jitter=0)

    def lease_of(self, node_name: str) -> float:
        """Seconds of a node's lease."""
        return self.lease_seconds * (4 if node_name in self.long_leases else 1)

    def common(self, node_name: str) -> dict[str, Any]:
        """The settings of the engine that bus and service share."""
        return {
            "node_name": node_name,
            "handler_threads": self.handler_threads,
            "queue_capacity": self.queue_capacity,
            "max_entries_claimed": self.max_entries_claimed,
            "max_failure_retries": self.max_failure_retries,
            "max_redispatches": self.max_redispatches,
            "node": NodeConfig(
                lease_seconds=self.lease_of(node_name),
                beat_interval_seconds=self.lease_seconds / 3,
                reap_period_seconds=self.lease_seconds / 3,
                reap_batch_size=2,
            ),
            "poll_interval_seconds": 8.0,
            "history": self.history,
        }
