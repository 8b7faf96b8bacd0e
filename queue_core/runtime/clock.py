"""Where every date and every wait of the engine comes from.

All dates are aware, in UTC, with microseconds, and follow the *database's* clock, which is read
again and again; that of an SQLite file is this machine's. Two time lines: `now()` for dates that go
into rows, which jumps if the database's clock was set, and `monotonic()` for leases and time-outs,
which never does.
"""

import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Protocol, runtime_checkable

from queue_core.errors import InvalidPostError, NaiveDateTimeError
from queue_core.runtime.arguments import is_number, not_allowed, of_kind, wait_seconds
from queue_core.runtime.shown import shown
from queue_core.runtime.signal import Signal


def continuous(source: Any = time, platform: str = sys.platform) -> Callable[[], float]:
    """The monotonic clock that goes on while the machine is suspended.

    It is chosen from the clocks of `source`, a module like `time`.

    A lease must run out meanwhile, as it does for the other nodes. Linux calls that clock
    CLOCK_BOOTTIME. On macOS it is CLOCK_MONOTONIC_RAW, and `time.monotonic` stands still there.
    Elsewhere `time.monotonic` is all there is.
    """
    name = "CLOCK_MONOTONIC_RAW" if platform == "darwin" else "CLOCK_BOOTTIME"
    number = getattr(source, name, None)
    monotonic: Callable[[], float] = (
        source.monotonic if number is None else partial(source.clock_gettime, number)
    )
    return monotonic


_monotonic = continuous()

ROUND_TRIP_SECONDS = 0.02
"""What the answer of a database's clock may take, and be wrong by, without a word."""


def in_utc(date: datetime, *, key: str) -> datetime:
    """The same moment in UTC.

    Raises NaiveDateTimeError if `date` has no time zone, InvalidPostError if it lies outside the
    years 1 to 9999 in UTC or is no datetime; `key` names the argument in the message.
    """
    if not isinstance(date, datetime):
        raise InvalidPostError(
            f"{key} is a {type(date).__name__}, not a datetime. Nothing was written.",
            key=key,
            value=date,
        )
    if date.utcoffset() is None:
        raise NaiveDateTimeError(
            f"{key}={date.isoformat()} has no time zone. Nothing was written. "
            "Give an aware datetime, such as datetime.now(UTC).",
            key=key,
            value=date,
        )
    try:
        utc = date.astimezone(UTC)
    except OverflowError as error:
        raise InvalidPostError(
            f"{key}={date.isoformat()} lies outside the years 1 to 9999 in UTC. Nothing was written.",
            key=key,
            value=date,
        ) from error
    # A library's own type would stay one, and not every driver knows it.
    return utc if type(utc) is datetime else datetime.combine(utc.date(), utc.time(), UTC)


def _never() -> bool:
    return False


@runtime_checkable
class Clock(Protocol):
    """Dates, durations and waits."""

    def now(self) -> datetime:
        """Read the time by the database's clock.

        Returns:
            An aware date in UTC, with microseconds.
        """
        ...

    def monotonic(self) -> float:
        """Read a clock that never goes backwards.

        Returns:
            Seconds since some start. Time in which the machine is suspended counts.
        """
        ...

    def wait(self, signal: Signal, timeout_seconds: float | None) -> bool:
        """Wait for a signal.

        Args:
            signal: Lowered when it was raised.
            timeout_seconds: The longest wait; None: for ever; negative: don't wait.

        Returns:
            True if the signal was raised, False if the time has passed.
        """
        ...


@dataclass(frozen=True)
class ClockReading:
    """A reading of the database's clock.

    It was made at some moment of the `took_seconds` around `moment` (monotonic).
    """

    date: datetime
    moment: float
    took_seconds: float

    @property
    def is_close(self) -> bool:
        """Whether the moment is known as well as it ever is."""
        return self.took_seconds <= ROUND_TRIP_SECONDS


def read_clock(ask: Callable[[], datetime]) -> ClockReading:
    """A reading of the database's clock by `ask`, a single statement.

    The statement alone is timed: a COMMIT or a connection that takes long must not look like a
    clock that is wrong.
    """
    before = _monotonic()
    date = ask()
    took = _monotonic() - before
    return ClockReading(date, before + took / 2, took)


def _anchored() -> float:
    """What the machine's clock is ahead of the monotonic one, in seconds."""
    # Two readings around the wall clock: its best estimate is the middle.
    before = _monotonic()
    wall = time.time()
    return wall - (before + _monotonic()) / 2


