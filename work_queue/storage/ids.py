"""Ids of new tasks and docs: UUIDs of version 7.

Each is greater than all that this process has made before. So rows are added at the end of a
primary key, and tasks that arrive together are claimed in the order of their inserts.
"""

from __future__ import annotations

import secrets
from datetime import datetime
from uuid import UUID

from queue_core.runtime.lock import Lock

_RANDOM_BITS, _LOWER_BITS = 74, 62
_lock = Lock()
_last = 0


def new_id(now: datetime) -> str:
    """An id that no other task or doc has."""
    global _last  # noqa: PLW0603 -- the order is the whole process's
    drawn = int(now.timestamp() * 1000) << _RANDOM_BITS | secrets.randbits(_RANDOM_BITS)
    with _lock:
        _last = number = max(drawn, _last + 1 + secrets.randbits(32))
    time, upper = number >> _RANDOM_BITS, number >> _LOWER_BITS & 0xFFF
    lower = number & (1 << _LOWER_BITS) - 1
    return str(UUID(int=time << 80 | 7 << 76 | upper << 64 | 2 << 62 | lower))
