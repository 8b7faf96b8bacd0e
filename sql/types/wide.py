"""Columns without a practical limit."""

from __future__ import annotations

from sqlalchemy import BigInteger, Integer, LargeBinary, Text
from sqlalchemy.dialects import mysql


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
