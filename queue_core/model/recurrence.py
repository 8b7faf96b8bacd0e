"""The due dates of a recurring schedule: rules only, no clock and no database.

Due dates are aware, in UTC, a pure function of the rule and of the date before; so all nodes agree
on them, and the last fired one is all the state there is.

An interval is elapsed time and counts from `start`; daylight saving doesn't touch it. Cron lines
are read by `queue_core.model.cron`.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import takewhile
from typing import Self

import msgspec

from queue_core.errors import InvalidPostError, StickybusError
from queue_core.model.cron import CRON, cron_rule, invalid, plain_line, zone_of
from queue_core.model.missed_policy import MissedPolicy
from queue_core.runtime.arguments import to_float
from queue_core.runtime.clock import in_utc
from queue_core.runtime.exact import exact_duration, exact_text

MAX_FIRINGS = 1000
"""The most missed firings that FIRE_ALL makes up for: the latest ones."""

_SHORTEST_INTERVAL = timedelta(milliseconds=10)
_LONGEST_INTERVAL = timedelta(days=36_525)
_INTERVAL = f"{_SHORTEST_INTERVAL.total_seconds()} s to a century, as seconds or a timedelta"


class Kind(StrEnum):
    """The reading of the expression of a rule."""

    CRON = "cron"
    INTERVAL = "interval"


@dataclass(frozen=True, kw_only=True)
class Recurrence:
    """The rule of one recurring schedule; due dates begin after `start`.

    `expression` is a cron line of five fields or a macro such as `@daily`, or an interval in
    seconds. Two are equal if their rules are: `start` doesn't count, nor how a cron line is
    written. Raises InvalidPostError if the rule can't work.
    """

    kind: Kind
    expression: str = field(compare=False)
    timezone: str = "UTC"
    missed: MissedPolicy = MissedPolicy.FIRE_ONCE
    start: datetime = field(compare=False)
    _plain: str = field(init=False, repr=False)
    _after: Callable[[datetime], datetime | None] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        start = in_utc(self.start, key="start")
        if not isinstance(self.missed, MissedPolicy):
            raise invalid(
                "missed",
                self.missed,
                ", ".join(f"MissedPolicy.{policy}" for policy in MissedPolicy),
            )
        object.__setattr__(self, "start", start)
        if self.kind is Kind.CRON:
            rule, plain = cron_rule(self.expression, self.timezone), plain_line(self.expression)
        else:
            rule, plain = _interval(self.expression, start), self.expression
        object.__setattr__(self, "_after", rule)
        object.__setattr__(self, "_plain", plain)
        if rule(start) is None:
            raise invalid("cron", self.expression, "an expression that meets a date")

    def next_after(self, previous: datetime | None, now: datetime) -> datetime | None:
        """The first due date after `previous`, also if it has passed by `now`.

        Without `previous` the first after `now` (and after `start`). None if there is none.
        """
        return self._after(max(self.start, now if previous is None else previous))

    def due(
        self,
        last_fired: datetime | None,
        now: datetime,
        policy: MissedPolicy | None = None,
        *,
        grace_seconds: float = 60.0,
    ) -> tuple[list[datetime], datetime | None]:
        """Due dates to fire now, oldest first, and the next one after `now` (None: never again).

        `last_fired` is the last due date that was fired or skipped (None: none since `start`).
        Store the last of the answer's, or `now` if the answer is empty but something was skipped.
        `policy` defaults to `missed`.
        """
        passed = max(self.start, last_fired or self.start)
        policy = policy or self.missed
        since = (
            max(passed, now - timedelta(seconds=grace_seconds))
            if policy is MissedPolicy.SKIP
            else passed
        )
        dates = self._latest(since, now, MAX_FIRINGS if policy is MissedPolicy.FIRE_ALL else 1)
        return dates, self._after(max(passed, now))

    def due_in_calendar(
        self, last_fired: datetime | None, now: datetime
    ) -> tuple[list[datetime], datetime | None] | None:
        """As `due`; None if the dates of a row lead past the calendar's end."""
        try:
            return self.due(last_fired, now)
        except OverflowError:
            return None

    def going_on_from(self, stored: str) -> str | None:
        """The rule as a column holds it, going on from where a stored one stands.

        None if that has other dates. Another policy has the same.
        """
        before = Recurrence.read(stored)
        if before is None or replace(before, missed=self.missed) != self:
            return None
        return replace(self, start=before.start).to_text()

    def to_text(self) -> str:
        """The rule as a column holds it."""
        return msgspec.json.encode(self.to_dict()).decode()

    @classmethod
    def read(cls, text: str) -> Self | None:
        """The rule that `to_text` wrote; None if this version can't read it."""
        try:
            return cls.from_dict(msgspec.json.decode(text))
        except (
            *(StickybusError, msgspec.MsgspecError, AttributeError, LookupError),
            *(OverflowError, RecursionError, TypeError, ValueError),
        ):
            return None

    def to_dict(self) -> dict[str, str]:
        """The rule as plain text values."""
        return {
            "kind": self.kind.value,
            "expression": self.expression,
            "timezone": self.timezone,
            "missed": self.missed.value,
            "start": self.start.isoformat(),
        }

    @classmethod
    def from_dict(cls, rule: Mapping[str, str]) -> Self:
        """The rule that `to_dict` wrote. Raises InvalidPostError or KeyError if it isn't one."""
        return cls(
            kind=Kind(rule["kind"]),
            expression=rule["expression"],
            timezone=rule["timezone"],
            missed=MissedPolicy(rule["missed"]),
            start=datetime.fromisoformat(rule["start"]),
        )

    def _latest(self, passed: datetime, now: datetime, limit: int) -> list[datetime]:
        """The latest `limit` due dates in (passed, now], oldest first.

        Looks back from `now` by growing steps: the cost follows `limit` and not the time that was
        missed, which for an interval of a second and a year without a node is 31 million dates.
        """
        step, dates = timedelta(minutes=1), list[datetime]()
        while passed < now:
            since = now - min(step, now - passed)
            dates = list(self._between(since, now))[-limit:]
            if len(dates) == limit or since == passed:
                break
            step *= 4
        return dates

    def _between(self, after: datetime, until: datetime) -> Iterator[datetime]:
        def dates() -> Iterator[datetime]:
            date = self._after(after)
            while date is not None:
                yield date
                date = self._after(date)

        return takewhile(lambda date: date <= until, dates())


