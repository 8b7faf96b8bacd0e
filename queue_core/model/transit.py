"""Entries on their way from the table, or from a post, to the handler pool."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from queue_core.model.entry import Entry


class Transit(msgspec.Struct, eq=False):
    """Entries that the ledger holds, of which the pool has not got all yet.

    At any moment each id of `held` is with the pool, or waits for room, or is in `stranded()`.

    A step that moves entries on writes that down in here, instead of returning it: the exception
    that cuts off a call, from a signal or for want of memory, takes its answer away as well. Each
    step is one call in C that moves and writes, which no exception from outside cuts in two.
    """

    ready: list[Entry] = []
    """Entries for the pool."""
    held: list[int] = []
    """The ids that the ledger holds."""
    later: list[int] = []
    """Ids that are to wait for room in the pool."""
    waiting: list[None] = []
    """One for each of `later` that waits, in order."""
    submitted: list[None] = []
    """One for each of `ready` that the pool has, in order."""

    def stranded(self) -> list[int]:
        """The ids that are held, and that nobody would run."""
        known = {*self.later[: len(self.waiting)]}
        known.update(entry.record_id for entry in self.ready[: len(self.submitted)])
        return [record_id for record_id in self.held if record_id not in known]


def those_of(entries: Sequence[Entry], ids: Sequence[int]) -> list[Entry]:
    """The entries that have these ids, in order."""
    wanted = set(ids)
    return [entry for entry in entries if entry.record_id in wanted]
