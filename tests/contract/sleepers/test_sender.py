"""The sender of hints, whose session is its own."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest
from pymysql.connections import Connection
from sqlalchemy import URL

from queue_core.claiming.hint_sender import IDLE_SECONDS, REOPEN_SECONDS, WAKE_SECONDS, HintSender
from queue_core.runtime.manual_clock import ManualClock
from sql.mysql.sleepers import SleepersNotifier
from tests import requirements as needs
from tests.contract.harness import eventually
from tests.contract.sleepers.server import Server
from tests.contract.sleepers.sleeper import sleeping

pytestmark = needs.wakes_idle


def test_the_thread_sends_what_was_told_since_the_last_hint(
    sender: tuple[HintSender, ManualClock],
) -> None:
    hints, clock = sender
    hints.tell()
    assert hints.told == 1
    assert hints.turn() == IDLE_SECONDS
    for _ in range(1000):
        hints.tell()
    assert hints.turn() == pytest.approx(WAKE_SECONDS)
    assert hints.told == 1000
    clock.advance(seconds=WAKE_SECONDS)
    assert hints.turn() == IDLE_SECONDS
    assert hints.told == 0


def test_a_hint_without_sleepers_is_one_statement(
    sender: tuple[HintSender, ManualClock], server: Server
) -> None:
    hints, clock = sender
    hints.tell()
    hints.turn()
    driver = notifier_of(hints)._driver
    before = _questions(driver)
    clock.advance(seconds=1.0)
    hints.tell()
    assert hints.turn() == IDLE_SECONDS
    assert _questions(driver) == before + 2  # the hint and this question


def notifier_of(hints: HintSender) -> SleepersNotifier:
    assert isinstance(hints.notifier, SleepersNotifier)
    return hints.notifier


def _questions(driver: Connection[Any]) -> int:
    with driver.cursor() as cursor:
        cursor.execute("SHOW SESSION STATUS LIKE 'Questions'")
        return int(cursor.fetchone()[1])


def test_a_lost_session_is_replaced_before_the_next_hint(
    sender: tuple[HintSender, ManualClock], database_url: URL, server: Server
) -> None:
    hints, clock = sender
    hints.tell()
    hints.turn()
    lost = notifier_of(hints)
    server.kill(lost._driver.thread_id())
    eventually(lambda: not lost.is_open, "the session has ended")
    with sleeping(database_url) as sleeper:
        sleeper.hears()
        server.sleeper()
        clock.advance(seconds=WAKE_SECONDS)
        hints.tell()
        assert hints.turn() == IDLE_SECONDS
        assert hints.notifier is not lost
        sleeper.hears()


def test_a_session_that_is_lost_by_a_hint_is_replaced_a_second_later(
    sender: tuple[HintSender, ManualClock], monkeypatch: pytest.MonkeyPatch
) -> None:
    hints, clock = sender
    hints.tell()
    hints.turn()
    clock.advance(seconds=WAKE_SECONDS)
    notifier = notifier_of(hints)
    notifier._first = f"KILL {notifier._driver.thread_id()} #%s"
    notify = notifier.notify

    def lose(payloads: Collection[str]) -> bool:
        sent = notify(payloads)
        eventually(lambda: not notifier.is_open, "the session has ended")
        return sent

    monkeypatch.setattr(notifier, "notify", lose)
    hints.tell()
    assert hints.turn() == IDLE_SECONDS
    hints.tell()
    assert hints.turn() == pytest.approx(REOPEN_SECONDS)
