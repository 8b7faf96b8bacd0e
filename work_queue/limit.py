"""A limit of a queue: how many of its tasks may be claimed at once, and how many in a time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta


@dataclass(frozen=True, slots=True)
class QueueLimit:
    """What all claimants together may claim of a queue at most.

    Attributes:
        queue: Its name.
        concurrency: How many of its tasks are claimed at once; None: any number.
        rate: How many are claimed in each `per`; None: any number.
        per: The time that `rate` is about.
        burst: How many may be claimed at once, when nothing was claimed for some time.
        limited_by: Who set the limit.
        since: When it was set.
    """

    queue: str
    concurrency: int | None
    rate: int | None
    per: timedelta
    burst: int
    limited_by: str
    since: datetime

    @property
    def told(self) -> str:
        """What it allows, for a sentence."""
        parts = list[str]()
        if self.concurrency is not None:
            parts.append(f"{self.concurrency:,} at once")
        if self.rate is not None:
            parts.append(f"{self.rate:,} in {self.per.total_seconds():g} s")
        return ", ".join(parts)
