"""The condition that chooses the archived entries of a replay, in Spark's SQL."""

from __future__ import annotations

import re
from functools import reduce
from operator import or_
from typing import Any, NamedTuple

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it ships no annotations
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from history_pipeline.errors import ReplayConditionError
from history_pipeline.rows.columns import PAYLOAD
from queue_core.model.states import State


def chosen(rows: DataFrame, where: str) -> DataFrame:
    """The rows of history that meet a condition.

    Those whose chain has gone on are left out.

    Raises ReplayConditionError.
    """
    try:
        found = rows.where(where)
    except PySparkException as error:
        reason = str(error).strip().partition("\n")[0].rstrip(";")
        raise ReplayConditionError(
            f"the condition {where!r} can't work: {reason}. Nothing was posted."
        ) from error
    plan: Any = found._jdf.queryExecution().analyzed()  # noqa: SLF001 -- PySpark does not tell it
    if not plan.deterministic():
        raise ReplayConditionError(
            f"the condition {where!r} may answer differently each time. Nothing was posted. Choose "
            "entries by their columns."
        )
    return found.where(f.col("processing_state") != State.REAPED.value)


def with_payload(rows: DataFrame) -> DataFrame:
    """The rows that have a payload: it was archived, and not erased since."""
    return rows.where(_has_payload())


class Counted(NamedTuple):
    """Numbers of rows."""

    with_payload: int
    without_payload: int


def counted(wanted: DataFrame, where: str) -> Counted:
    """How many rows meet the condition.

    Raises ReplayConditionError, which quotes no row, if it can't be computed.
    """
    try:
        payloads = f.count_if(_has_payload())
        [row] = wanted.agg(payloads, f.count(f.lit(1)) - payloads).collect()
        return Counted(*row)
    except (PySparkException, Py4JError) as error:
        named = re.search(r"\[([A-Z][A-Z_.]+)\]", str(error))
        raise ReplayConditionError(
            f"the condition {where!r} can't be computed of some entry: "
            f"{named[1] if named else type(error).__name__}. Nothing was posted. Functions such "
            "as try_cast give NULL instead."
        ) from error


def _has_payload() -> Column:
    return reduce(or_, (f.col(name).isNotNull() for name in PAYLOAD))
