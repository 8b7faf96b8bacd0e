"""SQL functions of dates."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.expression import FunctionElement

from sql.types.dates import UtcDateTime


class utc_now(FunctionElement[datetime]):  # noqa: N801 -- an SQL function, written as SQLAlchemy writes them
    """The server's UTC time: only for column defaults, so that an INSERT by hand works.

    None of our statements uses it.
    """

    type = UtcDateTime()
    inherit_cache = True


@compiles(utc_now, "postgresql")
def _(_element: utc_now, _compiler: object, **_options: object) -> str:
    return "now()"


@compiles(utc_now, "mysql")
@compiles(utc_now, "mariadb")
def _(_element: utc_now, _compiler: object, **_options: object) -> str:
    return "(utc_timestamp(6))"


@compiles(utc_now, "sqlite")
def _(_element: utc_now, _compiler: object, **_options: object) -> str:
    return "(strftime('%Y-%m-%d %H:%M:%f000', 'now'))"


class microseconds_between(FunctionElement[int]):  # noqa: N801 -- as above
    """The microseconds from one date to another, both of them columns of `UtcDateTime`."""

    type = BigInteger()
    inherit_cache = True


@compiles(microseconds_between, "postgresql")
def _(element: microseconds_between, compiler: Any, **options: object) -> str:
    start, end = (compiler.process(date, **options) for date in element.clauses)
    # `extract` would give a numeric, which is slow; the double is exact to a microsecond for times
    # of up to 71 years.
    return f"round(date_part('epoch', {end} - {start}) * 1000000)::bigint"


@compiles(microseconds_between, "mysql")
@compiles(microseconds_between, "mariadb")
def _(element: microseconds_between, compiler: Any, **options: object) -> str:
    start, end = (compiler.process(date, **options) for date in element.clauses)
    return f"timestampdiff(MICROSECOND, {start}, {end})"


@compiles(microseconds_between, "sqlite")
def _(element: microseconds_between, compiler: Any, **options: object) -> str:
    start, end = (compiler.process(date, **options) for date in element.clauses)
    # Without its fraction, by which SQLite would round a date up to the next second. A row by hand
    # may lack the fraction: its text is then empty, which counts as 0.
    return (
        f"((strftime('%s', substr({end}, 1, 19)) - strftime('%s', substr({start}, 1, 19))) * "
        f"1000000 + substr({end}, 21, 6) - substr({start}, 21, 6))"
    )
