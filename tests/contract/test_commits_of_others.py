"""Hints of others' commits, by the database's own way: none is missed by a slow listener."""

from __future__ import annotations

import os
import queue
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import URL

from sql.database import Database
from sql.sqlite.file_watch import OWN_WAKE_SECONDS, TICK_SECONDS
from sql.watching import Heard, Watch
from tests import requirements as needs
from tests.contract.harness import BOUND_SECONDS, eventually
from tests.contract.hearing import hearing


class Clock:
    """Time as the listener sees it: as if its thread had been stopped for a while."""

    def __init__(self) -> None:
        self.stopped_for = self.stops_for = 0.0
        self.stands_at: float | None = None
        self.readings = 0

    def __call__(self) -> float:
        """The time. The thread stops after it was told, for `stops_for` seconds."""
        now = time.monotonic() + self.stopped_for if self.stands_at is None else self.stands_at
        self.stopped_for += self.stops_for
        self.stops_for = 0.0
        self.readings += 1
        return now

    def wait(self, readings: int) -> None:
        """Wait until the listener has read the clock `readings` more times."""
        until = self.readings + readings
        eventually(lambda: self.readings >= until, "the listener reads the clock")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def hints(database: Database, clock: Clock) -> Iterator[queue.Queue[Heard]]:
    """All hints so far that were not taken yet."""
    with hearing(database, Watch("orders", clock)) as hints:
        yield hints


@pytest.fixture
def heard(hints: queue.Queue[Heard]) -> Callable[[], Heard]:
    """Waits for the next hint."""
    return lambda: hints.get(timeout=BOUND_SECONDS)


@needs.heard_commits
def test_one_hint_comes_first(heard: Callable[[], Heard]) -> None:
    """What was committed between a claim and the beginning of the watch is claimed then."""
    assert heard().payload is None


@needs.sqlite
@pytest.mark.parametrize("stops_before_its_look", [True, False])
def test_a_commit_within_the_same_tick_of_the_files_clock_is_heard_by_a_thread_that_was_stopped(
    database_url: URL, heard: Callable[[], Heard], clock: Clock, *, stops_before_its_look: bool
) -> None:
    heard()
    assert database_url.database is not None
    log = Path(f"{database_url.database}-wal")
    with closing(sqlite3.connect(database_url.database, isolation_level=None)) as other:
        other.execute("CREATE TABLE notes (note TEXT)")
        heard()
        for _ in range(20):
            # The log begins anew: commits that follow don't change its size.
            other.execute("PRAGMA wal_checkpoint(RESTART)")
            clock.stops_for = 10.0 if stops_before_its_look else 0.0
            began = time.monotonic()
            other.execute("INSERT INTO notes VALUES ('a')")
            heard()
            if stops_before_its_look:
                clock.wait(2)
            before = log.stat()
            other.execute("INSERT INTO notes VALUES ('b')")
            if time.monotonic() - began > TICK_SECONDS / 2:
                break  # this thread was stopped as well: it was no longer the same tick
            clock.stopped_for += 0.0 if stops_before_its_look else 10.0
            os.utime(log, ns=(before.st_atime_ns, before.st_mtime_ns))
            assert log.stat().st_size == before.st_size
            heard()


@needs.sqlite
def test_the_commit_of_a_callers_post_is_not_taken_for_that_of_others(
    database_url: URL, database: Database, hints: queue.Queue[Heard], clock: Clock
) -> None:
    """What it has posted is looked for anyway; a look for more comes a little later."""
    hints.get(timeout=BOUND_SECONDS)
    assert database_url.database is not None
    with closing(sqlite3.connect(database_url.database, isolation_level=None)) as caller:
        clock.stands_at = time.monotonic()
        caller.execute("BEGIN IMMEDIATE")
        caller.execute("CREATE TABLE notes (note TEXT)")
        database.dialect.writes_for_caller()
        clock.wait(10)
        caller.execute("COMMIT")
        clock.wait(10)
        assert hints.empty()

        clock.stands_at += OWN_WAKE_SECONDS * 2
        hints.get(timeout=BOUND_SECONDS)

        caller.execute("INSERT INTO notes VALUES ('another process')")
        hints.get(timeout=BOUND_SECONDS)
