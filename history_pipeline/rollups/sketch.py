"""Times counted in buckets of a logarithmic scale: percentiles of any number of rows, mergeable.

Each bucket is a hundredth wider than the one before. So the time that stands for a bucket differs
from each of its values by less than `RELATIVE_ERROR`. Counts of two sets of rows add up to those of
both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from history_pipeline.audits.figures import PERCENTS

RELATIVE_ERROR = 0.005
"""Largest difference of a percentile from the exact one, as a share of that.

It is half the width of a bucket. Of a percentile between two ranks, it is a share of the larger of
their two values.
"""
_WIDTH = math.log(1.01)
"""The width of a bucket, as the logarithm of how much larger each is than the one before."""


def buckets(micros: pa.Array | pa.ChunkedArray) -> NDArray[np.int32]:
    """The bucket of each time in microseconds, of which none is null. They ascend with the times.

    Nothing lies in bucket 0 but 0; buckets of negative times are negative.
    """
    times = micros.to_numpy().astype(np.float64)
    sizes = np.maximum(np.abs(times), 1.0)
    found: NDArray[np.float64] = np.sign(times) * (np.rint(np.log(sizes) / _WIDTH) + 1)
    return found.astype(np.int32)


def percentiles(
    found: NDArray[np.int32], counts: NDArray[np.int64], least: int, largest: int
) -> list[float]:
    """The `PERCENTS` of times in seconds, by their buckets (ascending) and the counts of these.

    As exact ones they are interpolated linearly between two ranks. None lies beyond the shortest
    and the longest time, in microseconds.
    """
    behind = np.cumsum(counts)
    last = int(behind[-1]) - 1
    ranks = np.array([rank for percent in PERCENTS for rank in _ranks(last, percent)])
    times = np.clip(_times(found[np.searchsorted(behind, ranks, side="right")]), least, largest)
    shares = [last * percent % 100 / 100 for percent in PERCENTS]
    return _between(times[::2], times[1::2], shares)


def _ranks(last: int, percent: int) -> tuple[int, int]:
    below = last * percent // 100
    return below, min(below + 1, last)


def _times(chosen: NDArray[np.int32]) -> NDArray[np.float64]:
    sizes = np.exp((np.abs(chosen) - 1) * _WIDTH)
    times: NDArray[np.float64] = np.sign(chosen) * sizes
    return times


def _between(
    below: NDArray[np.float64], above: NDArray[np.float64], shares: Sequence[float]
) -> list[float]:
    found = below + (above - below) * np.array(shares)
    return [float(micros) / 1_000_000 for micros in found]
