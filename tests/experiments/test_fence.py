"""ADR 0002: a late finisher is stopped by columns of the row itself, not by asking a node table."""

from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import OperationalError

from tests import requirements as needs
from tests.experiments.sessions import BOUND_SECONDS, session_id, wait_until_blocked

# The zombie: first life of node `a` (epoch 1), which claimed entry 1 (claim_count 1) and finishes
# it late.
_JOINED_TO_THE_NODE = """
    DELETE FROM entries USING nodes
     WHERE entries.record_id = 1 AND nodes.name = entries.processing_owner
       AND nodes.name = 'a' AND nodes.epoch = 1"""
_ENTRY_THEN_NODE = """
    DELETE entries FROM entries STRAIGHT_JOIN nodes ON nodes.name = entries.processing_owner
     WHERE entries.record_id = 1 AND nodes.name = 'a' AND nodes.epoch = 1"""
_NODE_THEN_ENTRY = """
    DELETE entries FROM nodes STRAIGHT_JOIN entries ON nodes.name = entries.processing_owner
     WHERE entries.record_id IN (1, 2) AND nodes.name = 'a' AND nodes.epoch = 1"""
_ASKING_THE_NODE = """
    DELETE FROM entries WHERE record_id = 1 AND processing_owner = 'a'
       AND EXISTS (SELECT 1 FROM nodes WHERE name = 'a' AND epoch = 1)"""
_BY_THE_ROW = """
    DELETE FROM entries WHERE record_id = 1 AND processing_owner = 'a'
       AND claim_count = 1 AND created_date = TIMESTAMP '2026-01-01 00:00:00'"""


@pytest.fixture
def entry_of_node_a(engine: Engine) -> Engine:
    """Entry 1, running on node `a` in its first life."""
    with engine.begin() as connection:
        for statement in (
            "CREATE TABLE nodes (name VARCHAR(64) PRIMARY KEY, epoch INT NOT NULL)",
            """CREATE TABLE entries (
                   record_id BIGINT PRIMARY KEY, processing_owner VARCHAR(64) NOT NULL,
                   claim_count INT NOT NULL, created_date TIMESTAMP NOT NULL)""",
            "INSERT INTO nodes VALUES ('a', 1)",
            "INSERT INTO entries VALUES (1, 'a', 1, TIMESTAMP '2026-01-01 00:00:00')",
        ):
            connection.execute(text(statement))
    return engine


def _rows_deleted_by_the_zombie(engine: Engine, finish: str) -> int:
    """Let `finish` wait for the row while node `a` starts again and takes the entry over."""
    with (
        ThreadPoolExecutor(max_workers=1) as thread,
        engine.connect() as second_life,
        engine.connect() as zombie,
        engine.connect() as observer,
    ):
        second_life.execute(
            text("UPDATE entries SET claim_count = claim_count + 1 WHERE record_id = 1")
        )
        zombie_session = session_id(zombie)
        deleted = thread.submit(lambda: zombie.execute(text(finish)).rowcount)
        wait_until_blocked(observer, zombie_session)
        second_life.execute(text("UPDATE nodes SET epoch = epoch + 1 WHERE name = 'a'"))
        second_life.commit()
        rows = deleted.result(timeout=BOUND_SECONDS)
        zombie.commit()
        return rows


@needs.postgresql
@pytest.mark.parametrize("finish", [_JOINED_TO_THE_NODE, _ASKING_THE_NODE], ids=["join", "exists"])
def test_on_postgresql_a_waiting_delete_that_asks_the_node_table_deletes_the_entry_of_the_next_life(
    entry_of_node_a: Engine, finish: str
) -> None:
    assert _rows_deleted_by_the_zombie(entry_of_node_a, finish) == 1


@needs.mariadb
@pytest.mark.parametrize("finish", [_NODE_THEN_ENTRY, _ASKING_THE_NODE], ids=["join", "exists"])
def test_on_innodb_a_waiting_delete_that_asks_the_node_table_deadlocks_with_the_takeover(
    entry_of_node_a: Engine, finish: str
) -> None:
    with pytest.raises(OperationalError, match="1213"):
        _rows_deleted_by_the_zombie(entry_of_node_a, finish)


@needs.mariadb
def test_on_innodb_a_joining_delete_is_right_only_if_the_optimizer_reads_the_entry_first(
    entry_of_node_a: Engine,
) -> None:
    assert _rows_deleted_by_the_zombie(entry_of_node_a, _ENTRY_THEN_NODE) == 0


@needs.mariadb
def test_on_innodb_a_finish_that_asks_the_node_table_keeps_the_nodes_beat_waiting(
    entry_of_node_a: Engine,
) -> None:
    with entry_of_node_a.connect() as finisher, entry_of_node_a.connect() as beater:
        finisher.execute(text(_ASKING_THE_NODE))
        beater.execute(text("SET innodb_lock_wait_timeout = 0"))
        with pytest.raises(OperationalError, match="1205"):
            beater.execute(text("UPDATE nodes SET epoch = epoch WHERE name = 'a'"))


@needs.many_writers
def test_a_waiting_delete_fenced_by_the_rows_own_columns_deletes_nothing(
    entry_of_node_a: Engine,
) -> None:
    assert _rows_deleted_by_the_zombie(entry_of_node_a, _BY_THE_ROW) == 0


@needs.many_writers
def test_the_node_table_does_stop_a_delete_that_starts_after_the_takeover(
    entry_of_node_a: Engine,
) -> None:
    """Why a test without a waiting statement would not have found the hole."""
    with entry_of_node_a.begin() as second_life:
        second_life.execute(text("UPDATE nodes SET epoch = epoch + 1 WHERE name = 'a'"))

    with entry_of_node_a.begin() as zombie:
        assert zombie.execute(text(_ASKING_THE_NODE)).rowcount == 0


def _id_after_the_newest_row_was_deleted(path: Path, record_id_type: str) -> tuple[int, int]:
    """The id of a finished entry, and the next id after the file was closed and reopened."""
    ids: list[int] = []
    for opening in range(2):
        connection = sqlite3.connect(path)
        if opening == 0:
            connection.execute(
                f"CREATE TABLE entries (record_id {record_id_type}, event_json TEXT)"
            )
        ids.append(
            connection.execute("INSERT INTO entries (event_json) VALUES ('{}')").lastrowid or 0
        )
        connection.execute("DELETE FROM entries")
        connection.commit()
        connection.close()
    return ids[0], ids[1]


@pytest.mark.sqlite
def test_sqlite_gives_the_id_of_a_deleted_row_to_the_next_one(tmp_path: Path) -> None:
    first, second = _id_after_the_newest_row_was_deleted(
        tmp_path / "plain.db", "INTEGER PRIMARY KEY"
    )

    assert first == second


@pytest.mark.sqlite
def test_sqlite_never_reuses_an_autoincremented_id(tmp_path: Path) -> None:
    first, second = _id_after_the_newest_row_was_deleted(
        tmp_path / "autoincrement.db", "INTEGER PRIMARY KEY AUTOINCREMENT"
    )

    assert second > first
