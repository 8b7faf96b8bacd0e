"""Named locks of a database: which names are one lock, and who holds it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from sqlalchemy import Engine, text

from sql.database import Database
from tests import requirements as needs
from tests.contract.harness import eventually

NAME = "bus_events_history"
WAITERS = {
    "mariadb": (
        "SELECT count(*) FROM information_schema.processlist WHERE db = database() AND state = "
        "'User lock'"
    ),
    "mysql": (
        "SELECT count(*) FROM performance_schema.processlist WHERE db = database() AND state = "
        "'User lock'"
    ),
}


def test_long_names_that_differ_at_their_ends_are_two_locks(database: Database) -> None:
    """An erasure holds the lock of a history, and that of the files of its archive."""
    table = "t" * 48
    with (
        database.holding(f"{table}_history") as one,
        database.holding(f"{table}_01234567") as other,
        database.holding(f"{table}_history") as again,
    ):
        assert one is not None
        assert other is not None
        assert again is None
        assert database.holder(f"{table}_history") != "another process"


@needs.sqlite
def test_a_lock_whose_file_was_removed_by_hand_ends_without_an_error_and_spares_the_next(
    database: Database,
) -> None:
    file = Path(f"{database.url.database}-{NAME}.lock")
    with ExitStack() as later:
        with database.holding(NAME) as first:
            assert first is not None
            file.unlink()
            assert later.enter_context(database.holding(NAME)) is not None
        with database.holding(NAME) as third:
            assert third is None
    assert not file.exists()
    with database.holding(NAME):
        file.unlink()


@needs.on("mariadb", "mysql")
def test_a_holder_is_named_while_a_session_runs_a_statement_with_an_emoji(
    database: Database, engine: Engine, database_name: str
) -> None:
    busy = f"{engine.url.database}-busy"

    def wait_for(lock: str) -> None:
        with engine.connect() as connection:
            connection.execute(text("SELECT '🚚', get_lock(:lock, 100)"), {"lock": lock})

    with database.holding(NAME), engine.connect() as connection, ThreadPoolExecutor(1) as pool:
        connection.execute(text("SELECT get_lock(:lock, 0)"), {"lock": busy})
        waiting = pool.submit(wait_for, busy)
        try:
            waits = text(WAITERS[database_name])
            eventually(lambda: connection.execute(waits).scalar() == 1, "a session waits")
            assert f" of {engine.url.username}@" in database.holder(NAME)
        finally:
            connection.execute(text("SELECT release_lock(:lock)"), {"lock": busy})
        waiting.result()


@needs.postgresql
def test_who_may_not_see_sessions_is_told_of_another_process(
    database: Database, engine: Engine
) -> None:
    with engine.begin() as connection:
        connection.execute(text("CREATE ROLE onlooker LOGIN PASSWORD 'onlooker'"))
        connection.execute(text("REVOKE SELECT ON pg_stat_activity FROM PUBLIC"))
    other = Database(engine.url.set(username="onlooker", password="onlooker"))
    try:
        with database.holding(NAME), other.holding(NAME) as had:
            assert had is None
            assert other.holder(NAME) == "another process"
    finally:
        other.close()
        with engine.begin() as connection:
            connection.execute(text("DROP ROLE onlooker"))
