"""Fingerprints, which show whether two sets of rows are the same in any order.

Each row has a 64-bit hash (Spark's `xxhash64`) of the columns that a manifest names. So a column
which history gets later changes no hash. The fingerprint of a set is its number of rows, and the
smallest, the largest and the sum of their hashes, modulo 2^64. The sum of two sets' fingerprints is
that of both together.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from pyspark.sql import Row

_MODULUS = 2**64
HASH_VERSION = 1
"""Version of the rule by which `row_hash` computes.

A manifest names the version of its fingerprints.
"""


class Fingerprint(msgspec.Struct, frozen=True):
    """The fingerprint of a set of rows. `smallest` and `largest` are None if the set is empty."""

    rows: int = 0
    smallest: int | None = None
    largest: int | None = None
    total: int = 0

    def __add__(self, other: Fingerprint) -> Fingerprint:
        """The fingerprint of both sets together."""
        known = [
            value
            for one in (self, other)
            for value in (one.smallest, one.largest)
            if value is not None
        ]
        return Fingerprint(
            rows=self.rows + other.rows,
            smallest=min(known, default=None),
            largest=max(known, default=None),
            total=(self.total + other.total) % _MODULUS,
        )

    @classmethod
    def of(cls, computed: Row | Mapping[str, Any]) -> Fingerprint:
        """Return the fingerprint that `aggregates` have computed."""
        total = int(computed["total"] or 0) % _MODULUS
        return cls(computed["rows"], computed["smallest"], computed["largest"], total)


def joined(fingerprints: list[Fingerprint]) -> Fingerprint:
    """The fingerprint of all the sets together."""
    return reduce(add, fingerprints, Fingerprint())
