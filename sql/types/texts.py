"""Columns of texts that are compared byte by byte."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import BindParameter, ColumnElement, Dialect, String
from sqlalchemy.dialects import mysql
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.expression import FunctionElement
from sqlalchemy.types import TypeDecorator, TypeEngine


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
    """A text with a limit of bytes in UTF-8. It is compared byte by byte.

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


class as_utf8(FunctionElement[str]):  # noqa: N801 -- an SQL function, written as SQLAlchemy writes them
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
