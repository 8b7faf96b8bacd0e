"""Clocks: dates in UTC that don't jump, and waits that end by a signal or by time."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from queue_core.errors import InvalidPostError, NaiveDateTimeError
from queue_core.runtime import clock as clock_module
from queue_core.runtime.clock import (
    Clock,
    ClockReading,
    SystemClock,
    continuous,
    in_utc,
    read_clock,
)
from queue_core.runtime.manual_clock import ManualClock
from queue_core.runtime.signal import Signal

REAL_BOUND_SECONDS = 20.0
HOUR = 3600.0
NEAR = timedelta(milliseconds=100)


def in_thread(call: Callable[[], bool]) -> "Future[bool]":
    pool = ThreadPoolExecutor(1)
    future = pool.submit(call)
    pool.shutdown(wait=False)
    return future


@pytest.mark.parametrize("clock", [SystemClock(), ManualClock()])
def test_now_is_aware_and_in_utc(clock: Clock) -> None:
    assert isinstance(clock, Clock)
    assert clock.now().tzinfo is UTC


def test_the_system_clock_agrees_with_the_machine() -> None:
    before = datetime.now(UTC)
    shown = SystemClock().now()
    assert before - NEAR < shown < datetime.now(UTC) + NEAR


def test_a_thread_that_is_stopped_while_it_reads_the_machines_clock_makes_it_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wall, running, stopped = time.time, clock_module.monotonic, 0.0
    readings = 0

    def read_and_stop() -> float:
        nonlocal stopped
        shown = wall() + stopped
        if readings == 1:
            stopped = 3.0
        return shown

    def read() -> float:
        nonlocal readings
        readings += 1
        return running() + stopped

    monkeypatch.setattr(time, "time", read_and_stop)
    monkeypatch.setattr(clock_module, "monotonic", read)
    clock = SystemClock()

    before = time.time()
    shown = clock.now().timestamp()
    assert before - 0.1 < shown < time.time() + 0.1


def test_the_system_clock_stays_on_course_when_the_machine_is_set_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = SystemClock()
    before = clock.now()
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert timedelta() <= clock.now() - before < timedelta(minutes=1)


def test_the_offset_moves_dates_and_not_the_monotonic_time() -> None:
    clock = SystemClock(offset_seconds=5.0)
    date, moment = clock.now(), clock.monotonic()
    clock.adjust(3605.0)
    assert clock.offset_seconds == 3605.0
    assert timedelta(hours=1) <= clock.now() - date < timedelta(hours=1, minutes=1)
    assert 0 <= clock.monotonic() - moment < 60
    clock.adjust(5.0)
    assert clock.now() - date < timedelta(minutes=1), "adjust sets the offset, it doesn't add to it"


def test_a_clock_follows_another_by_more_than_its_reading_may_be_wrong_and_no_less() -> None:
    clock = SystemClock()

    def follow(*, ahead: float, took: float) -> float:
        """Read a clock that is hours ahead of this machine's; the hours of offset after that."""
        date = datetime.now(UTC) + timedelta(hours=ahead)
        return clock.follow(ClockReading(date, clock.monotonic(), took * HOUR)) / HOUR

    assert follow(ahead=5.0, took=8.0) == pytest.approx(0.0, abs=0.5)
    assert follow(ahead=100.0, took=8.0) == pytest.approx(100.0, abs=0.5)
    before = clock.now() - datetime.now(UTC)
    assert follow(ahead=104.0, took=8.0) == pytest.approx(100.0, abs=0.5)
    assert abs(clock.now() - datetime.now(UTC) - before) < timedelta(hours=3)
    assert follow(ahead=104.0, took=0.01) == pytest.approx(104.0, abs=0.5)


def test_only_the_statement_is_timed_by_which_a_clock_is_read() -> None:
    clock = SystemClock(offset_seconds=-HOUR)
    before = clock.monotonic()
    reading = read_clock(lambda: datetime.now(UTC))
    after = clock.monotonic()
    assert before <= reading.moment - reading.took_seconds / 2
    assert reading.moment + reading.took_seconds / 2 <= after
    assert clock.follow(reading) == pytest.approx(0.0, abs=30)


