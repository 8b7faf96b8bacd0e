"""What roll-ups are made of: percentiles by buckets, and sets of ids as ranges."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from history_pipeline.audits.figures import PERCENTS
from history_pipeline.rollups.id_ranges import IdRanges
from history_pipeline.rollups.sketch import RELATIVE_ERROR, buckets, percentiles

MICROS = st.integers(-(10**18), 10**18) | st.integers(-100, 100_000) | st.sampled_from([0, 1, -1])
IDS = st.lists(st.integers(1, 40), max_size=60)


@given(st.lists(MICROS, min_size=1, max_size=300))
def test_a_percentile_by_buckets_is_within_the_error_of_the_exact_one(micros: list[int]) -> None:
    found, counts = np.unique(buckets(pa.array(micros, pa.int64())), return_counts=True)
    told = percentiles(found, counts, min(micros), max(micros))
    ordered = sorted(micros)
    for percent, seconds in zip(PERCENTS, told, strict=True):
        below, rest = divmod((len(micros) - 1) * percent, 100)
        low, high = ordered[below], ordered[min(below + 1, len(micros) - 1)]
        exact = low + (high - low) * rest / 100
        # Between two ranks the error is one of the larger of them.
        allowed = RELATIVE_ERROR * max(abs(low), abs(high)) if rest else RELATIVE_ERROR * abs(low)
        assert abs(seconds * 1_000_000 - exact) <= allowed * (1 + 1e-9) + 1e-6


@given(st.lists(MICROS, min_size=2, max_size=100))
def test_buckets_ascend_with_the_times(micros: list[int]) -> None:
    found = buckets(pa.array(sorted(micros), pa.int64())).tolist()
    assert all(low <= high for low, high in pairwise(found))


@given(st.lists(IDS, max_size=4))
def test_ranges_of_ids_are_the_ids(parts: list[list[int]]) -> None:
    ranges = IdRanges.union([IdRanges.of(np.array(part, np.int64)) for part in parts])
    ids = [one for part in parts for one in part]
    asked = np.arange(0, 45)
    assert ranges.rows_of(asked).tolist() == [ids.count(one) for one in asked.tolist()]
    assert ranges.repeated().tolist() == sorted({one for one in ids if ids.count(one) > 1})
    missing = [one for low, high in ranges.gaps() for one in range(low, high + 1)]
    assert missing == sorted(set(range(min(ids, default=0), max(ids, default=0))) - {*ids, 0})
    low = ranges.up_to(20)
    assert low.rows_of(asked).tolist() == [
        ids.count(one) if one <= 20 else 0 for one in asked.tolist()
    ]
    assert all(one < other for one, other in pairwise(ranges.first.tolist()))
