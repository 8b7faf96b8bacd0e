"""Ids of new tasks and docs: UUIDs of version 7.

Of those that are drawn each is greater than all that this process has drawn before. So rows are
added at the end of a primary key, and tasks that arrive together are claimed in the order of their
inserts.
"""

from __future__ import annotations

import secrets
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from uuid import UUID

from queue_core.runtime.lock import Lock

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_RANDOM_BITS, _LOWER_BITS = 74, 62
_lock = Lock()
_last = 0


def new_id(now: datetime) -> str:
    """An id that no other task or doc has."""
    global _last  # noqa: PLW0603 -- the order is the whole process's
    drawn = _number(now, secrets.randbits(_RANDOM_BITS))
    with _lock:
        _last = number = max(drawn, _last + 1 + secrets.randbits(32))
    return _uuid(number)


def id_of_date(date: datetime, queue: str, schedule: str) -> str:
    """The id of the task of a date of a schedule: always the same. Its time is the date."""
    # Neither a queue nor a name holds a NUL character.
    named = f"{queue}\0{schedule}\0{date.isoformat()}"
    digest = int.from_bytes(blake2b(named.encode(), digest_size=10).digest())
    return _uuid(_number(date, digest & (1 << _RANDOM_BITS) - 1))


def _number(date: datetime, rest: int) -> int:
    return (date - _EPOCH) // timedelta(milliseconds=1) << _RANDOM_BITS | rest


def _uuid(number: int) -> str:
    time, upper = number >> _RANDOM_BITS, number >> _LOWER_BITS & 0xFFF
    lower = number & (1 << _LOWER_BITS) - 1
    return str(UUID(int=time << 80 | 7 << 76 | upper << 64 | 2 << 62 | lower))
