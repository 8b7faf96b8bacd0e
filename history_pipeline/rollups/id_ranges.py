"""Sets of ids as ranges, each with the number of rows that every id of it has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]


class IdRanges(NamedTuple):
    """Ranges in ascending order that don't touch each other, unless their `rows` differ."""

    first: Ids
    last: Ids
    rows: Ids

    @classmethod
    def of(cls, ids: Ids) -> IdRanges:
        """The ranges of some ids, in any order; an id may be there more than once."""
        found, rows = np.unique(ids, return_counts=True)
        return cls.summed(found, found, rows)

    @classmethod
    def summed(cls, first: Ids, last: Ids, rows: Ids) -> IdRanges:
        """The ranges of several sets, whose ranges may overlap."""
        places = np.concatenate([first, last + 1])
        changes = np.concatenate([rows, -rows])
        bounds, of_bound = np.unique(places, return_inverse=True)
        change = np.zeros(len(bounds), np.int64)
        np.add.at(change, of_bound, changes)
        bounds, change = bounds[change != 0], change[change != 0]
        depth = np.cumsum(change)
        covered = depth > 0
        ends = np.append(bounds[1:], 0)
        return cls(bounds[covered], ends[covered] - 1, depth[covered])

    @classmethod
    def union(cls, sets: Sequence[IdRanges]) -> IdRanges:
        """The ranges of several sets; their rows are added."""
        if not sets:
            return cls(*(np.empty(0, np.int64) for _ in range(3)))
        return cls.summed(*(np.concatenate(parts) for parts in zip(*sets, strict=True)))

    def rows_of(self, ids: Ids) -> Ids:
        """The number of rows of each of some ids; 0 if there are none."""
        if not len(self.first):
            return np.zeros(len(ids), np.int64)
        place = np.searchsorted(self.first, ids, side="right") - 1
        inside = (place >= 0) & (ids <= self.last[place])
        return np.where(inside, self.rows[place], 0)

    def repeated(self) -> Ids:
        """The ids that have more than one row."""
        several = self.rows > 1
        ranges = zip(self.first[several].tolist(), self.last[several].tolist(), strict=True)
        return np.concatenate(
            [np.empty(0, np.int64), *(np.arange(low, high + 1) for low, high in ranges)]
        )

    def up_to(self, last_id: int) -> IdRanges:
        """The ids that are not above `last_id`."""
        kept = self.first <= last_id
        return IdRanges(self.first[kept], np.minimum(self.last[kept], last_id), self.rows[kept])

    def gaps(self) -> list[tuple[int, int]]:
        """The first and the last id of each range that is missing between those that are there."""
        apart = self.first[1:] - self.last[:-1] > 1
        lows, highs = self.last[:-1][apart] + 1, self.first[1:][apart] - 1
        return list(zip(lows.tolist(), highs.tolist(), strict=True))
