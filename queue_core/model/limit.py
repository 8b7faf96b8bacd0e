"""A limit of a queue: how many of its entries may run at once, and how many may start in a time."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from queue_core.model.lanes import Lane, limited_lane


class Limit(msgspec.Struct, frozen=True, kw_only=True):
    """The most that all nodes together do of a queue. Dates are aware, in UTC.

    Attributes:
        table: The main table.
        queue_name: The bus, or `service:queue`.
        concurrency: The most entries that run at once, on all nodes together; None for any number.
        per_node: The most that run at once on each node; None for any number.
        rate: The most that start in each `per`, on all nodes together; None for any number.
        per: The time that `rate` is about.
        burst: The most that may start at once, when nothing has started for some time.
        per_key: The most of each limit key that run at once, on all nodes; None for any number.
        rate_per_key: The most of each limit key that start in each `per`; None for any number.
        burst_per_key: As `burst`, of each limit key.
        limited_by: The person or process that set the limit.
        since: The date on which it was set.
    """

    table: str
    queue_name: str
    concurrency: int | None = None
    per_node: int | None = None
    rate: int | None = None
    per: timedelta = timedelta(seconds=1)
    burst: int = 1
    per_key: int | None = None
    rate_per_key: int | None = None
    burst_per_key: int = 1
    limited_by: str
    since: datetime

    @property
    def lane(self) -> Lane:
        """The lane in which its entries wait for a place."""
        return limited_lane(self.queue_name)

    @property
    def limits_queue(self) -> bool:
        """Whether it says anything of the queue as a whole."""
        return not (self.concurrency is None and self.per_node is None and self.rate is None)

    @property
    def limits_keys(self) -> bool:
        """Whether it says anything of each limit key."""
        return not (self.per_key is None and self.rate_per_key is None)

    @property
    def told(self) -> str:
        """Its limits, for a sentence."""
        parts = list[str]()
        if self.concurrency is not None:
            parts.append(f"{self.concurrency:,} at once")
        if self.per_node is not None:
            parts.append(f"{self.per_node:,} at once on each node")
        if self.rate is not None:
            parts.append(f"{self.rate:,} in {self.per.total_seconds():g} s")
        if self.per_key is not None:
            parts.append(f"{self.per_key:,} at once of each key")
        if self.rate_per_key is not None:
            parts.append(f"{self.rate_per_key:,} in {self.per.total_seconds():g} s of each key")
        return ", ".join(parts)
