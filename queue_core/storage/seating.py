"""One claim of a table with limited queues: its entries get places, or are set aside."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime

import msgspec
from sqlalchemy import Connection

from queue_core.model.entry import Entry
from queue_core.model.lanes import SUSPECT, Lane, is_limited
from queue_core.storage.key_places import ALL_KEYS
from queue_core.storage.places import Claimed, Places, Room
from sql.statements.claims import Claim


class Seating:
    """`claim` tells the claimable entries, or None; then `seat` gives places."""

    def __init__(self, places: Places, connection: Connection, claim: Claim) -> None:
        self._places = places
        self._connection = connection
        self._owner = claim.owner
        self._lane = Lane(claim.lane)
        self._rooms = dict[Lane, Room]()
        self._refused = dict[Lane, datetime | None]()
        self._found = set[int]()
        self.claim: Claim | None = claim
        if is_limited(self._lane):
            room = self._room(self._lane, claim.limit)
            if room.free < claim.limit:
                self._refused[self._lane] = room.until
                limited = msgspec.structs.replace(claim, limit=room.free)
                self.claim = limited if room.free else None

    def seat(self, found: Sequence[Entry]) -> Claimed:
        """Give the entries that the claim has found places, and set aside the others."""
        self._found = {entry.record_id for entry in found}
        if is_limited(self._lane):
            # Each node runs one suspect at a time, and so doesn't claim it among others.
            self._leave(SUSPECT, [entry for entry in found if entry.crash_count])
            entries = [entry for entry in found if not entry.crash_count]
            if self.claim is not None and len(found) < self.claim.limit:
                self._refused.clear()  # nothing is left that waits for a place
        else:
            entries = list(found)
        entries = self._unpaused(entries)
        placed, waiting = dict[Lane, list[int]](), set[int]()
        # All limits are locked before the keys are.
        for lane, those in self._places.by_lane(entries):
            self._room(lane, len(those))
        by_key = self._places.keys.by_lane(entries)
        rooms = self._places.keys.rooms(self._connection, by_key) if by_key else {}
        first = self._places.keys.first(rooms, by_key)
        refused = {
            lane: [entry for entry in those if entry.record_id not in first]
            for lane, those in by_key.items()
        }
        waiting.update(entry.record_id for those in refused.values() for entry in those)
        entries = [entry for entry in entries if entry.record_id not in waiting]
        for lane, those in self._places.by_lane(entries):
            room = self._room(lane, len(those))
            seated, left = those[: room.free], those[room.free :]
            if seated:
                placed[lane] = [entry.record_id for entry in seated]
                self._places.take(
                    self._connection,
                    lane,
                    room,
                    owner=self._owner,
                    entries=seated,
                    found=self._found,
                )
            if left:
                self._refused[lane] = room.until
                self._leave(lane, left)
                waiting.update(entry.record_id for entry in left)
        entries = [entry for entry in entries if entry.record_id not in waiting]
        go_on = None
        if by_key:
            by_lane = self._places.keys.by_lane(entries)
            placed[ALL_KEYS] = [entry.record_id for those in by_lane.values() for entry in those]
            go_on = self._places.keys.settle(
                self._connection, self._owner, rooms, seated=by_lane, refused=refused
            )
        reserves = {lane: room.reserve for lane, room in self._rooms.items()}
        return Claimed(entries, len(found), placed, self._refused, go_on, reserves)

    def _room(self, lane: Lane, wanted: int) -> Room:
        if lane not in self._rooms:
            self._rooms[lane] = self._places.room(
                self._connection, lane, self._owner, wanted, self._found
            )
        return self._rooms[lane]

    def _unpaused(self, entries: Sequence[Entry]) -> list[Entry]:
        """Set aside what is of paused queues: it would use up a rate, and start nothing."""
        unpaused, paused = list[Entry](), defaultdict[Lane, list[Entry]](list)
        for entry in entries:
            lane = self._places.lane_of_pause(entry.queue_name)
            (unpaused if lane is None else paused[lane]).append(entry)
        for lane, those in paused.items():
            self._leave(lane, those)
        return unpaused

    def _leave(self, lane: Lane, entries: Sequence[Entry]) -> None:
        if entries:
            self._places.set_aside(self._connection, lane, self._owner, entries)
