"""Groups: what they count, and that their callbacks are posted exactly once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from queue_core.model.entry import Entry
from queue_core.model.states import State
from stickybus import GroupStatus
from tests.properties.life.jobs import Jobs, number_of

CALLBACKS = 1_000_000
"""The numbers of callbacks begin here."""

Counts = tuple[int, int, int, int]


@dataclass
class Group:
    """What the model knows of a group."""

    sealed: bool = False
    frozen: Counts | None = None
    """Its counts when it was complete."""
    posted: set[int] = field(default_factory=set)
    """Ids under which its callbacks were posted."""


class Groups:
    """All groups, by their ids."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs
        self.known = dict[int, Group]()

    def open_one(self, place: int) -> int | None:
        """One of the newest that take members."""
        found = [group_id for group_id, group in self.known.items() if not group.sealed]
        return found[-1 - place] if place < len(found) else None

    def _counts(self, group_id: int) -> Counts:
        members = [job.state for job in self._jobs if job.group == group_id]
        found = Counter(members)
        return len(members), found[State.PROCESSED], found[State.FAILED], found[State.REMOVED]

    def learn(self, entries: Iterable[Entry]) -> None:
        """Note the callbacks among what stands in the tables."""
        for entry in _callbacks(entries):
            self.known[_group(entry)].posted.add(entry.origin_id or entry.record_id)

    def check(self, statuses: Iterable[GroupStatus], entries: Iterable[Entry]) -> None:
        """Assert that groups count what has ended, and have posted what they should."""
        for status in statuses:
            group = self.known[status.group_id]
            counts = status.total, status.succeeded, status.failed, status.cancelled
            if group.frozen is None:
                assert counts == self._counts(status.group_id), status
                if status.completed_date is not None:
                    assert (group.sealed, status.live) == (True, 0), status
                    group.frozen = counts
            assert group.frozen in {None, counts}, status
            assert len(group.posted) == (0 if group.frozen is None else 2), status
        for entry in _callbacks(entries):
            frozen = self.known[_group(entry)].frozen
            assert frozen is not None
            assert number_of(entry) % 10 in {0, 1 if frozen[2:] == (0, 0) else 2}


def _callbacks(entries: Iterable[Entry]) -> list[Entry]:
    return [entry for entry in entries if number_of(entry) >= CALLBACKS]


def _group(entry: Entry) -> int:
    return int(entry.captured["group_id"])