class SystemClock:
    """Real time, by the database's clock.

    The monotonic clock carries it from one reading to the next.

    `offset_seconds` is what the database's clock is ahead of this machine's.
    """

    def __init__(self, offset_seconds: float = 0.0) -> None:
        self.followed_at = float("-inf")
        """Monotonic time of the last reading of the database's clock."""
        self._waiting = set[Signal]()
        self.adjust(offset_seconds)

    @property
    def offset_seconds(self) -> float:
        """How far the database's clock is ahead of this machine's, in seconds.

        It is what `adjust` was last given, or `follow` last read.
        """
        return self._base - self._anchor

    def adjust(self, offset_seconds: float) -> None:
        """Set the offset to the database's clock, as a whole and not as a change.

        `now()` follows at once, and waits end.

        Args:
            offset_seconds: Seconds that the database's clock is ahead of this machine's.

        Raises:
            ConfigurationError: It leads out of the calendar.
        """
        try:
            datetime.fromtimestamp(time.time() + offset_seconds, UTC)
        except (OverflowError, OSError, TypeError, ValueError) as error:
            raise not_allowed(
                "offset_seconds", offset_seconds, "seconds that stay within the calendar"
            ) from error
        self._anchor = _anchored()
        self._base = self._anchor + offset_seconds
        # They were for a date that is nearer now, or further.
        for signal in tuple(self._waiting):
            signal.set()

    def follow(self, reading: ClockReading) -> float:
        """Adjust to a reading of the database's clock.

        A difference that its round trip may account for is ignored, and so is one below
        `ROUND_TRIP_SECONDS`: dates would jitter for nothing.

        Args:
            reading: The reading.

        Returns:
            Seconds that the database's clock is ahead of this machine's.
        """
        self.followed_at = reading.moment
        shown_here = datetime.fromtimestamp(self._base + reading.moment, UTC)
        ahead = (reading.date - shown_here).total_seconds()
        self._anchor = _anchored()  # somebody may have set this machine's clock
        if abs(ahead) > max(ROUND_TRIP_SECONDS, reading.took_seconds):
            self.adjust(self.offset_seconds + ahead)
        return self.offset_seconds

    def now(self) -> datetime:
        """As `Clock.now`."""
        return datetime.fromtimestamp(self._base + _monotonic(), UTC)

    def monotonic(self) -> float:
        """As `Clock.monotonic`."""
        return _monotonic()

    def wait(self, signal: Signal, timeout_seconds: float | None) -> bool:
        """As `Clock.wait`."""
        # The wait for an entry due in the year 9000 is longer than a lock can wait.
        self._waiting.add(signal)
        try:
            return signal.wait_until(_never, _bounded(timeout_seconds))
        finally:
            self._waiting.discard(signal)


def _bounded(timeout_seconds: float | None) -> float | None:
    return (
        None if timeout_seconds is None else min(max(timeout_seconds, 0.0), threading.TIMEOUT_MAX)
    )


class ManualClock:
    """Time that stands still until a test moves it; waits end by a signal or by that movement."""

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._start = in_utc(start, key="start")
        self._elapsed = timedelta()
        self._waiting: dict[object, tuple[Signal, timedelta | None]] = {}
        self._changed = threading.Condition(threading.Lock())

    def now(self) -> datetime:
        """As `Clock.now`."""
        return self._start + self._elapsed

    def monotonic(self) -> float:
        """As `Clock.monotonic`: the seconds that the clock was advanced."""
        return self._elapsed.total_seconds()

    def advance(self, *, seconds: float) -> None:
        """Move time forward, and wake every waiter whose time has come.

        Args:
            seconds: How far, 0 or more.

        Raises:
            ValueError: It is below 0, no number, or leads past the year 9999.
        """
        if not is_number(seconds) or seconds < 0:
            raise ValueError(
                f"seconds={shown(seconds)}: a number is needed, and time doesn't run backwards"
            )
        with self._changed:
            try:
                elapsed = self._elapsed + timedelta(seconds=seconds)
                self._start + elapsed
            except OverflowError as error:
                raise ValueError(f"seconds={seconds} leads past the end of the calendar") from error
            self._elapsed = elapsed
            waiting = list(self._waiting.values())
        for signal, _ in waiting:
            signal.recheck()

    def advance_to(self, date: datetime) -> None:
        """Move time forward to a date.

        Args:
            date: An aware date.

        Raises:
            ValueError: It is in the past.
            NaiveDateTimeError: It has no time zone.
        """
        self.advance(seconds=(in_utc(date, key="date") - self.now()).total_seconds())

    def wait(self, signal: Signal, timeout_seconds: float | None) -> bool:
        """As `Clock.wait`, in manual time."""
        bounded = _bounded(timeout_seconds)
        deadline = None if bounded is None else self._elapsed + timedelta(seconds=bounded)
        ticket = object()
        with self._changed:
            self._waiting[ticket] = (signal, deadline)
            self._changed.notify_all()
        try:
            return signal.wait_until(lambda: self._passed(deadline), None)
        finally:
            with self._changed:
                del self._waiting[ticket]

    def waiting(self) -> int:
        """Count the threads that wait, with neither their signal raised nor their time come.

        Returns:
            The number of idle loops.
        """
        with self._changed:
            return self._idle()

    def wait_until_waiting(self, count: int, *, timeout_seconds: float = 10.0) -> None:
        """Block until at least `count` threads are idle in `wait`.

        Args:
            count: Their number.
            timeout_seconds: The longest wait, in real time. Default: 10.

        Raises:
            TimeoutError: The time has passed.
            ConfigurationError: An argument is no number.
        """
        of_kind(count, int, key="count")
        timeout_seconds = wait_seconds(timeout_seconds, key="timeout_seconds")
        with self._changed:
            if not self._changed.wait_for(lambda: self._idle() >= count, timeout_seconds):
                raise TimeoutError(
                    f"{self._idle()} of {shown(count)} threads wait after {timeout_seconds} s"
                )

    def _idle(self) -> int:
        return sum(
            not signal.is_set and not self._passed(deadline)
            for signal, deadline in self._waiting.values()
        )

    def _passed(self, deadline: timedelta | None) -> bool:
        return deadline is not None and self._elapsed >= deadline
