"""Hashes of rows, computed by Spark: what the fingerprints of an archive are made of."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as f


def row_hash(names: Sequence[str]) -> Column:
    """The hash of a row of history, of the columns `names` in that order."""
    columns = [f.col(name) for name in names]
    # A NULL adds nothing to the hash by itself: a value that slips into the next column would go
    # unnoticed.
    return f.xxhash64(*columns, *(column.isNull() for column in columns))


def aggregates(hashed: Column) -> list[Column]:
    """Return the columns that compute a fingerprint of rows with the hash `hashed`.

    The sum is a decimal: a bigint would overflow.
    """
    return [
        f.count(f.lit(1)).alias("rows"),
        f.min(hashed).alias("smallest"),
        f.max(hashed).alias("largest"),
        f.sum(hashed.cast("decimal(20,0)")).alias("total"),
    ]
