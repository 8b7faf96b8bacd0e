"""Exact percentiles of any number of rows in bounded memory.

Spark's own `percentile` keeps every distinct value of a group in memory that Spark does not count.
Here two passes find the values at the ranks that matter. The first counts the rows of each bucket,
90 of them for a power of ten: then it is known in which bucket each rank lies. The second sorts the
values of those few buckets only. Both use the disk if they must.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 -- as all of Spark's documents name it

from history_pipeline.audits.figures import PERCENTS

_DIGITS = 19
"""Digits of the largest 64-bit integer."""
_BUCKET = ["group", "bucket"]


def percentiles(
    values: DataFrame, keys: Sequence[str], sets: Sequence[Sequence[str]], value: str
) -> DataFrame:
    """The percentiles of the column `value`, grouped by each of `sets`, which hold `keys`.

    `value` is a bigint. Null is left out.

    One row for each group that has a value: `set` (int, its place in `sets`), `keys` (null where
    the set does not hold them; null in a row is a key like any other), and `p50`, `p90`, `p95`,
    `p99` (decimal, exact to a hundredth). Between two ranks it is interpolated linearly: the
    percentile p of n values lies at rank (n - 1) * p / 100, counted from 0, as in
    `numpy.percentile`, `statistics.quantiles(method="inclusive")` and Spark's `percentile`.
    """
    bucketed = values.where(F.col(value).isNotNull()).select(
        *keys, _bucket(value).alias("bucket"), F.col(value).alias("value")
    )
    # Small, and used twice. Computed here, for Spark would plan all that leads to it anew with each
    # step.
    ranks = _ranks(bucketed, keys, sets).localCheckpoint()
    # Small: eight buckets of each group at most. Without the hint all rows would be sorted for the
    # join.
    sought = F.broadcast(ranks.select(*_BUCKET).distinct())
    kinds = {key: bucketed.schema[key].dataType for key in keys}

    groups = [
        F.struct(
            F.lit(place).alias("set"),
            *(
                (F.col(key) if key in chosen else F.lit(None).cast(kinds[key])).alias(key)
                for key in keys
            ),
        )
        for place, chosen in enumerate(sets)
    ]
    spread = bucketed.select(F.explode(F.array(*groups)).alias("group"), "bucket", "value")
    rows = spread.join(sought, _BUCKET, "left_semi")
    ordered = _placed(
        rows.groupBy(*_BUCKET, "value").agg(F.count("*").alias("rows")), _BUCKET, "value"
    )
    found = ranks.join(ordered, _BUCKET).where("place >= first AND place < next")
    return (
        found.groupBy("group")
        .agg(*map(_interpolated, PERCENTS))
        .select("group.*", *(f"p{p}" for p in PERCENTS))
    )


def _bucket(value: str) -> Column:
    """A number that never falls as `value` rises.

    It is the same for values of equal length and first two digits.
    """
    size = F.abs(value)
    beyond = F.greatest(F.length(size.cast("string")) - 2, F.lit(0))
    power = F.get(
        F.array(*(F.lit(10**digits).cast("bigint") for digits in range(_DIGITS - 1))), beyond
    )
    return (F.sign(value) * (beyond * 90 + F.call_function("div", size, power))).cast("int")


def _placed(counted: DataFrame, keys: Sequence[str], by: str) -> DataFrame:
    """Add the ranks of the `rows` of each row in the order of `by`, from 0.

    `first` is the first rank, `next` the one behind the last.
    """
    following = counted.withColumn(
        "next", F.sum("rows").over(Window.partitionBy(*keys).orderBy(by))
    )
    return following.withColumn("first", F.col("next") - F.col("rows"))


def _ranks(bucketed: DataFrame, keys: Sequence[str], sets: Sequence[Sequence[str]]) -> DataFrame:
    """For each group and percentile the two ranks that it lies between.

    A rank is a bucket, and a `place` in it from 0.

    `upper`: of the two, whether it is the second; `share`: how many hundredths of the way to it the
    percentile lies.
    """
    grouped = bucketed.groupingSets([[*chosen, "bucket"] for chosen in sets], *keys, "bucket")
    group = F.struct(place_in(sets, keys, "bucket").alias("set"), *keys)
    counted = grouped.agg(group.alias("group"), F.count("*").alias("rows")).select(*_BUCKET, "rows")
    placed = _placed(counted, ["group"], "bucket").withColumn(
        "last", F.sum("rows").over(Window.partitionBy("group")) - 1
    )
    wanted = [
        F.struct(
            F.lit(percent).alias("percent"),
            F.lit(upper).alias("upper"),
            F.least(F.expr(f"last * {percent} div 100") + int(upper), F.col("last")).alias("rank"),
            (F.col("last") * percent % 100).alias("share"),
        )
        for percent in PERCENTS
        for upper in (False, True)
    ]
    ranks = placed.select(*_BUCKET, "first", "next", F.explode(F.array(*wanted)).alias("wanted"))
    return ranks.where("wanted.rank >= first AND wanted.rank < next").select(
        *_BUCKET,
        "wanted.percent",
        "wanted.upper",
        "wanted.share",
        F.expr("wanted.rank - first").alias("place"),
    )


def place_in(sets: Iterable[Sequence[str]], keys: Sequence[str], *more: str) -> Column:
    """The place (int) in `sets` of the set that a row is grouped by.

    `more` are keys of all sets, after `keys`.

    Spark tells it as a number with a bit for each key that is not in the set, the highest for the
    first.
    """
    bits = {key: 2 ** (len(keys) + len(more) - place - 1) for place, key in enumerate(keys)}
    numbers = [sum(bit for key, bit in bits.items() if key not in chosen) for chosen in sets]
    return (
        F.array_position(F.array(*map(F.lit, numbers)), F.grouping_id().cast("int")).cast("int") - 1
    )


def _interpolated(percent: int) -> Column:
    def at(column: str, *, upper: bool) -> Column:
        chosen = (F.col("percent") == percent) & (F.col("upper") == F.lit(upper))
        # Products of differences can pass 64 bits; rows by hand hold dates of any year.
        return F.max(F.when(chosen, F.col(column))).cast("decimal(19,0)")

    below, above, share = at("value", upper=False), at("value", upper=True), at("share", upper=True)
    return (
        ((below * (100 - share) + above * share) / 100).cast("decimal(21,2)").alias(f"p{percent}")
    )
