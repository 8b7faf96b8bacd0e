"""Hands what has committed, and is held in the ledger, over to the pool.

An exception may come at any place of it, from outside too: a signal's, a time limit's, for want of memory. What the pool
does not have then is held no longer, and soon swept: so it runs, and once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

from sqlalchemy.exc import SQLAlchemyError

from queue_core.holding.holdings import Holdings, claims_of
from queue_core.model.entry import Entry

FROM_MEMORY = 2_000
"""Entries that may be handed to the pool from memory before they are kept by id only."""
LARGE_PAYLOAD = 8_192
"""Characters from which a payload is not kept in memory while its entry waits."""


class Submit(Protocol):
    """Gives the pool entries, and the lease under which they were claimed; see `Dispatcher.submit`."""

    def __call__(self, entries: Sequence[Entry], lease: int, taken: list[None] | None = None) -> None:
        """See the class."""
        ...


class Handing:
    """Born claimed entries on their way: held by the ledger, and not yet all with the pool."""

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


class HandOver:
    """See the module.

    `room` says how many entries the pool takes now; `wake` wakes the claim loop, and `look` has it look for whatever is
    there, and sweep.
    """

    def __init__(
        self,
        holdings: Holdings,
        *,
        submit: Submit,
        room: Callable[[], int],
        wake: Callable[[], None],
        look: Callable[[], None],
    ) -> None:
        self._holdings = holdings
        self._ledger = holdings.ledger
        self._submit = submit
        self._room = room
        self._wake = wake
        self._look = look

    def run(self, entries: Sequence[Entry], lease: int, handing: Handing) -> None:
        """Run what `handing` holds: from memory if there is room, else later by id. For who calls `leave` on an exception."""
        if not self._holdings.running:
            # Their commit has outlasted the stop of this node, or its lease. It is no error of the post.
            self._ledger.give_up(claims_of(entries))
            with suppress(SQLAlchemyError):  # then they are for the sweep, or for the reaper
                self._holdings.release(claims_of(entries))
            return
        room = FROM_MEMORY - self._ledger.active
        now_room = self._room()
        for place, entry in enumerate(entries):
            small = len(entry.event_json or entry.event_bytes or "") <= LARGE_PAYLOAD
            if not self._ledger.waiting and (place < now_room or (small and place < room)):
                handing.ready.append(entry)
            else:
                handing.later.append(entry.record_id)
        if handing.later:
            self._ledger.wait(handing.later, handing.waiting)
        self._submit(handing.ready, lease, handing.taken)
        if handing.later:
            self._wake()

    def leave(self, handing: Handing) -> None:
        """Call it after an exception. What was not handed over may have committed: the sweep finds it."""
        self._ledger.give_up((record_id, 1) for record_id in handing.left())
        self._look()
