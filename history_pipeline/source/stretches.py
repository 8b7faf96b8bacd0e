"""Stretches of ids that lie apart, and about how many rows each holds.

They are found by a few looks, each of which reads a few entries of the index on the ids. Nothing is
counted, because a count reads everything.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Select, func, select

LOOKS = 100
"""Most looks for gaps. Of each stretch that is left one more look estimates the rows."""
SAMPLE_ROWS = 100
"""Rows at the start of a stretch by which all its rows are estimated."""

Ids = ColumnElement[int]


class Stretch(NamedTuple):
    """Ids from `first` to `last`, both of rows. There are about `rows`, one for each id at most."""

    first: int
    last: int
    rows: int


def stretches(
    connection: Connection, record_id: Ids, *, first: int, last: int, width: int
) -> list[Stretch]:
    """The stretches of the ids from `first` to `last`, which are ids of rows, in their order.

    A stretch of more than `width` ids is cut in half, the longest first: so gaps drop out.
    """
    long, found, looks = [(first - last, first, last)], list[tuple[int, int]](), 0
    while long:
        _, low, high = heappop(long)
        if high - low < width or looks == LOOKS:
            found.append((low, high))
            continue
        looks += 1
        for half in _halves(connection, record_id, low, high):
            heappush(long, (half[0] - half[1], *half))
    return [
        Stretch(low, high, _rows(connection, record_id, low, high, width))
        for low, high in sorted(found)
    ]


def _halves(
    connection: Connection, record_id: Ids, low: int, high: int
) -> Iterator[tuple[int, int]]:
    """The ids in the lower and in the upper half, without the gap between; no half without rows."""
    middle = (low + high) // 2
    below = _some(record_id, low, middle).order_by(record_id.desc()).limit(1)
    above = _some(record_id, middle + 1, high).order_by(record_id).limit(1)
    looks = select(below.scalar_subquery(), above.scalar_subquery())
    last_below, first_above = connection.execute(looks).one()
    # Rows may be deleted meanwhile.
    if last_below is not None:
        yield low, last_below
    if first_above is not None:
        yield first_above, high


def _rows(connection: Connection, record_id: Ids, low: int, high: int, width: int) -> int:
    """About how many rows there are. Of few ids, each counts as one."""
    ids = high - low + 1
    if ids <= width:
        return ids
    sample = _some(record_id, low, high).order_by(record_id).limit(SAMPLE_ROWS).subquery()
    look = select(func.count(), func.max(sample.c.record_id))
    found: int
    end: int
    found, end = connection.execute(look).one()
    if found < SAMPLE_ROWS:
        return max(1, found)
    return min(ids, -(-ids * SAMPLE_ROWS // (end - low + 1)))


def _some(record_id: Ids, low: int, high: int) -> Select[Any]:
    return select(record_id).where(record_id.between(low, high))
