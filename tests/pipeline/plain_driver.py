"""A history as its database's driver reads it: sqlite3, psycopg or PyMySQL, without SQLAlchemy."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import psycopg
import pymysql
from sqlalchemy import URL

Columns = dict[str, list[Any]]


def history_columns(url: URL, table: str) -> Columns:
    """The columns of a table by name, each with its values in the order of the ids."""
    with closing(_OPEN[url.get_backend_name()](url)) as connection:
        cursor = connection.cursor()
        cursor.execute(f"SELECT * FROM {table} ORDER BY record_id")
        names = [column[0] for column in cursor.description]
        values = list(zip(*cursor.fetchall(), strict=True)) or [()] * len(names)
    return {
        name: [_date(value) for value in column] if name.endswith("_date") else [*column]
        for name, column in zip(names, values, strict=True)
    }


def _date(value: str | datetime | None) -> datetime | None:
    """A date in UTC, which SQLite holds as a text, and PyMySQL gives without a time zone."""
    if value is None:
        return None
    found = datetime.fromisoformat(value) if isinstance(value, str) else value
    return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)


def _mysql(url: URL) -> Any:
    return pymysql.connect(
        host=url.host,
        port=url.port or 3306,
        user=url.username,
        password=url.password or "",
        database=url.database,
    )


def _postgresql(url: URL) -> Any:
    plain = url.set(drivername="postgresql").render_as_string(hide_password=False)
    return psycopg.connect(plain)


_OPEN: dict[str, Callable[[URL], Any]] = {
    "sqlite": lambda url: sqlite3.connect(str(url.database)),
    "postgresql": _postgresql,
    "mysql": _mysql,
    "mariadb": _mysql,
}
