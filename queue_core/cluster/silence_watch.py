"""The silence of other nodes, as one node has watched it.

Only its own monotonic clock counts, and only while its own beats succeeded without a gap: after an
outage of the database nobody has been silent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row

from queue_core.cluster.node import Node


@dataclass(frozen=True)
class _Seen:
    epoch: int
    beat: int
    state: str
    since: float


class SilenceWatch:
    """The beats that `node` has seen of the others."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._seen: dict[str, _Seen] = {}
        self._missed: dict[str, float] = {}
        """Lanes without a node, and since when (monotonic) they are known as such."""

    def look(self, rows: Mapping[str, Row[Any]]) -> None:
        """Note the beats of all nodes, by their rows of this moment."""
        now = self._node.clock.monotonic()
        before = self._seen
        self._seen = {}
        for name, row in rows.items():
            seen = before.get(name)
            same = seen is not None and (seen.epoch, seen.beat, seen.state) == (
                row.epoch,
                row.beat,
                row.state,
            )
            self._seen[name] = seen if seen and same else _Seen(row.epoch, row.beat, row.state, now)

    def silent(self, row: Row[Any]) -> bool:
        """Whether another node was silent for its whole lease under our eyes."""
        return row.name != self._node.name and self.seconds_left(row) <= 0

    def seconds_left(self, row: Row[Any]) -> float:
        """The time for which a node is still to be watched, to be silent for its whole lease."""
        return self._silence_seconds(row) - self._watched_seconds(row)

    def _silence_seconds(self, row: Row[Any]) -> float:
        """The silence that is needed: the node's lease, or longer if our beats are too rare."""
        return max(float(row.lease_seconds), 3 * self._node.config.beat_interval_seconds)

    def _watched_seconds(self, row: Row[Any]) -> float:
        """The silence of a node that was seen while our own beats were close enough together.

        A gap that is short for us may have been all the time that a node with a shorter lease had.
        """
        node = self._node
        # Read first: if all nodes halt after this line, their halt does not count as silence.
        now = node.clock.monotonic()
        steady_from = node.lease.steady_from(
            min(node.config.lease_seconds, self._silence_seconds(row)) / 2
        )
        return 0.0 if steady_from is None else now - max(self._seen[row.name].since, steady_from)

    def missed(self, rows: Mapping[str, Row[Any]]) -> bool:
        """Whether a lane is known that has no node, and none by these rows either."""
        self._missed = {lane: since for lane, since in self._missed.items() if lane not in rows}
        return bool(self._missed)

    def misses(self, lane: str) -> bool:
        """Whether a lane was seen without a node for a whole lease, as a silent node is watched.

        A live node whose row was deleted, or lost in a fail-over, enters it anew with its next
        beat.
        """
        node, now = self._node, self._node.clock.monotonic()
        since = self._missed.setdefault(lane, now)
        lease = max(node.config.lease_seconds, 3 * node.config.beat_interval_seconds)
        steady_from = node.lease.steady_from(node.config.lease_seconds / 2)
        return steady_from is not None and now - max(since, steady_from) >= lease