@pytest.mark.parametrize("step", [3600.0, -3600.0])
def test_a_step_of_the_machines_clock_is_followed_where_that_is_the_databases_and_else_is_a_skew(
    monkeypatch: pytest.MonkeyPatch, step: float
) -> None:
    embedded, served = SystemClock(), SystemClock()
    before, moment = served.now(), served.monotonic()
    wall = time.time
    monkeypatch.setattr(time, "time", lambda: wall() + step)

    shown = datetime.fromtimestamp(time.time(), UTC)
    assert embedded.follow(ClockReading(shown, embedded.monotonic(), 0.0)) == pytest.approx(
        0.0, abs=30
    )
    assert (embedded.now() - before).total_seconds() == pytest.approx(step, abs=60)

    shown -= timedelta(seconds=step)
    assert served.follow(ClockReading(shown, served.monotonic(), 0.0)) == pytest.approx(
        -step, abs=30
    )
    assert (served.now() - before).total_seconds() == pytest.approx(0.0, abs=60)
    assert 0.0 <= served.monotonic() - moment < 60, "leases know no steps"


def test_a_clock_that_is_set_ends_the_waits_for_dates() -> None:
    clock, signal = SystemClock(), Signal()
    waiter = in_thread(lambda: clock.wait(signal, 3600.0))
    deadline = time.monotonic() + REAL_BOUND_SECONDS
    while not waiter.done():
        assert time.monotonic() < deadline
        clock.adjust(3600.0)
    assert waiter.result()


class _Clocks:
    """A module like `time`, of a machine that was suspended for 100 s."""

    def __init__(self, **numbers: int) -> None:
        vars(self).update(numbers)

    @staticmethod
    def monotonic() -> float:
        return 1.0

    @staticmethod
    def clock_gettime(number: int) -> float:
        return 100.0 + number


@pytest.mark.parametrize(
    ("platform", "numbers", "shows"),
    [
        ("linux", {"CLOCK_BOOTTIME": 7, "CLOCK_MONOTONIC_RAW": 4}, 107.0),
        ("darwin", {"CLOCK_MONOTONIC_RAW": 4}, 104.0),
        # It stands still there, as its monotonic clock.
        ("linux", {"CLOCK_MONOTONIC_RAW": 4}, 1.0),
        ("win32", {}, 1.0),
    ],
)
def test_leases_go_by_the_clock_that_goes_on_while_the_machine_is_suspended(
    platform: str, numbers: dict[str, int], shows: float
) -> None:
    assert continuous(_Clocks(**numbers), platform)() == shows


@pytest.mark.parametrize("clock", [SystemClock(), ManualClock()])
def test_a_raised_signal_ends_a_wait_at_once_and_is_lowered(clock: Clock) -> None:
    signal = Signal()
    signal.set()
    signal.set()
    assert clock.wait(signal, 0)
    assert not signal.is_set
    assert not clock.wait(signal, 0)


@pytest.mark.parametrize("clock", [SystemClock(), ManualClock()])
def test_a_cleared_signal_wakes_nobody(clock: Clock) -> None:
    signal = Signal()
    signal.set()
    signal.clear()
    assert not clock.wait(signal, -1)


@pytest.mark.parametrize("clock", [SystemClock(), ManualClock()])
@pytest.mark.parametrize("timeout_seconds", [None, REAL_BOUND_SECONDS, 1e30])
def test_a_signal_from_another_thread_wakes_the_waiter(
    clock: Clock, timeout_seconds: float | None
) -> None:
    signal = Signal()
    waiter = in_thread(lambda: clock.wait(signal, timeout_seconds))
    signal.set()
    assert waiter.result(REAL_BOUND_SECONDS)


def test_no_signal_is_lost_between_two_threads() -> None:
    """Every round needs the other side's signal: a lost one would hang."""
    clock, ping, pong = SystemClock(), Signal(), Signal()
    rounds = 2000

    def answer() -> bool:
        for _ in range(rounds):
            if not clock.wait(ping, REAL_BOUND_SECONDS):
                return False
            pong.set()
        return True

    answers = in_thread(answer)
    for _ in range(rounds):
        ping.set()
        assert clock.wait(pong, REAL_BOUND_SECONDS)
    assert answers.result(REAL_BOUND_SECONDS)


