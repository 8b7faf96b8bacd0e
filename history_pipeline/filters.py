"""Spark's filters as conditions on a table, for those where the database surely keeps every row that Spark would keep.

Spark applies every filter once more, so that a database that keeps too many rows (one that compares texts without
regard to case) does no harm.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
)
from sqlalchemy import Column, ColumnElement, Integer, String, Table

from sql.types import UtcDateTime

_COMPARISONS: dict[type[Filter], Callable[[Any, Any], Any]] = {
    EqualTo: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
}


def conditions(table: Table, filters: Iterable[Filter]) -> list[ColumnElement[bool]]:
    """Those of `filters` that the database can apply."""
    found = (_condition(table, one) for one in filters)
    return [condition for condition in found if condition is not None]


def _condition(table: Table, wanted: Any) -> ColumnElement[bool] | None:
    attribute: tuple[str, ...] = getattr(wanted, "attribute", ())
    column = table.c.get(attribute[0]) if len(attribute) == 1 else None
    if column is None:
        return None
    match wanted:
        case IsNull():
            return column.is_(None)
        case IsNotNull():
            return column.is_not(None)
        case In(value=values) if all(_comparable(column, value) for value in values):
            return column.in_(values)
        case EqualTo(value=value) if _comparable(column, value):
            equal: ColumnElement[bool] = column == value
            return equal
        case (
            GreaterThan(value=value)
            | GreaterThanOrEqual(value=value)
            | LessThan(value=value)
            | LessThanOrEqual(value=value)
        ) if _comparable(column, value) and not isinstance(value, str):
            # Texts have an order of their own on each database.
            compared: ColumnElement[bool] = _COMPARISONS[type(wanted)](column, value)
            return compared
        case _:
            return None


def _comparable(column: Column[Any], value: Any) -> bool:
    """Whether the value is of the column's kind, and one that every database takes."""
    if isinstance(column.type, UtcDateTime):
        return isinstance(value, datetime) and value.tzinfo is not None
    if isinstance(column.type, Integer):
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(column.type, String) and isinstance(value, str) and "\0" not in value
