"""Entries on their way from the table, or from a post, to the pool."""

from __future__ import annotations

from collections.abc import Sequence

from queue_core.model.entry import Entry


class Handing:
    """Held by the ledger, and not yet all with the pool.

    It grows step by step, so that after an exception anywhere it tells what nobody would run.
    """

    __slots__ = ("ids", "later", "ready", "taken", "waiting")

    def __init__(self) -> None:
        self.ids: list[int] = []
        """What is held."""
        self.later: list[int] = []
        self.ready: list[Entry] = []
        self.waiting: list[None] = []
        """One for each of `later` that waits by its id."""
        self.taken: list[None] = []
        """One for each of `ready` that the pool has."""

    def left(self) -> list[int]:
        """Held, and known to nobody who would run it."""
        known = {*self.later[: len(self.waiting)]}
        known.update(entry.record_id for entry in self.ready[: len(self.taken)])
        return [record_id for record_id in self.ids if record_id not in known]


def those_of(entries: Sequence[Entry], ids: Sequence[int]) -> list[Entry]:
    """The entries that have these ids, in order."""
    wanted = set(ids)
    return [entry for entry in entries if entry.record_id in wanted]