def test_the_system_clock_ends_a_wait_when_its_time_has_passed() -> None:
    clock = SystemClock()
    before = clock.monotonic()
    assert not clock.wait(Signal(), 0.01)
    assert clock.monotonic() - before >= 0.01


def test_manual_time_stands_still_until_it_is_moved() -> None:
    clock = ManualClock(datetime(2026, 5, 1, 12, tzinfo=timezone(timedelta(hours=2))))
    assert clock.now() == clock.now() == datetime(2026, 5, 1, 10, tzinfo=UTC)
    clock.advance(seconds=0.5)
    assert clock.now() == datetime(2026, 5, 1, 10, 0, 0, 500_000, tzinfo=UTC)
    assert clock.monotonic() == 0.5
    clock.advance_to(datetime(2026, 5, 2, 10, tzinfo=UTC))
    assert clock.monotonic() == 86_400
    clock.advance(timedelta(days=1))
    clock.advance(timedelta(days=1), seconds=1)
    assert clock.monotonic() == 3 * 86_400 + 1


def test_manual_time_does_not_run_backwards() -> None:
    clock = ManualClock()
    with pytest.raises(ValueError, match="backwards"):
        clock.advance(seconds=-1)
    with pytest.raises(ValueError, match=r"distance=.*backwards"):
        clock.advance(timedelta(seconds=-1))
    number: Any = 5
    with pytest.raises(ValueError, match="Give a number as seconds="):
        clock.advance(number)
    with pytest.raises(ValueError, match=r"date=2025-\S+ is before the clock's time.*backwards"):
        clock.advance_to(clock.now() - timedelta(microseconds=1))


def test_advancing_ends_the_waits_whose_time_has_come_and_no_other() -> None:
    clock = ManualClock()
    early = in_thread(lambda: clock.wait(Signal(), 0.3))
    late_signal = Signal()
    late = in_thread(lambda: clock.wait(late_signal, 60))
    clock.wait_until_waiting(2)
    clock.advance(seconds=0.1)
    clock.advance(seconds=0.2)
    assert not early.result(REAL_BOUND_SECONDS)
    assert clock.waiting() == 1
    late_signal.set()
    assert late.result(REAL_BOUND_SECONDS)
    assert clock.waiting() == 0


def test_a_waiter_that_was_signalled_is_not_idle_any_more() -> None:
    clock, signal = ManualClock(), Signal()
    go_on = threading.Event()

    def loop() -> bool:
        woken = clock.wait(signal, None)
        go_on.wait(REAL_BOUND_SECONDS)
        return clock.wait(signal, None) and woken

    waiter = in_thread(loop)
    clock.wait_until_waiting(1)
    signal.set()
    assert clock.waiting() == 0
    with pytest.raises(TimeoutError, match="0 of 1 threads"):
        clock.wait_until_waiting(1, timeout_seconds=0.01)
    go_on.set()
    clock.wait_until_waiting(1)
    signal.set()
    assert waiter.result(REAL_BOUND_SECONDS)


def test_a_naive_date_is_refused_by_name() -> None:
    with pytest.raises(
        NaiveDateTimeError, match=r"at=2026-01-01T00:00:00 has no time zone"
    ) as caught:
        in_utc(datetime(2026, 1, 1), key="at")  # noqa: DTZ001 -- the naive one is the case
    assert caught.value.key == "at"


def test_a_date_that_utc_can_not_hold_is_refused() -> None:
    with pytest.raises(InvalidPostError, match="outside the years"):
        in_utc(datetime.max.replace(tzinfo=timezone(timedelta(hours=-1))), key="at")


def test_what_is_no_datetime_is_refused() -> None:
    with pytest.raises(InvalidPostError, match="at is a str, not a datetime"):
        in_utc("2026-01-01", key="at")  # type: ignore[arg-type]  # untyped callers exist
