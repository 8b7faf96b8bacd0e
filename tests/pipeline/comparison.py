"""Tables of figures that were found in two ways, compared row by row."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from history_pipeline.audits.figures import MEASURES, PERCENTS

Tables = Mapping[str, Sequence[Mapping[str, Any]]]

_MEASURE_OF = {f"{measure}_p{percent}": measure for measure in MEASURES for percent in PERCENTS}
_HUNDREDTH_OF_A_MICROSECOND = 1e-8


def differences(found: Tables, expected: Tables, percentile_error: float) -> Iterator[str]:
    """What differs between two sets of tables, but for percentiles within a relative error."""
    if found.keys() != expected.keys():
        yield f"tables: {sorted(found)}, not {sorted(expected)}"
    for name in expected:
        ours, theirs = found[name], expected[name]
        if len(ours) != len(theirs):
            yield f"{name}: {len(ours)} rows, not {len(theirs)}"
        for one, other in zip(ours, theirs, strict=False):
            for key in {**other, **one}:
                if not _alike(key, one, other, percentile_error):
                    yield f"{name}, {key}: {one.get(key)}, not {other.get(key)} in {other}"


def _alike(
    key: str, one: Mapping[str, Any], other: Mapping[str, Any], percentile_error: float
) -> bool:
    found, expected = one.get(key, ...), other.get(key, ...)
    if not isinstance(found, float) or not isinstance(expected, float):
        return bool(found == expected)
    measure = _MEASURE_OF.get(key)
    if measure is None:
        return math.isclose(found, expected, rel_tol=1e-12)
    # Between a negative and a positive time the error is one of the larger.
    least = min(0.0, other[f"{measure}_min"])
    largest = max(abs(expected), abs(least), least and other[f"{measure}_p99"])
    return bool(abs(found - expected) <= percentile_error * largest + _HUNDREDTH_OF_A_MICROSECOND)
