"""Column types that mean the same on every database."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import BigInteger, Boolean, DateTime, Dialect, Double, Integer, LargeBinary, String, Text
from sqlalchemy.dialects import mysql, postgresql
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.expression import FunctionElement
from sqlalchemy.types import TypeDecorator, TypeEngine

MYSQL_FAMILY = ("mysql", "mariadb")


class UtcDateTime(TypeDecorator[datetime]):
    """An instant: an aware datetime in UTC, to the microsecond, whatever the session's time zone is."""

    impl = DateTime
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        if dialect.name == "postgresql":
            return dialect.type_descriptor(postgresql.TIMESTAMP(timezone=True))
        if dialect.name in MYSQL_FAMILY:
            return dialect.type_descriptor(mysql.DATETIME(fsp=6))
        return dialect.type_descriptor(DateTime())

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None or dialect.name == "postgresql":
            return value
        return value.astimezone(UTC).replace(tzinfo=None)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)


class utc_now(FunctionElement[datetime]):  # noqa: N801 -- an SQL function, written as SQLAlchemy writes them
    """The server's UTC time: only for column defaults, so that an INSERT by hand works. No statement of ours uses it."""

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


class readable(FunctionElement[bool]):  # noqa: N801 -- as above
    """Whether dates, numbers and texts are ones that Python can read: the condition of a CHECK.

    A row by hand may hold PostgreSQL's 'infinity', MariaDB's day zero, or anything at all on SQLite, where a date of
    another format would also sort wrongly. Such a row could be neither claimed nor passed over.
    """

    type = Boolean()
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


@compiles(readable, "sqlite")
def _(element: readable, compiler: Any, **options: object) -> str:
    written = "[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9] [0-9][0-9]:[0-9][0-9]:[0-9][0-9]." + "[0-9]" * 6
    dates = (
        "{0} IS NULL OR {0} GLOB '"
        + written
        + "' AND substr({0}, 1, 4) > '0000' AND datetime(substr({0}, 1, 19), '+0 days') IS substr({0}, 1, 19)"
    )
    kinds = {Integer: "integer", Double: "real", String: "text"}
    rules = {kind: f"typeof({{0}}) = '{stored}'" for kind, stored in kinds.items()}
    return _each(element, compiler, options, {UtcDateTime: dates, **rules})


def _each(element: readable, compiler: Any, options: dict[str, object], rules: dict[type, str]) -> str:
    """The rule of each column's kind, where there is one."""
    return " AND ".join(
        f"({rule.format(compiler.process(column, **options))})"
        for column in element.clauses
        for kind, rule in rules.items()
        if isinstance(column.type, kind)
    )


def name(length: int) -> String:
    """A text compared byte by byte: case, accents and trailing spaces count (MySQL's defaults ignore all three)."""
    return (
        String(length)
        .with_variant(String(length, collation="C"), "postgresql")
        .with_variant(mysql.VARCHAR(length, charset="utf8mb4", collation="utf8mb4_0900_bin"), "mysql")
        .with_variant(mysql.VARCHAR(length, charset="utf8mb4", collation="utf8mb4_nopad_bin"), "mariadb")
    )


def long_text() -> Text:
    """A text without a practical limit (MySQL's TEXT ends at 64 KB)."""
    wide = mysql.LONGTEXT(charset="utf8mb4", collation="utf8mb4_bin")
    return Text().with_variant(wide, "mysql").with_variant(wide, "mariadb")


def long_bytes() -> LargeBinary:
    """Bytes without a practical limit."""
    return LargeBinary().with_variant(mysql.LONGBLOB(), "mysql").with_variant(mysql.LONGBLOB(), "mariadb")


def record_id() -> BigInteger:
    """A 64-bit id. SQLite hands out ids by itself only for a column declared INTEGER."""
    return BigInteger().with_variant(Integer(), "sqlite")
