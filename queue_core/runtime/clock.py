"""The clock: every date and every wait of the engine comes from it.

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
from datetime import UTC, datetime
from functools import partial
from typing import Any, Protocol, runtime_checkable

from queue_core.errors import InvalidPostError, NaiveDateTimeError
from queue_core.runtime.arguments import not_allowed
from queue_core.runtime.shown import a_kind, shown, text_of
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


monotonic = continuous()

ANCHORS = 3
"""Readings of both clocks, of which the quickest counts."""
ROUND_TRIP_SECONDS = 0.02
"""Seconds that the answer of a database's clock may take, and be wrong by, without a word."""


def in_utc(date: datetime, *, key: str, queue_name: str | None = None) -> datetime:
    """The same moment in UTC.

    Raises NaiveDateTimeError if `date` has no time zone, InvalidPostError if it lies outside the
    years 1 to 9999 in UTC or is no datetime; `key` names the argument in the message, and
    `queue_name` the queue that it is for, if it is for one.
    """
    subject = f"{queue_name}: {key}" if queue_name else key
    if not isinstance(date, datetime):
        raise InvalidPostError(
            f"{subject} is {a_kind(type(date))}, not a datetime. Nothing was written.",
            key=key,
            value=date,
            queue_name=queue_name,
        )
    try:
        utc = None if date.utcoffset() is None else date.astimezone(UTC)
    except OverflowError as error:
        raise InvalidPostError(
            f"{subject}={date.isoformat()} lies outside the years 1 to 9999 in UTC. Nothing was "
            "written.",
            key=key,
            value=date,
            queue_name=queue_name,
        ) from error
    except Exception as error:
        raise InvalidPostError(
            f"{subject} has a time zone that can't be read: {type(error).__name__}: "
            f"{text_of(error)}. Nothing was written.",
            key=key,
            value=shown(date),
            queue_name=queue_name,
        ) from error
    if utc is None:
        raise NaiveDateTimeError(
            f"{subject}={date.isoformat()} has no time zone. Nothing was written. "
            "Give an aware datetime, such as datetime.now(UTC).",
            key=key,
            value=date,
            queue_name=queue_name,
        )
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
    before = monotonic()
    date = ask()
    took = monotonic() - before
    return ClockReading(date, before + took / 2, took)


def _anchored() -> float:
    """The lead of the machine's clock over the monotonic one, in seconds."""
    # The quickest of several: a thread may be stopped in the middle of one.
    return min(_anchor() for _ in range(ANCHORS))[1]


def _anchor() -> tuple[float, float]:
    """The duration of a reading of both clocks, and their difference."""
    # Two readings around the wall clock: its best estimate is the middle.
    before = monotonic()
    wall = time.time()
    after = monotonic()
    return after - before, wall - (before + after) / 2


class SystemClock:
    """Real time, by the database's clock.

    The monotonic clock carries it from one reading to the next.

    `offset_seconds` is the lead of the database's clock over this machine's.
    """

    def __init__(self, offset_seconds: float = 0.0) -> None:
        self.followed_at = float("-inf")
        """Monotonic time of the last reading of the database's clock."""
        self._waiting = set[Signal]()
        self.adjust(offset_seconds)

    @property
    def offset_seconds(self) -> float:
        """The lead of the database's clock over this machine's, in seconds.

        `adjust` was last given it, or `follow` last read it.
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
        return datetime.fromtimestamp(self._base + monotonic(), UTC)

    def monotonic(self) -> float:
        """As `Clock.monotonic`."""
        return monotonic()

    def wait(self, signal: Signal, timeout_seconds: float | None) -> bool:
        """As `Clock.wait`."""
        # The wait for an entry due in the year 9000 is longer than a lock can wait.
        self._waiting.add(signal)
        try:
            return signal.wait_until(_never, bounded(timeout_seconds))
        finally:
            self._waiting.discard(signal)


def bounded(timeout_seconds: float | None) -> float | None:
    """A time that a lock can wait; None: for ever."""
    return (
        None if timeout_seconds is None else min(max(timeout_seconds, 0.0), threading.TIMEOUT_MAX)
    )
