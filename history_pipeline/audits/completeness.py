"""Completeness: whether every entry is somewhere and has ended once, as far as ids and chains show.

`ended` are rows of `entries.entries`; `live` are the entries of main tables: `table_name`,
`record_id`, `chain_id`.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 -- as all of Spark's documents name it

from history_pipeline.audits.figures import Fault

_BLOCK_BITS = 20
"""Ids of one block, as a power of two: one task sorts a block at once."""
_ID = ("table_name", "record_id")


def gaps(ids: DataFrame) -> DataFrame:
    """Ids that are missing between those that are there.

    Columns: `table_name`, `record_id`. Repeated ids don't matter.

    A row for each gap: `table_name`, `first_id`, `last_id`, and `missing`, the number of ids from
    the one to the other.
    """
    # By blocks: a window over a whole table would be the work of one task.
    blocked = ids.select(*_ID, F.shiftright("record_id", _BLOCK_BITS).alias("block"))
    within = Window.partitionBy("table_name", "block").orderBy("record_id")
    inside = blocked.select(
        "table_name", F.lag("record_id").over(within).alias("before"), "record_id"
    )
    bounds = blocked.groupBy("table_name", "block").agg(
        F.min("record_id").alias("low"), F.max("record_id").alias("high")
    )
    across = Window.partitionBy("table_name").orderBy("block")
    between = bounds.select(
        "table_name", F.lag("high").over(across).alias("before"), F.col("low").alias("record_id")
    )
    apart = inside.unionByName(between).where("record_id - before > 1")
    return apart.selectExpr(
        "table_name",
        "before + 1 AS first_id",
        "record_id - 1 AS last_id",
        "record_id - before - 1 AS missing",
    )


def known_ids(ids: DataFrame) -> DataFrame:
    """The range of ids of each table: `table_name`, `lowest_id`, `highest_id`."""
    bounds = (F.min("record_id").alias("lowest_id"), F.max("record_id").alias("highest_id"))
    return ids.groupBy("table_name").agg(*bounds)


def chain_faults(ended: DataFrame, live: DataFrame) -> DataFrame:
    """Entries that have ended twice, or never, or are still live.

    Columns: `table_name`, `record_id` (the chain's first), `fault`.

    Only chains that have, or must have, more than one row are put together. The other rows are
    found by their ids.
    """
    rows = ended.select(
        *_ID,
        "chain_id",
        (F.col("outcome") != "REAPED").alias("terminal"),
        F.lit(False).alias("live"),
    )
    rows = rows.unionByName(
        live.select(*_ID, "chain_id", F.lit(False).alias("terminal"), F.lit(True).alias("live"))
    )
    linked = F.col("chain_id") != F.col("record_id")
    several = rows.where(linked | ~F.col("terminal") & ~F.col("live")).select(
        "table_name", "chain_id"
    )
    repeated = rows.groupBy(*_ID).agg(F.count("*").alias("rows")).where("rows > 1")
    several = several.unionByName(
        repeated.selectExpr("table_name", "record_id AS chain_id")
    ).distinct()
    chains = rows.join(several, ["table_name", "chain_id"], "left_semi").groupBy(
        "table_name", "chain_id"
    )
    judged = chains.agg(F.count_if("terminal").alias("ends"), F.count_if("live").alias("live"))
    fault = (
        F.when(F.col("ends") > 1, Fault.ENDED_TWICE.value)
        .when((F.col("ends") > 0) & (F.col("live") > 0), Fault.ENDED_AND_LIVE.value)
        .when((F.col("ends") == 0) & (F.col("live") == 0), Fault.NO_END.value)
    )
    faulty = judged.select("table_name", F.col("chain_id").alias("record_id"), fault.alias("fault"))
    return faulty.where("fault IS NOT NULL")