def parse(
    cron: str | None = None,
    every_seconds: timedelta | float | None = None,
    timezone: str = "UTC",
    *,
    start: datetime,
    missed: MissedPolicy = MissedPolicy.FIRE_ONCE,
) -> Recurrence:
    """The rule that exactly one of `cron` and `every_seconds` describes.

    The first due date is the first cron time after `start`, or `start` plus the interval. Raises
    InvalidPostError for a bad expression, one that never fires, or an unknown time zone;
    NaiveDateTimeError for a naive `start`.
    """
    if (cron is None) == (every_seconds is None):
        given = "both" if cron is not None else "neither"
        raise InvalidPostError(
            f"give either cron=… (a cron line) or every=… (seconds or a timedelta), not {given}. "
            "Nothing was scheduled.",
            key="cron",
        )
    timezone = zone_of(timezone).key  # an interval doesn't need it, but it is stored, and shown
    if every_seconds is None:
        line = exact_text(cron)
        if line is None:
            raise invalid("cron", cron, CRON)
        return Recurrence(
            kind=Kind.CRON, expression=line.strip(), timezone=timezone, start=start, missed=missed
        )
    duration = exact_duration(every_seconds)
    seconds = every_seconds if duration is None else duration.total_seconds()
    try:
        expression = f"{to_float(seconds):.15g}"
    except (OverflowError, TypeError, ValueError) as error:
        raise invalid("every", every_seconds, _INTERVAL) from error
    return Recurrence(
        kind=Kind.INTERVAL, expression=expression, timezone=timezone, start=start, missed=missed
    )


def _interval(expression: str, start: datetime) -> Callable[[datetime], datetime | None]:
    try:
        every = timedelta(seconds=float(expression))
    except (ValueError, OverflowError) as error:
        raise invalid("every", expression, _INTERVAL) from error
    if not _SHORTEST_INTERVAL <= every <= _LONGEST_INTERVAL:
        raise invalid("every", expression, _INTERVAL)
    # Whole microseconds: APScheduler's interval trigger counts in floats, and drifts off its own
    # dates.
    return lambda date: start + ((date - start) // every + 1) * every
