"""A node's knowledge of the lanes that it claims from, and the time of its next look at them.

A look is a read of all lanes; a claim is a write. So a claim goes only where something is known to
be due: by a look, by a hint of another process, or by a date that has come.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta

from queue_core.model.lanes import ANY_NODE, PARKED, SUSPECT, Lane, is_limited
from queue_core.runtime.clock import Clock
from queue_core.storage.store import FIRST_DATE

LOOK_SECONDS = 0.05
"""Shortest pause between two looks while a backlog is claimed, in seconds (ADR 0007).

No benchmark compares it with others.
"""
LOOK_SHARE = 10
"""The same pause as a multiple of the last look's duration; the longer pause counts.

So looks cost a tenth at most.

Over the dead rows that an old snapshot keeps, a look takes 35 to 50 ms
(docs/explanation/performance.md). Benchmark `growth`.
"""
LONGEST_LOOK_SECONDS = 1.0
"""Longest pause between two looks while a backlog is claimed, in seconds (ADR 0007).

An entry that was committed late may wait behind it for this time.
"""
AHEAD = timedelta(milliseconds=5)
"""The time before its date at which an entry is claimed, to start at the date.

A little more than the duration of a claim (ADR 0009).
"""
AFTER_DATE_SECONDS = 0.002
"""Seconds from a date that has come to the look for the next: entries whose date has come go first.

99 of 100 notifications then start within 4.3 ms instead of 5.1 on PostgreSQL (ADR 0019; benchmark
`punctuality`).
"""
LATE = timedelta(seconds=1)
"""A claim without a look finds entries dated up to this time before the last one claimed.

No benchmark compares it with others.
"""
SHORTEST_POLL_SECONDS = 0.01
"""Seconds between looks that find something, where not every commit brings a hint.

No benchmark compares it with others.
"""

OFTEN_SECONDS = 0.05
"""Looks with shorter pauses need no hints: they find a commit as soon as one that goes out late.

