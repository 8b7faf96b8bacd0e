"""The times at which a node looks for commits of callers' transactions.

What links and limit keys wait for is looked for then; posts: `posting.announced_commits`.
"""

from __future__ import annotations

FIRST_LOOK_SECONDS = 0.0005
LOOKS = 12
"""Seconds from the first look after an announcement to the second, and the number of looks.

Each pause is twice the one before: 12 looks take a second in all. Why a look has to be repeated
is in ADR 0004; no benchmark compares these numbers with others.
"""


class CommitLooks:
    """The times of looks (monotonic): soon after an announcement, else once in a while.

    Any thread may announce; one looks. Entries that are announced during a look are for the next
    ones.
    """

    def __init__(self, seconds: float) -> None:
        """`seconds` lie between two looks, unless something was announced."""
        self._seconds = seconds
        self._look_at = 0.0
        self._asked = 0
        """Looks that were asked for since the last one began. Only this do other threads write."""
        self._left = 0
        """Looks that are left of those that were asked for before."""

    @property
    def next_look(self) -> float:
        """The time of the next look."""
        return 0.0 if self._asked else self._look_at

    def announce(self) -> None:
        """A caller's transaction has ended, or is about to."""
        self._asked = LOOKS

    def look_now(self) -> None:
        """There is something to find already."""
        self._asked = self._asked or 1

    def begin(self, now: float) -> bool:
        """Whether it is time to look."""
        if now < self.next_look:
            return False
        # If this look fails, as while the database is away, there is another.
        self._look_at = now + self._seconds
        asked, self._asked = self._asked, 0
        self._left = max(self._left, asked)
        return True

    def end(self, now: float, *, found: bool, more: bool) -> None:
        """A look that began `now` has ended. `more`: there may be more than it has found."""
        if more:
            pause = 0.0
        elif self._left > 0 and not found:
            pause = FIRST_LOOK_SECONDS * 2 ** (LOOKS - self._left)
        else:
            pause = self._seconds
        self._left = max(0, self._left - 1)
        self._look_at = now + pause
