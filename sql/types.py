"""Column types that mean the same on every database."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    BindParameter,
    Boolean,
    ColumnElement,
    DateTime,
    Dialect,
    Double,
    Integer,
    LargeBinary,
    String,
    Text,
)
from sqlalchemy.dialects import mysql, postgresql
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.expression import FunctionElement
from sqlalchemy.types import TypeDecorator, TypeEngine

TEXT_LENGTH = len("2026-01-01 00:00:00.000000")
"""Of a date as SQLite holds it."""


def _naive(value: datetime | None) -> datetime | None:
    return None if value is None else value.astimezone(UTC).replace(tzinfo=None)


def _aware(value: datetime | None) -> datetime | None:
    return None if value is None else value.replace(tzinfo=UTC)


def _in_utc(value: datetime | None) -> datetime | None:
    # On our own sessions it is in UTC already.
    return value if value is None or value.tzinfo is UTC else value.astimezone(UTC)


def _written(value: datetime | None) -> str | None:
    return (
        None
        if value is None
        else value.astimezone(UTC).isoformat(" ", "microseconds")[:TEXT_LENGTH]
    )


def _shortly_written(value: datetime | None) -> str | None:
    text = _written(value)
    return text and text.removesuffix(".000000")


def _read(value: str | datetime | None) -> datetime | None:
    if isinstance(value, str):
        return datetime.fromisoformat(value + "+00:00")
    return _aware(value)  # Django has its SQLite connections convert dates


@dataclass(frozen=True)
class DateForm:
    """How a database stores dates, and how its driver takes and gives them."""

    stored: TypeEngine[Any] = field(default_factory=DateTime)
    write: Callable[[datetime | None], Any] | None = _naive
    read: Callable[[Any], datetime | None] = _aware
    write_since: Callable[[datetime | None], Any] | None = _naive
    """For the earliest date of a range."""


DATE_FORMS = {
    "postgresql": DateForm(postgresql.TIMESTAMP(timezone=True), None, _in_utc, None),
    "mysql": DateForm(mysql.DATETIME(fsp=6)),
    "mariadb": DateForm(mysql.DATETIME(fsp=6)),
    "sqlite": DateForm(DateTime(), _written, _read, _shortly_written),
}
"""By the name of SQLAlchemy's dialect."""
_PLAIN = DateForm()


class UtcDateTime(TypeDecorator[datetime]):
    """An instant: an aware datetime in UTC, to the microsecond.

    The session's time zone changes nothing.
    """

    impl = DateTime
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return dialect.type_descriptor(_form(dialect).stored)

    # Three dates a row: as functions of their own they cost a third of what SQLAlchemy's chain of
    # processors does.
    def bind_processor(self, dialect: Dialect) -> Callable[[datetime | None], Any] | None:
        return _form(dialect).write

    def result_processor(
        self, dialect: Dialect, coltype: object
    ) -> Callable[[Any], datetime | None]:
        return _form(dialect).read


class UtcSince(UtcDateTime):
    """The earliest instant that a statement asks for.

    On SQLite, where dates are compared as texts, it is written as short as it can be: a row by hand
    may hold the second alone, as CURRENT_TIMESTAMP writes it, which sorts before the same with a
    fraction.
    """

    cache_ok = True

    def bind_processor(self, dialect: Dialect) -> Callable[[datetime | None], Any] | None:
        return _form(dialect).write_since


def _form(dialect: Dialect) -> DateForm:
    return DATE_FORMS.get(dialect.name, _PLAIN)


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
        f"((strftime('%s', substr({end}, 1, 19)) - strftime('%s', substr({start}, 1, 19))) * 1000000"
        f" + substr({end}, 21, 6) - substr({start}, 21, 6))"
    )


class readable(FunctionElement[bool]):  # noqa: N801 -- as above
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
    real = "substr({0}, 1, 4) > '0000' AND datetime(substr({0}, 1, 19), '+0 days') IS substr({0}, 1, 19)"
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


def name(length: int) -> String:
    """A text compared byte by byte: case, accents and trailing spaces count.

    MySQL's defaults ignore all three.
    """
    return (
        String(length)
        .with_variant(String(length, collation="C"), "postgresql")
        .with_variant(
            mysql.VARCHAR(length, charset="utf8mb4", collation="utf8mb4_0900_bin"), "mysql"
        )
        .with_variant(
            mysql.VARCHAR(length, charset="utf8mb4", collation="utf8mb4_nopad_bin"), "mariadb"
        )
    )


class Utf8(TypeDecorator[str]):
    """A text of up to so many bytes in UTF-8, compared byte by byte.

    It may be longer than a `name` in an index of MySQL, which reserves four bytes for each
    character of a text.
    """

    impl = String
    cache_ok = True

    def __init__(self, length: int) -> None:
        super().__init__(length)
        self.length = length

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        if _has_bytes(dialect):
            return dialect.type_descriptor(mysql.VARBINARY(self.length))
        return dialect.type_descriptor(name(self.length).dialect_impl(dialect))

    def bind_expression(self, bindvalue: BindParameter[str]) -> ColumnElement[str]:
        return as_utf8(bindvalue)

    def bind_processor(self, dialect: Dialect) -> None:
        return None

    def result_processor(
        self, dialect: Dialect, coltype: object
    ) -> Callable[[Any], str | None] | None:
        return _text_of if _has_bytes(dialect) else None


def _text_of(value: bytes | None) -> str | None:
    return None if value is None else value.decode()


class as_utf8(FunctionElement[str]):  # noqa: N801 -- as above
    """A text in UTF-8, whatever the character set of the session.

    A parameter of bytes would be the same, but not each driver of MySQL can send one.
    """

    type = String()
    inherit_cache = True


@compiles(as_utf8)
def _(element: as_utf8, compiler: Any, **options: object) -> str:
    return str(compiler.process(element.clauses, **options))


@compiles(as_utf8, "mysql")
@compiles(as_utf8, "mariadb")
def _(element: as_utf8, compiler: Any, **options: object) -> str:
    return f"CONVERT({compiler.process(element.clauses, **options)} USING utf8mb4)"


def _has_bytes(dialect: Dialect) -> bool:
    return dialect.name in {"mysql", "mariadb"}


def long_text() -> Text:
    """A text without a practical limit (MySQL's TEXT ends at 64 KB)."""
    wide = mysql.LONGTEXT(charset="utf8mb4", collation="utf8mb4_bin")
    return Text().with_variant(wide, "mysql").with_variant(wide, "mariadb")


def long_bytes() -> LargeBinary:
    """Bytes without a practical limit."""
    return (
        LargeBinary()
        .with_variant(mysql.LONGBLOB(), "mysql")
        .with_variant(mysql.LONGBLOB(), "mariadb")
    )


def record_id() -> BigInteger:
    """A 64-bit id. SQLite hands out ids by itself only for a column declared INTEGER."""
    return BigInteger().with_variant(Integer(), "sqlite")
