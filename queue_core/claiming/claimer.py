"""The claimer takes due entries from the lanes for this node, and hands them to the pool.

A claim is one statement on one lane. It takes no more entries than the pool has room for. The
ledger holds each entry from its claim to the write of its outcome. Entries that are born claimed
(`posting.poster` says which) don't come through here, but through `posting.posted_hand_over`.
Entries with a date, and all retries, do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import datetime

from queue_core.claiming.budget import Budget
from queue_core.claiming.claimed_hand_over import ClaimedHandOver
from queue_core.claiming.outlook import AHEAD, Outlook
from queue_core.holding.holdings import Holdings
from queue_core.metrics import Metrics
from queue_core.model.lanes import ANY_NODE, SUSPECT, Lane
from queue_core.running.pools import Pools
from queue_core.runtime.signal import Signal
from queue_core.storage.places import Claimed
from sql.statements.claims import Claim


class Claimer:
    """The claims of one bus or service. `awake` wakes its claim loop."""

    def __init__(self, holdings: Holdings, metrics: Metrics, pools: Pools, awake: Signal) -> None:
        self._holdings = holdings
        self._config = holdings.config
        self._clock = holdings.clock
        self._ledger = holdings.ledger
        self._store = holdings.store
        self.metrics = metrics
        self._hand_over = ClaimedHandOver(holdings, pools)
        self._awake = awake
        self._along_from, self._along_failed = ANY_NODE, False
        """The lane of the last claim along with outcomes, and whether one has failed.

        A failure counts until the next turn of the claim loop.
        """
        self._goes_along = holdings.store.database.dialect.capabilities.one_writer
        self._full = dict[Lane, int]()
        """The lanes of limits that had no more places, and how many this node had of them."""
        self.reconfigured()

    def reconfigured(self) -> None:
        """Take the settings of the configuration, while nothing is claimed."""
        self._outlook = Outlook(
            self._clock,
            self._config.poll_interval_seconds,
            adapts=not self._store.database.dialect.capabilities.hears_commits,
        )
        self._budget = Budget(self._config, self._ledger, self._holdings.pace)

    # -- wake-ups ---------------------------------------------------------------------------------

    def wake(self, since: float = math.inf) -> None:
        """Read the lanes soon, because something may have become claimable.

        Does nothing if a look has begun after `since` (monotonic): it has already seen it.
        """
        if self._outlook.wake(since):
            self._awake.set()

    def turn_soon(self) -> None:
        """Let the claim loop take its next turn now."""
        self._awake.set()

    def look(self) -> None:
        """Look in the next turn, without regard to the known dates."""
        self._outlook.request_look()
        self._awake.set()

    def hint(self, lane: Lane) -> None:
        """Another process has committed entries in `lane`: claim there next, without a look."""
        self._outlook.hint(lane)

    def expect(self, date: datetime) -> None:
        """An entry of this node's lane is committed and due at `date` (UTC)."""
        if date <= self._clock.now():
            self.wake()
        elif self._outlook.expect(self._holdings.return_lane, date):
            self._awake.set()

    def freed(self) -> None:
        """Less is held than before: claim on where the last claims left something."""
        # Read after the ledger was freed, as the claim loop marks a lane before it reads the room.
        for lane, held in [*self._full.items()]:
            self._try_again(lane, held)
        if self._outlook.lanes_with_due or self._ledger.waiting:
            self._awake.set()

    def _try_again(self, lane: Lane, held: int) -> None:
        """Claim from the lane of a limit if this node has fewer places of it than it `held`."""
        if self._ledger.held_from(lane) < held and self._full.pop(lane, None) is not None:
            self.hint(lane)
            self._awake.set()

    def begins_to_wait(self, record_id: int) -> None:
        """Note that a held entry begins to wait for a serial handler.

        It holds no thread while it waits.
        """
        self._ledger.wait_for_turn(record_id)
        self.freed()

    def waits_no_longer(self, record_id: int) -> None:
        """Note that the turn of an entry that waited for a serial handler has come."""
        self._ledger.take_turn(record_id)

    # -- from this process ------------------------------------------------------------------------

    def forget(self, besides: Collection[tuple[int, int]] = ()) -> None:
        """Hold nothing that was claimed before the node was joined, `besides` some.

        Such claims were given back, or belong to the reaper.
        """
        self._hand_over.forget(besides)

    def load_waiting(self) -> None:
        """Read the payloads of entries that waited by id, as far as there is room."""
        while self._ledger.waiting and (room := self.room()) > 0:
            self._hand_over.load(room)

    # -- from the lanes ---------------------------------------------------------------------------

    def claim_due(self) -> None:
        """Claim once from each lane that may hold something due, as far as there is room."""
        if self._outlook.look_is_due:
            self._look()
        self.claim_known()
        self._outlook.goes_on()

    def claim_known(self) -> None:
        """As `claim_due`, without a look: where something is known to be due."""
        self._outlook.notice_due()
        for lane in self._open_lanes():
            with self._budget.booked(lane) as limit:
                if limit:
                    self._claim(lane, limit)

    def _open_lanes(self) -> Iterator[Lane]:
        """The lanes that the claim loop may claim from now.

        Suspects come last, because one of them may kill this process.
        """
        # Entries that wait for a place have waited longer than those that come.
        limited = self._holdings.places.lanes.values()
        for lane in (
            (SUSPECT,)
            if self._left_to_outcomes
            else (*limited, self._holdings.own_lane, ANY_NODE, SUSPECT)
        ):
            if lane in self._outlook.lanes_with_due and self._budget.limit(lane) > 0:
                yield lane

    # -- along with outcomes ----------------------------------------------------------------------

    def in_turn(self) -> None:
        """Begin a turn of the claim loop: hand over the due entries that were claimed ahead."""
        self._along_failed = False
        self._hand_over.submit_early()  # before all that needs the database

    def claim_along(
        self, ending: Collection[int], write: Callable[[Claim | None], Claimed | None]
    ) -> None:
        """Write outcomes by `write`, and let their transaction claim the next entries as well.

        Where writers take turns, one transaction for both saves a turn. Elsewhere, or when there is
        nothing to claim, `write` gets None instead of a claim.

        `ending` holds the ids of the outcomes: their places in the pool count as free. `write`
        returns the entries that the claim took, or None if it made no claim.
        """
        lane, epoch, looks = self._lane_along(ending), self._holdings.epoch, self._outlook.looks
        if lane is None:
            write(None)
            return
        self._along_from = lane
        try:
            with (
                self._holdings.gates.claiming_along() as mine,
                self._budget.booked(lane, ending) as limit,
            ):
                claim = self._to_claim(lane, limit) if mine and limit else None
                held = self._places_held()
                claimed = write(claim)
                if claimed is not None:
                    self._has_claimed(lane, limit, claimed, epoch, held, looks=looks)
        except BaseException:
            # The claim may have been the cause: the next outcomes are written without one.
            self._along_failed = True
            self._holdings.doubt()  # its COMMIT may have taken effect
            raise
        finally:
            self._awake.set()

    def _to_claim(self, lane: Lane, limit: int) -> Claim:
        return self._holdings.moves.to_claim(
            lane, self._holdings.name, limit, self._outlook.since(lane), AHEAD
        )

    def _lane_along(self, ending: Collection[int]) -> Lane | None:
        """The lane that `claim_along` claims from; None if it makes no claim."""
        if self._goes_along and self._holdings.running and not self._along_failed:
            # In turns: entries that wait in one lane must not keep the other waiting.
            limited = self._holdings.places.lanes.values()
            lanes = (*limited, self._holdings.own_lane, ANY_NODE)
            for lane in sorted(lanes, key=self._along_from.__eq__):
                if lane in self._outlook.lanes_with_due and self._budget.limit(lane, ending) > 0:
                    return lane
        return None

    @property
    def _left_to_outcomes(self) -> bool:
        """Whether the claim loop leaves claims to outcomes that come soon.

        Its threads have enough to do until then.
        """
        return self._goes_along and self._budget.suffices

    # -- how much ---------------------------------------------------------------------------------

    def pause(self) -> float:
        """Seconds until something is to be done, as far as is known now."""
        pause = self._outlook.seconds_left(self._hand_over.early_dates)
        # Not `any`: the lane of any node has an empty name.
        if (self._ledger.waiting and self.room() > 0) or [*self._open_lanes()]:
            return 0.0
        return max(0.0, pause)

    def looks_often(self) -> bool:
        """Whether looks find entries of other processes soon by themselves."""
        return self._outlook.looks_often

    def room(self) -> int:
        """The number of entries that the pool takes now."""
        return self._budget.room()

    @property
    def finds_parked(self) -> bool:
        """Whether the last look has found parked entries that are due."""
        return self._outlook.finds_parked

    def _claim(self, lane: Lane, limit: int) -> None:
        """Claim up to `limit` entries."""
        epoch, held, looks = self._holdings.epoch, self._places_held(), self._outlook.looks
        try:
            with self.metrics.statement("claim"):
                claimed = self._holdings.moves.claim(
                    lane, self._holdings.name, limit, self._outlook.since(lane), AHEAD
                )
            self._has_claimed(lane, limit, claimed, epoch, held, looks=looks)
        except BaseException:
            self._holdings.doubt()  # its COMMIT may have taken effect
            raise

    def _places_held(self) -> dict[Lane, int]:
        """The places of each limit that this node has: to be read before a claim."""
        return {lane: self._ledger.held_from(lane) for lane in self._holdings.places.lanes.values()}

    def _has_claimed(
        self,
        lane: Lane,
        limit: int,
        claimed: Claimed,
        epoch: int,
        held: Mapping[Lane, int],
        *,
        looks: int,
    ) -> None:
        entries = claimed.entries
        if entries:
            due = self._hand_over.submit(entries, lane, epoch, last=claimed.found < limit)
            self.metrics.claimed(entries)
            self._outlook.claimed(lane, entries[-1].effective_date, whole=due == limit)
        if claimed.found < limit:
            self._outlook.emptied(lane, looks)
        if claimed.keys_go_on is not None:
            self._holdings.places.keys.expect(claimed.keys_go_on)
            self._awake.set()
        for refused, date in claimed.refused.items():
            before = held.get(refused, 0)  # a first limit may have come since
            self._wait_for_place(refused, date, before + len(claimed.placed.get(refused, ())))

    def _wait_for_place(self, lane: Lane, date: datetime | None, held: int) -> None:
        """Claim from the lane of a limit again at a `date`, or when less is held of it."""
        self._full[lane] = held
        self._try_again(lane, held)  # it may have ended before that was known here
        if date is not None:  # not ahead of it, as a claim refused would be followed by another
            self._outlook.expect(lane, date + AHEAD)

    def _look(self) -> None:
        """Learn which lanes have a due entry, and the next dates.

        This is a read; a claim that finds nothing is a write.
        """
        self._outlook.look_begins()
        try:
            due, upcoming = self._store.due_and_next(self._holdings.own_lane)
        except BaseException:
            self._outlook.look_failed()
            raise
        self._outlook.look_found(due, upcoming)
