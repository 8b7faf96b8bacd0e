"""What a process tells others of: by NOTIFY on PostgreSQL."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import cast

import pytest
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.pool import NullPool

from queue_core.claiming.hint_sender import (
    BUSY_WINDOW_SECONDS,
    IDLE_SECONDS,
    WINDOW_SECONDS,
    HintSender,
    channel,
)
from queue_core.runtime.manual_clock import ManualClock
from sql.postgresql.notify import PostgreSQLNotifier, listening
from stickybus import PersistentBus
from tests import requirements as needs
from tests.contract.conftest import MakeBus
from tests.contract.harness import BOUND_SECONDS, Order, eventually, lifecycle_of

_OTHERS = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"


@contextmanager
def heard(engine: Engine) -> Iterator[Callable[[], bool]]:
    """A function that waits for a hint; False if none came."""
    bell, rope = os.pipe()
    with listening(engine, channel("bus_events"), bell) as hints:
        yield lambda: bool(hints(BOUND_SECONDS))
    os.close(bell)
    os.close(rope)


def answered(hints: HintSender) -> bool:
    """Whether the server has answered the last hint."""
    session = cast("PostgreSQLNotifier", hints.notifier).driver.pgconn
    session.consume_input()
    return not session.is_busy()


@needs.notifies
def test_the_last_of_many_posts_is_told_of_after_its_commit(
    engine: Engine, make_bus: MakeBus
) -> None:
    bus = make_bus()
    with heard(engine) as hint:
        for number in range(200):
            bus.post(Order(number))
        deadline, seen = time.monotonic() + BOUND_SECONDS, 0
        while seen < 200 and time.monotonic() < deadline:
            assert hint()
            seen = bus.ready_count()
    assert seen == 200


@needs.notifies
def test_the_first_hint_opens_the_session_and_the_next_goes_out_at_once(
    engine: Engine, sender: tuple[HintSender, ManualClock]
) -> None:
    hints, clock = sender
    with heard(engine) as hint:
        hints.tell()
        assert hints.told == 1
        assert hints.turn() == IDLE_SECONDS
        assert hint()

        eventually(lambda: answered(hints), "the answer")
        clock.advance(seconds=1.0)
        hints.tell()
        assert hints.told == 0
        assert hint()


@needs.notifies
@pytest.mark.parametrize(
    ("entries", "seconds", "window"),
    [
        pytest.param(1, 1.0, WINDOW_SECONDS, id="one"),
        pytest.param(3, 2 * WINDOW_SECONDS, WINDOW_SECONDS, id="some at once"),
        pytest.param(90, 0.1, WINDOW_SECONDS, id="900 a second"),
        pytest.param(110, 0.1, BUSY_WINDOW_SECONDS, id="1100 a second"),
    ],
)
def test_the_next_hint_comes_the_later_the_more_is_posted(
    sender: tuple[HintSender, ManualClock], entries: int, seconds: float, window: float
) -> None:
    hints, clock = sender
    hints.tell()
    hints.turn()
    eventually(lambda: answered(hints), "the answer")
    clock.advance(seconds=seconds)
    hints.tell(entries)
    assert hints.told == 0

    hints.tell()

    assert hints.told == 1
    assert hints.turn() == pytest.approx(window)
    eventually(lambda: answered(hints), "the answer")
    clock.advance(seconds=2 * window)
    assert hints.turn() == IDLE_SECONDS
    assert hints.told == 0


@needs.notifies
@pytest.mark.parametrize(
    ("entries", "fewest", "most"),
    [pytest.param(1, 100, 100, id="500 a second"), pytest.param(3, 20, 30, id="1500 a second")],
)
def test_few_entries_at_a_time_are_many_if_they_go_on(
    sender: tuple[HintSender, ManualClock], entries: int, fewest: int, most: int
) -> None:
    hints, clock = sender
    hints.tell()
    hints.turn()
    sent = 0
    for _ in range(100):
        eventually(lambda: answered(hints), "the answer")
        clock.advance(seconds=2 * WINDOW_SECONDS)
        hints.tell(entries)
        hints.turn()
        sent += not hints.told
    assert fewest <= sent <= most


@needs.notifies
def test_a_bus_that_is_closed_gives_the_hint_that_is_outstanding(
    engine: Engine, make_bus: MakeBus
) -> None:
    bus: PersistentBus = make_bus(clock=ManualClock())
    hints = lifecycle_of(bus).hints
    hints.running = True
    with heard(engine) as hint:
        hints.tell()
        bus.close()
        assert hint()


@needs.notifies
def test_hints_go_on_after_the_server_has_closed_the_session(
    engine: Engine, sender: tuple[HintSender, ManualClock]
) -> None:
    hints, clock = sender
    hints.tell()
    hints.turn()
    eventually(lambda: answered(hints), "the answer")
    with create_engine(engine.url, poolclass=NullPool).connect() as connection:
        connection.execute(text(f"SELECT pg_terminate_backend(pid, 5000) {_OTHERS}"))
    clock.advance(seconds=1.0)

    with heard(engine) as hint:
        hints.tell()
        assert hints.told == 1
        assert hints.turn() == IDLE_SECONDS
        assert hint()
