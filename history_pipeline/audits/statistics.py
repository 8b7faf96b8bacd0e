"""Statistics of the audit: counts and times for each queue, event type, node and hour.

`docs/reference/statistics.md` defines each figure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 -- as all of Spark's documents name it

from history_pipeline.audits.figures import GROUPINGS, KEYS, MEASURES, PERCENTS
from history_pipeline.audits.percentiles import percentiles, place_in

_MICROS = 1_000_000.0
"""Microseconds of a second."""


def statistics(
    entries: DataFrame, groupings: Mapping[str, tuple[str, ...]] = GROUPINGS
) -> DataFrame:
    """All figures of `entries.entries`, ordered by grouping and keys.

    There is a row for each group that has an entry.

    Columns: `grouping`; `KEYS`, null where they are none of the grouping; counts by outcome, `ok`,
    `retried` and `retries` (bigint); `retry_percentage` (double, null if nothing was processed or
    failed); and for each of `MEASURES` its `_count` (bigint), `_avg`, `_min`, `_max`, `_p50`,
    `_p90`, `_p95` and `_p99` in seconds (double, null if nothing was timed).
    """
    aggregates = {
        **_counts(),
        **{name: figure for measure in MEASURES for name, figure in _times(measure)},
    }
    counted = entries.groupingSets(list(groupings.values()), *KEYS).agg(
        F.struct(place_in(groupings.values(), KEYS).alias("set"), *KEYS).alias("group"),
        *(figure.alias(name) for name, figure in aggregates.items()),
    )
    measured = [name for measure in MEASURES for name in figures_of(measure)]
    counts = [name for name in aggregates if name not in measured]
    joined = (
        counted.drop(*KEYS).join(_percentiles(entries, groupings), "group", "left").orderBy("group")
    )
    grouping = F.get(F.array(*map(F.lit, groupings)), F.col("group.set"))
    return joined.select(
        grouping.alias("grouping"), *(f"group.{key}" for key in KEYS), *counts, *measured
    )


def figures_of(measure: str) -> list[str]:
    """The columns of a measure, in order."""
    return [
        f"{measure}_{figure}"
        for figure in ("count", "avg", "min", "max", *(f"p{share}" for share in PERCENTS))
    ]


def _counts() -> dict[str, Column]:
    outcome, errors = F.col("outcome"), F.col("error_count")
    processed, failed = outcome == "PROCESSED", outcome == "FAILED"
    # A failure that was final had no run after it.
    retries = F.when(processed, errors).when(failed, F.greatest(errors - 1, F.lit(0))).otherwise(0)
    run = F.count_if(processed | failed)
    return {
        "processed": F.count_if(processed),
        "failed": F.count_if(failed),
        "removed": F.count_if(outcome == "REMOVED"),
        "reaped": F.count_if(outcome == "REAPED"),
        "ok": F.count_if(processed & (errors == 0)),
        "retried": F.count_if(retries > 0),
        "retries": F.sum(retries),
        "retry_percentage": F.try_divide(F.count_if(retries > 0) * 100, run),
    }


def _times(measure: str) -> Iterator[tuple[str, Column]]:
    micros = F.col(f"{measure}_micros")
    yield f"{measure}_count", F.count(micros)
    # Null past 292,000 years: a date written by hand must not end the whole audit.
    yield f"{measure}_avg", F.try_divide(F.try_sum(micros), F.count(micros) * _MICROS)
    yield f"{measure}_min", F.min(micros) / _MICROS
    yield f"{measure}_max", F.max(micros) / _MICROS


def _percentiles(entries: DataFrame, groupings: Mapping[str, tuple[str, ...]]) -> DataFrame:
    """`group` as in `statistics`, and the percentiles of each measure in seconds."""
    measured = F.array(
        *(
            F.struct(F.lit(measure).alias("measure"), F.col(f"{measure}_micros").alias("micros"))
            for measure in MEASURES
        )
    )
    values = entries.select(*KEYS, F.explode(measured).alias("measured")).select(
        *KEYS, "measured.*"
    )
    sets = [("measure", *keys) for keys in groupings.values()]
    found = percentiles(values, ("measure", *KEYS), sets, "micros")
    # Divided as a decimal, so that it is rounded once.
    return found.groupBy(F.struct("set", *KEYS).alias("group")).agg(
        *(
            F.max(
                F.when(
                    F.col("measure") == measure, (F.col(f"p{percent}") / 1_000_000).cast("double")
                )
            ).alias(f"{measure}_p{percent}")
            for measure in MEASURES
            for percent in PERCENTS
        )
    )
