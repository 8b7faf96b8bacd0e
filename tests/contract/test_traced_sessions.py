"""A session that SQLAlchemy's events trace runs the same statements and writes the same rows."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import event, select, text

from queue_core.model.posting import Posting
from sql.database import Database
from sql.tables import entry_tables
from tests import requirements as needs
from tests.contract.cluster import Cluster, Peer
from tests.contract.harness import Order, Recorder, listening

POSTS = (1, 3, 30)
"""Entries of a post: by each way in which a database inserts."""
EMPTY = entry_tables("bus_events")


def work(node: Peer, poster: Peer) -> None:
    """Post, claim, fail once, retry and finish."""
    node.handler = Recorder(failures=1)
    for number in POSTS:
        poster.bus.post_many(
            [Posting(event=Order(place), search_key1=7) for place in range(number)]
        )
        node.run()


def history(node: Peer) -> list[tuple[Any, ...]]:
    """All that has ended but for the ids; then nothing is left."""
    columns = [column for column in EMPTY.history.c if column.name != "record_id"]
    with node.store.database.begin() as connection:
        rows = [
            tuple(row)
            for row in connection.execute(select(*columns).order_by(EMPTY.history.c.record_id))
        ]
        connection.execute(text("DELETE FROM bus_events_history"))
    return rows


def test_what_is_traced_writes_the_same_rows(cluster: Cluster) -> None:
    node, poster, traced = cluster.join("a"), cluster.peer("b"), list[str]()
    work(node, poster)
    untraced = history(node)

    def note(_connection: object, _cursor: object, statement: str, *_rest: object) -> None:
        traced.append(statement)

    with (
        listening(node.store.database, before_cursor_execute=note),
        listening(poster.store.database, before_cursor_execute=note),
    ):
        work(node, poster)

    assert history(node) == untraced
    assert len(untraced) == sum(POSTS)
    assert traced


@contextmanager
def sent(*databases: Database) -> Iterator[list[str]]:
    """The statements as SQLite has them, values and all, but for numbers."""
    statements = list[str]()

    def trace(driver: sqlite3.Connection, *_rest: object) -> None:
        driver.set_trace_callback(
            lambda statement: statements.append(re.sub(r"\d+", "0", statement))
        )

    for database in databases:
        for engine in database.engines:
            event.listen(engine, "connect", trace)
        database.kept.close()  # first: the pool that they go back to is replaced by `dispose`
        for engine in database.engines:
            engine.dispose()
    yield statements


@needs.any_database
def test_what_is_traced_sends_the_same_statements(cluster: Cluster) -> None:
    node, poster = cluster.join("a"), cluster.peer("b")
    databases = node.store.database, poster.store.database
    work(node, poster)  # what is asked, and made, once
    history(node)
    with sent(*databases) as statements:
        work(node, poster)
        statements.clear()  # those of new connections
        work(node, poster)
        untraced = list(statements)
        statements.clear()
        with (
            listening(databases[0], before_cursor_execute=lambda *_: None),
            listening(databases[1], before_cursor_execute=lambda *_: None),
        ):
            work(node, poster)

    assert statements == untraced
    assert any(statement.startswith("INSERT INTO") for statement in statements)
