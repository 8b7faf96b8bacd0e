"""Connections of callers, of each kind, and a bus that takes them."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pymysql
import pytest
from psycopg.rows import dict_row, namedtuple_row
from sqlalchemy import URL, Engine
from sqlalchemy.orm import Session

from bus.persistent import PersistentBus
from tests.contract.conftest import MakeBus
from tests.contract.harness import BOUND_SECONDS, Order, Recorder

Connect = Callable[..., Any]


@pytest.fixture
def bus(make_bus: MakeBus, recorder: Recorder) -> PersistentBus:
    """A running bus with one subscriber, which polls often: it hears of no raw commit."""
    bus = make_bus(poll_interval_seconds=0.05)
    bus.subscribe(Order, recorder)
    return bus.start()


@pytest.fixture
def connect(database_url: URL) -> Iterator[Connect]:
    """Opens raw connections with rows of the kind `rows`; all are closed after the test."""
    opened = list[Any]()

    def open_one(rows: str = "tuples", *, autocommit: bool = False) -> Any:
        opened.append(_OPEN[database_url.get_backend_name()](database_url, rows, autocommit))
        return opened[-1]

    yield open_one
    for connection in opened:
        if getattr(connection, "open", True):
            connection.close()


def _open_sqlite(url: URL, rows: str, autocommit: bool) -> sqlite3.Connection:  # noqa: FBT001 -- as the others
    connection = sqlite3.connect(
        str(url.database),
        timeout=BOUND_SECONDS,
        isolation_level=None if autocommit else "DEFERRED",
    )
    connection.row_factory = {"tuples": None, "dicts": _as_dict, "named": sqlite3.Row}[rows]
    return connection


def _as_dict(cursor: sqlite3.Cursor, row: tuple[Any, ...]) -> dict[str, Any]:
    return {column[0]: value for column, value in zip(cursor.description, row, strict=True)}


def _open_postgresql(url: URL, rows: str, autocommit: bool) -> psycopg.Connection[Any]:  # noqa: FBT001
    factory: Any = {"tuples": None, "dicts": dict_row, "named": namedtuple_row}[rows]
    options = {"row_factory": factory} if factory else {}
    plain = url.set(drivername="postgresql").render_as_string(hide_password=False)
    return psycopg.connect(plain, autocommit=autocommit, **options)


def _open_mysql(url: URL, rows: str, autocommit: bool) -> pymysql.Connection[Any]:  # noqa: FBT001
    kinds: dict[str, Any] = {
        "tuples": pymysql.cursors.Cursor,
        "dicts": pymysql.cursors.DictCursor,
        "named": pymysql.cursors.SSDictCursor,
    }
    return pymysql.connect(
        host=url.host,
        port=url.port or 3306,
        user=url.username,
        password=url.password or "",
        database=url.database,
        autocommit=autocommit,
        cursorclass=kinds[rows],
    )


_OPEN: dict[str, Callable[[URL, str, bool], Any]] = {
    "sqlite": _open_sqlite,
    "postgresql": _open_postgresql,
    "mysql": _open_mysql,
}


@pytest.fixture(params=["core", "session", "raw"])
def given(request: pytest.FixtureRequest, engine: Engine, connect: Connect) -> Iterator[Any]:
    """A connection of the caller, of each kind; closed after the test."""
    opening: dict[str, Callable[[], Any]] = {
        "core": engine.connect,
        "session": lambda: Session(engine),
        "raw": lambda: connect("tuples"),
    }
    connection = opening[request.param]()
    yield connection
    connection.close()
