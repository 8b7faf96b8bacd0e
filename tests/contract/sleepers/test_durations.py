"""How long is slept, and rested in between."""

from __future__ import annotations

import queue
import threading
from contextlib import closing
from typing import Any

import pytest
from pymysql.connections import Connection
from sqlalchemy import URL

from queue_core.runtime.manual_clock import ManualClock
from sql.database import Database
from sql.mysql import sleepers
from sql.mysql.dialect import MySQL
from sql.mysql.sleepers import REST_SECONDS
from sql.watching import Bell
from tests import requirements as needs
from tests.contract.conftest import MakeBus
from tests.contract.harness import BOUND_SECONDS, elsewhere, eventually
from tests.contract.sleepers.idle import MINUTES
from tests.contract.sleepers.server import SLEEP, Server
from tests.contract.sleepers.sleeper import ring, sleeping

pytestmark = needs.wakes_idle


def test_the_sleep_of_a_stopped_node_is_not_waited_for(
    make_bus: MakeBus, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sleepers, "SLEEP_SECONDS", 3600)
    bus = make_bus(poll_interval_seconds=MINUTES)
    bus.start()
    server.sleeper(SLEEP.replace("30", "3600"))
    assert elsewhere(bus.stop)
    eventually(lambda: not server.sleepers(SLEEP.replace("30", "3600")), "the server ends it, too")


def test_one_who_has_slept_its_time_sleeps_on_and_is_woken(
    database_url: URL, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends, woken = list[bool | None](), sleepers._woken

    def counted(*arguments: Any) -> bool | None:
        ends.append(woken(*arguments))
        return ends[-1]

    monkeypatch.setattr(sleepers, "SLEEP_SECONDS", 1)
    monkeypatch.setattr(sleepers, "_woken", counted)
    with sleeping(database_url) as sleeper:
        for _ in range(3):
            sleeper.hears()  # others may have committed between two sleeps
        assert ends == [False, False]
        server.sleeper(SLEEP.replace("30", "1"))
        ring(database_url)
        eventually(lambda: any(ends), "it is woken")


def test_a_sleep_may_last_longer_than_a_statement(database_url: URL) -> None:
    database = Database(database_url, statement_timeout_seconds=1.0)
    assert isinstance(database.dialect, MySQL)
    driver = sleepers._session(database.engine, f"{database.dialect._statement_limit} = 0")
    with closing(database), closing(driver), driver.cursor() as cursor:
        cursor.execute("SELECT SLEEP(1.5)")
        assert cursor.fetchall() == ((0,),)


def test_a_process_that_looks_often_does_not_sleep(database_url: URL, server: Server) -> None:
    often = threading.Event()
    asked = threading.Event()

    def looks_often() -> bool:
        asked.set()
        return often.is_set()

    with sleeping(database_url, looks_often=looks_often) as sleeper:
        sleeper.hears()
        server.sleeper()
        often.set()
        ring(database_url)
        sleeper.hears()
        asked.clear()
        assert asked.wait(BOUND_SECONDS)
        assert not server.sleepers()
        assert sleeper.heard.empty()
        often.clear()
        sleeper.hears()
        server.sleeper()


class _Rests(Bell):
    """A bell that tells how long its waiter would have waited."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = queue.Queue[float]()

    def wait(self, seconds: float) -> None:
        self.seconds.put(seconds)


def test_rests_grow_while_others_take_what_is_posted_until_nobody_posts_for_long(
    database_url: URL, server: Server
) -> None:
    clock, rests = ManualClock(), _Rests()
    with sleeping(database_url, clock=clock, bell=rests) as sleeper:
        sleeper.hears()
        for rest in (0.1, 0.2, 0.4, 0.8, 1.0, 1.0):
            server.sleeper()
            ring(database_url)
            assert rests.seconds.get(timeout=BOUND_SECONDS) == rest
        server.sleeper()
        clock.advance(seconds=2.0)
        ring(database_url)
        assert rests.seconds.get(timeout=BOUND_SECONDS) == REST_SECONDS


def test_the_first_hint_asks_for_a_look_that_begins_after_the_sleep_was_sent(
    database_url: URL, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One from before may have missed what was committed while nobody slept."""
    clock, sent = ManualClock(), list[float]()
    name = "_execute_command"
    execute = getattr(Connection, name)

    def executed(connection: Connection[Any], command: int, statement: str | bytes) -> None:
        execute(connection, command, statement)
        if statement == SLEEP:
            clock.advance(seconds=1.0)
            sent.append(clock.monotonic())

    monkeypatch.setattr(Connection, name, executed)
    with sleeping(database_url, clock=clock) as sleeper:
        assert [sleeper.hears().at] == sent