No benchmark compares it with others.
"""


class Outlook:
    """The knowledge of each lane, and the time of the next look.

    Its times are monotonic, its dates UTC.

    Three statements hold between any two calls:

    - A lane is in `lanes_with_due` from when an entry in it is known to be due until a claim has
      come back less than full.
    - The next look is at most a poll interval after the last one, or `LONGEST_LOOK_SECONDS` while
      `lanes_with_due` has a lane. It is not before the pause after the last look, unless a look was
      asked for.
    - The next date of a lane, if one is known, is the earliest that was heard of since the last
      look or the last date.

    Callers on any thread may wake, hint and expect; one thread at a time looks and hears.
    """

    def __init__(self, clock: Clock, poll_interval_seconds: float, *, adapts: bool) -> None:
        """`adapts`: not every commit of another process brings a hint.

        Polls then come faster while they find entries of other processes.
        """
        self._clock = clock
        self._longest_poll_seconds = self._poll_seconds = poll_interval_seconds
        self._adapts = adapts
        self._look_at = self._looked_at = 0.0
        self._asked_at = math.inf
        """When a look is due that others have asked for since the last one began.

        Apart from the time that the claim loop sets: it would overwrite a request between its
        reading of that and its writing.
        """
        self._look_pause = LOOK_SECONDS
        self._next_due = dict[Lane, datetime]()
        self._sought_from = dict[Lane, datetime]()
        """The date from which claims seek, by lane.

        While an old snapshot lasts, the index still holds the entries that were taken before.
        """
        self._hinted = set[Lane]()
        self.lanes_with_due = set[Lane]()
        """Lanes in which something is due, as far as is known."""
        self.looks = 0
        """The looks that have found something out."""
        self.finds_parked = False
        """Whether the last look has found parked entries that are due."""

    # -- told by others ---------------------------------------------------------------------------

    def wake(self, since: float = math.inf) -> bool:
        """Look soon, because something may have become claimable.

        False, and nothing changes, if a look has begun after `since`: it has seen that already.
        """
        if self._looked_at > since:
            return False
        self._asked_at = min(
            self._asked_at, self._looked_at + self._look_pause if self.lanes_with_due else 0.0
        )
        return True

    def request_look(self) -> None:
        """Look in the next turn, without regard to the known dates."""
        self._asked_at = 0.0

    def hint(self, lane: Lane) -> None:
        """Another process has committed entries in `lane`, due now more often than not."""
        self._hinted.add(lane)

    def expect(self, lane: Lane, date: datetime) -> bool:
        """An entry of `lane` is due at `date`. True if no earlier date of the lane is known."""
        known = self._next_due.get(lane)  # once: its date may come meanwhile
        first = known is None or date < known
        if first:
            self._next_due[lane] = date
        return first

    # -- learnt by a look -------------------------------------------------------------------------

    @property
    def look_is_due(self) -> bool:
        """Whether it is time to look."""
        return self._clock.monotonic() >= self._next_look

    @property
    def looks_often(self) -> bool:
        """Whether the next looks find entries of other processes soon enough without hints."""
        return self._adapts and self._poll_seconds <= OFTEN_SECONDS

    @property
    def _next_look(self) -> float:
        return min(self._look_at, self._asked_at)

    def look_begins(self) -> None:
        """A look begins."""
        self._asked_at = math.inf  # first: requests from here on are for the next look
        self._looked_at = self._clock.monotonic()
        self._look_at = self._looked_at + self._poll_seconds
        self._passed()

    def look_failed(self) -> None:
        """The look failed: its questions are still open."""
        self._look_at = self._looked_at

    def look_found(self, due: Mapping[Lane, datetime], upcoming: Mapping[Lane, datetime]) -> None:
        """The look has found, by lane, the oldest date that is due, and the next future one."""
        took = self._clock.monotonic() - self._looked_at
        self._look_pause = min(max(LOOK_SECONDS, LOOK_SHARE * took), LONGEST_LOOK_SECONDS)
        self.finds_parked = PARKED in due
        self.looks += 1  # in this order: see `emptied`
        self.lanes_with_due |= due.keys() - {PARKED}
        self._sought_from |= due
        if self._adapts:
            busy = ANY_NODE in due
            self._poll_seconds = min(
                SHORTEST_POLL_SECONDS if busy else 2 * self._poll_seconds,
                self._longest_poll_seconds,
            )
            self._look_at = min(self._look_at, self._looked_at + self._poll_seconds)
        for lane, date in upcoming.items():
            self.expect(lane, date)

    # -- learnt without one -----------------------------------------------------------------------

    def notice_due(self) -> None:
        """The lanes that have something due: others told so, or their next date has come."""
        told = set[Lane]()
        while self._hinted:
            told.add(self._hinted.pop())
        if told:
            # Some of the entries that they told of may be due later.
            self._look_at = min(self._look_at, self._looked_at + LOOK_SECONDS)
        if passed := self._passed():
            # The next entry there is not known; but one whose date has come goes first, and Python
            # runs one thread.
            comes_in = max(0.0, (max(passed.values()) - self._clock.now()).total_seconds())
            self._look_at = min(
                self._look_at, self._clock.monotonic() + comes_in + AFTER_DATE_SECONDS
            )
        self.lanes_with_due |= told | passed.keys()

    def _passed(self) -> dict[Lane, datetime]:
        """The next dates, by lane, that have come or nearly so; they are no longer known then."""
        nearly = self._clock.now() + AHEAD
        passed = {lane: date for lane, date in list(self._next_due.items()) if date <= nearly}
        for lane in passed:
            del self._next_due[lane]
        return passed

    # -- learnt by claims -------------------------------------------------------------------------

    def since(self, lane: Lane) -> datetime:
        """The date from which a claim of `lane` seeks."""
        # Each suspect may be older than the one before, and so may what waits for a place; of both,
        # few are claimed at a time.
        if lane == SUSPECT or is_limited(lane):
            return FIRST_DATE
        return self._sought_from.get(lane, FIRST_DATE)

    def claimed(self, lane: Lane, last: datetime, *, whole: bool) -> None:
        """A claim of `lane` has taken entries up to the date `last`.

        `whole`: it was full, and all of it was due. Otherwise the next entry may be due before
        those that were claimed ahead.
        """
        self._sought_from[lane] = last if whole else max(last, FIRST_DATE + LATE) - LATE

    def emptied(self, lane: Lane, looks: int) -> None:
        """A claim of `lane` has come back less than full.

        `looks` were made before it. Where outcomes claim, a look may have come after it, and have
        found entries that the claim could not.
        """
        self.lanes_with_due.discard(lane)
        if self.looks != looks:
            self.lanes_with_due.add(lane)

    def goes_on(self) -> None:
        """The lanes were claimed from.

        While something is left in one, others are looked at now and then.
        """
        if self.lanes_with_due:
            earliest, latest = (
                self._looked_at + self._look_pause,
                self._looked_at + LONGEST_LOOK_SECONDS,
            )
            self._look_at = min(max(self._look_at, earliest), latest)
            # Not by `max`: it would write infinity over the request of another thread meanwhile.
            if self._asked_at < earliest:  # noqa: PLR1730
                self._asked_at = earliest

    # -- the next time ----------------------------------------------------------------------------

    def seconds_left(self, early: Collection[datetime]) -> float:
        """Seconds until a look or a date; negative if it has passed.

        The dates of entries claimed `early` count, too.
        """
        left = min(self._longest_poll_seconds, self._next_look - self._clock.monotonic())
        dates = [*early, *(date - AHEAD for date in list(self._next_due.values()))]
        return min(left, (min(dates) - self._clock.now()).total_seconds()) if dates else left
