"""Priorities: the head start that an entry has over others in the order of claims.

Claims go by date, oldest first. An entry with a priority has an earlier date than that on which it
became due, by a fixed time. So it overtakes the entries that became due within that time before it,
and waits for those that had become due earlier still: no priority makes another one wait for ever.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Literal, TypeAlias

Priority: TypeAlias = Literal["normal", "high", "urgent"]
"""The place of an entry among those that are due: each overtakes the lower ones, for a time."""

NORMAL: Priority = "normal"
HEAD_STARTS: dict[str, timedelta] = {
    NORMAL: timedelta(),
    "high": timedelta(minutes=10),
    "urgent": timedelta(hours=1),
}
"""By priority, the time by which an entry is ahead of normal ones."""
