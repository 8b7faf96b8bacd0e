"""The rate of a limit: the Generic Cell Rate Algorithm, in its form of virtual scheduling.

ITU-T I.371, annex A. One date stands for all that has started: the theoretical arrival time, at
which the next start would be due if starts came evenly. It lies ahead of the present by as much as
starts have come too early, and they may do so by `burst - 1` intervals.
"""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from queue_core.runtime.arguments import is_number
from queue_core.runtime.exact import exact_duration

_MICROSECOND = timedelta(microseconds=1)
SHORTEST_PER, LONGEST_PER = timedelta(milliseconds=1), timedelta(days=366)
ONE_SECOND = timedelta(seconds=1)
PERS = "seconds or a timedelta, from a millisecond to 366 days"
"""The times that a rate may be about."""


def as_per(per: object) -> timedelta | None:
    """The time that a rate is about, of a timedelta or seconds; None if it can't be one."""
    if is_number(per) and 0 < per <= LONGEST_PER.total_seconds():
        per = timedelta(seconds=per)
    duration = exact_duration(per)
    return duration if duration and SHORTEST_PER <= duration <= LONGEST_PER else None


class Rate(msgspec.Struct, frozen=True):
    """`rate` starts in each `per`, of which `burst` may come at once."""

    rate: int
    per: timedelta
    burst: int

    @classmethod
    def of(cls, rate: int | None, per_microseconds: int | None, burst: int | None) -> Rate | None:
        """The rate of a limit's row; None if it has none."""
        if rate is None or per_microseconds is None or burst is None:
            return None
        return cls(rate, per_microseconds * _MICROSECOND, burst)

    @property
    def interval(self) -> timedelta:
        """From one start to the next, if they come evenly: rounded up, so never too short."""
        return -(-self.per // _MICROSECOND // self.rate) * _MICROSECOND

    def free(self, arrival: datetime, now: datetime) -> int:
        """The number that may start now."""
        ahead = self._arrival(arrival, now) - now
        return max(0, (self.burst * self.interval - ahead) // self.interval)

    def next(self, arrival: datetime, now: datetime) -> datetime:
        """When one may start, at the earliest."""
        return self._arrival(arrival, now) - (self.burst - 1) * self.interval

    def after(self, arrival: datetime, now: datetime, starts: int) -> datetime:
        """The theoretical arrival time after this number of `starts`."""
        return self._arrival(arrival, now) + starts * self.interval

    def _arrival(self, arrival: datetime, now: datetime) -> datetime:
        # Further ahead than starts at this rate can bring it, it is from before the clock was set
        # back, or of a lower rate: one may start. The interval more is for clocks that jitter.
        if arrival - now > (self.burst + 1) * self.interval:
            return now + (self.burst - 1) * self.interval
        return max(arrival, now)
