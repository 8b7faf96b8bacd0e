"""Conditions that keep values out of rows by hand which Python could not read."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Boolean, Double, Integer, String
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.expression import FunctionElement

from sql.types.dates import UtcDateTime


class readable(FunctionElement[bool]):  # noqa: N801 -- an SQL function, written as SQLAlchemy writes them
    """Whether dates, numbers and texts are ones that Python can read: the condition of a CHECK.

    A row by hand may hold PostgreSQL's 'infinity', MariaDB's day zero, or anything at all on
    SQLite, where a date of another format would also sort wrongly. Such a row could be neither
    claimed nor passed over.
    """

    type = Boolean()
    inherit_cache = True


class readable_or_now(readable):  # noqa: N801 -- as above
    """As `readable`, but on SQLite a date may lack its fraction of a second.

    CURRENT_TIMESTAMP writes it so.
    """

    inherit_cache = True


@compiles(readable, "postgresql")
def _(element: readable, compiler: Any, **options: object) -> str:
    rule = "{0} >= '0001-01-01 00:00:00+00' AND {0} < '10000-01-01 00:00:00+00'"
    return _each(element, compiler, options, {UtcDateTime: rule})


@compiles(readable, "mysql")
@compiles(readable, "mariadb")
def _(element: readable, compiler: Any, **options: object) -> str:
    rule = "year({0}) > 0 AND month({0}) > 0 AND dayofmonth({0}) > 0"
    return _each(element, compiler, options, {UtcDateTime: rule})


SECONDS_GLOB = "[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9] [0-9][0-9]:[0-9][0-9]:[0-9][0-9]"
"""The form of a date on SQLite, to the second."""
DATE_GLOB = SECONDS_GLOB + "." + "[0-9]" * 6


@compiles(readable, "sqlite")
def _(element: readable, compiler: Any, **options: object) -> str:
    return _on_sqlite(element, compiler, options, f"{{0}} GLOB '{DATE_GLOB}'")


@compiles(readable_or_now, "sqlite")
def _(element: readable_or_now, compiler: Any, **options: object) -> str:
    return _on_sqlite(
        element, compiler, options, f"({{0}} GLOB '{DATE_GLOB}' OR {{0}} GLOB '{SECONDS_GLOB}')"
    )


def _on_sqlite(element: readable, compiler: Any, options: dict[str, object], form: str) -> str:
    real = (
        "substr({0}, 1, 4) > '0000' AND datetime(substr({0}, 1, 19), '+0 days') IS substr({0}, "
        "1, 19)"
    )
    kinds = {Integer: "integer", Double: "real", String: "text"}
    rules = {kind: f"typeof({{0}}) = '{stored}'" for kind, stored in kinds.items()}
    return _each(
        element, compiler, options, {UtcDateTime: f"{{0}} IS NULL OR {form} AND {real}", **rules}
    )


def _each(
    element: readable, compiler: Any, options: dict[str, object], rules: dict[type, str]
) -> str:
    """The rule of each column's kind, where there is one."""
    return " AND ".join(
        f"({rule.format(compiler.process(column, **options))})"
        for column in element.clauses
        for kind, rule in rules.items()
        if isinstance(column.type, kind)
    )
