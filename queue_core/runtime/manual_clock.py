"""The clock of tests, whose time stands still until they move it."""

import threading
from datetime import UTC, datetime, timedelta

from queue_core.runtime.arguments import is_number, of_kind, wait_seconds
from queue_core.runtime.clock import bounded, in_utc
from queue_core.runtime.shown import shown
from queue_core.runtime.signal import Signal


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

    def advance(self, distance: timedelta = timedelta(), *, seconds: float = 0.0) -> None:
        """Move time forward, and wake every waiter whose time has come.

        Args:
            distance: How far, 0 or more. Default: 0.
            seconds: Seconds on top of it, 0 or more. Default: 0.

        Raises:
            ValueError: One is below 0, of another kind, or leads past the year 9999.
        """
        if not _leads_on(distance):
            raise ValueError(
                f"distance={shown(distance)}: a timedelta is needed, and time doesn't run "
                "backwards. Give a number as seconds=…"
            )
        if not is_number(seconds) or seconds < 0:
            raise ValueError(
                f"seconds={shown(seconds)}: a number is needed, and time doesn't run backwards"
            )
        with self._changed:
            try:
                elapsed = self._elapsed + distance + timedelta(seconds=seconds)
                self._start + elapsed
            except OverflowError as error:
                raise ValueError(
                    f"distance={distance}, seconds={seconds} leads past the end of the calendar"
                ) from error
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
        distance = in_utc(date, key="date") - self.now()
        if distance < timedelta():
            raise ValueError(
                f"date={date.isoformat()} is before the clock's time, {self.now().isoformat()}: "
                "time doesn't run backwards"
            )
        self.advance(distance)

    def wait(self, signal: Signal, timeout_seconds: float | None) -> bool:
        """As `Clock.wait`, in manual time."""
        seconds = bounded(timeout_seconds)
        deadline = None if seconds is None else self._elapsed + timedelta(seconds=seconds)
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
            timeout_seconds: The longest wait, in real time, 0 or more. Default: 10.

        Raises:
            TimeoutError: The time has passed.
            ConfigurationError: An argument is not allowed.
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


def _leads_on(distance: object) -> bool:
    return isinstance(distance, timedelta) and distance >= timedelta()
