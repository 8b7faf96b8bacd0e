"""What tells whether two sets of rows are the same, in whatever order they are met.

Each row has a 64-bit hash of all its columns (Spark's `xxhash64`). A set has the number of its rows and the smallest,
the largest and the sum of their hashes, the sum modulo 2^64: sets that are joined have theirs added.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import add
from typing import Any

import msgspec
from pyspark.sql import Column, Row
from pyspark.sql import functions as f

from history_pipeline.schema import HISTORY_SCHEMA

_MODULUS = 2**64


class Fingerprint(msgspec.Struct, frozen=True):
    """Of a set of rows. `smallest` and `largest` are None if it is empty."""

    rows: int = 0
    smallest: int | None = None
    largest: int | None = None
    total: int = 0

    def __add__(self, other: Fingerprint) -> Fingerprint:
        """The fingerprint of both sets together."""
        known = [value for one in (self, other) for value in (one.smallest, one.largest) if value is not None]
        return Fingerprint(
            rows=self.rows + other.rows,
            smallest=min(known, default=None),
            largest=max(known, default=None),
            total=(self.total + other.total) % _MODULUS,
        )

    @classmethod
    def of(cls, computed: Row | Mapping[str, Any]) -> Fingerprint:
        """The one that `aggregates` have computed."""
        total = int(computed["total"] or 0) % _MODULUS
        return cls(computed["rows"], computed["smallest"], computed["largest"], total)


def joined(fingerprints: list[Fingerprint]) -> Fingerprint:
    """The fingerprint of all the sets together."""
    return reduce(add, fingerprints, Fingerprint())


def row_hash() -> Column:
    """The hash of a row of history."""
    columns = [f.col(name) for name in HISTORY_SCHEMA.names]
    # A NULL adds nothing to the hash by itself: a value that slips into the next column would go unnoticed.
    return f.xxhash64(*columns, *(column.isNull() for column in columns))


def aggregates(hashed: Column) -> list[Column]:
    """What computes a fingerprint of rows with the hash `hashed`; the sum is a decimal, for a bigint overflows."""
    return [
        f.count(f.lit(1)).alias("rows"),
        f.min(hashed).alias("smallest"),
        f.max(hashed).alias("largest"),
        f.sum(hashed.cast("decimal(20,0)")).alias("total"),
    ]
