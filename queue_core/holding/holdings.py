"""The entries that one bus or service holds, and the node and epoch under which it claims.

The rows are the truth about the node that runs an entry. The ledger is this process's knowledge of
its own part. An entry that is given back goes through `release`, fenced by owner and claim count.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from operator import attrgetter, itemgetter

from sqlalchemy import Connection

from queue_core.cluster.node import Node
from queue_core.holding.gates import Gates
from queue_core.holding.ledger import Ledger
from queue_core.holding.pace import Pace
from queue_core.model.entry import Entry, from_row
from queue_core.model.lanes import ANY_NODE, PARKED, SUSPECT, Lane
from queue_core.model.mode import Mode
from queue_core.storage.key_places import ALL_KEYS
from queue_core.storage.moves import Moves
from queue_core.storage.places import Places
from queue_core.storage.store import Store

_CLAIM = attrgetter("record_id", "claim_count")
_BY_COUNT = itemgetter(1, 0)
"""Claims are given up by how often their entries were claimed: a statement for each number."""
RELEASE_BATCH = 1_000
"""Claims that are given up in one transaction. No benchmark compares it with others."""


class Holdings:
    """The entries that one bus or service holds, with its node and epoch.

    `node` is None, and `name` the last one's, while it takes no part in the cluster.
    """

    def __init__(self, store: Store, lane_of_pause: Callable[[str], Lane | None]) -> None:
        """`lane_of_pause` tells the lane of a paused queue by its name; None if it goes on."""
        self.store = store
        self.config = store.config
        self.clock = store.clock
        self.ledger = Ledger(store.config.queue_capacity)
        self.places = Places(store, self._idle_threads, self.ledger.placed, lane_of_pause)
        self.moves = Moves(store, self.places, self.ledger.place)
        self.node: Node | None = None
        self.name = ""
        self.own_lane = ANY_NODE
        """The lane that bears the node's name, or the last one's."""
        self.stopping = False
        self.doubtful = False
        """The table may say that this node runs more than the ledger knows: the sweep is due."""
        self.gates = Gates()
        self.pace = Pace(self.clock)

    def take_part(self, node: Node) -> None:
        """Hold entries for `node` from here on."""
        self.name, self.own_lane = node.name, Lane(node.name)
        self.node, self.stopping = node, False

    @property
    def return_lane(self) -> Lane:
        """The lane in which entries of this node wait.

        It is the node's own, unless any node may run them, or this one is about to leave.
        """
        own = self.config.mode is not Mode.POLLING and self.node is not None and not self.stopping
        return self.own_lane if own else ANY_NODE

    @property
    def running(self) -> bool:
        """Whether entries can be claimed for this node now: started, and its lease holds."""
        node = self.node
        return node is not None and not self.stopping and node.lease.holds()

    @property
    def epoch(self) -> int:
        """The node's epoch, 0 without a node. To be read before the claims that are made in it."""
        node = self.node
        return node.epoch if node is not None else 0

    def may_start(self, epoch: int) -> bool:
        """Whether an entry that was claimed in this epoch of the node may start now."""
        # In this order: a node that registers anew has its new epoch before it may start anything.
        node = self.node
        return node is not None and node.lease.holds() and node.epoch == epoch

    def lane_without_place(self, entry: Entry) -> Lane | None:
        """The lane of an entry that has no place of its queue or key; None if it may start."""
        if not self.places.limit_any:
            return None
        lane = self.places.lanes.get(entry.queue_name)
        if lane is not None and not self.ledger.has_place(lane, entry.record_id):
            return lane
        if self.places.keys.concern(entry) and not self.ledger.has_place(ALL_KEYS, entry.record_id):
            return ANY_NODE  # a claim finds out whether it may start
        return None

    def _idle_threads(self) -> int:
        return max(0, self.config.handler_threads - self.ledger.active)

    def doubt(self) -> None:
        """A commit of unknown outcome, or one that nobody looks up: sweep in the next turn."""
        self.places.reserves.forget()  # this node may have claims that the ledger does not know
        self.doubtful = True

    def in_processing(self) -> list[tuple[int, int]]:
        """The entries that this node runs by the table, as (record id, claim count).

        Entries that outlive another bus of this node are left out. Empty if the node has left
        meanwhile: then they may be those of the next process of its name.
        """
        database, statements, node = self.store.database, self.store.statements, self.node
        epoch = self.epoch
        found = database.fetch(
            lambda connection: statements.in_processing(connection, lane=self.name)
        )
        if not self.may_start(epoch):
            return []
        outliving = node.outliving(self.config.table) if node is not None else ()
        return [claim for claim in found if claim[0] not in outliving] if outliving else found

    def release(self, claims: Sequence[tuple[int, int]], seconds: float = math.inf) -> int:
        """Give up claims that have not run, to the lane where such entries wait.

        Returns how many claims still held.

        Each batch is a transaction. After `seconds` no other one begins.
        """
        lane, released = self.return_lane, 0
        deadline = self.clock.monotonic() + seconds
        ordered = sorted(claims, key=_BY_COUNT)
        for start in range(0, len(ordered), RELEASE_BATCH):
            released += self._release(lane, SUSPECT, ordered[start : start + RELEASE_BATCH])
            if self.clock.monotonic() >= deadline:
                break
        return released

    def park(self, claims: Sequence[tuple[int, int]]) -> None:
        """Give up claims of entries that nobody here knows."""
        self.set_aside(PARKED, claims)

    def set_aside(self, lane: Lane, claims: Sequence[tuple[int, int]]) -> None:
        """Give up claims of entries that wait in `lane`, suspects too, unless any node runs it."""
        self._release(lane, SUSPECT if lane == ANY_NODE else lane, claims)

    def _release(self, lane: Lane, suspect_lane: Lane, claims: Sequence[tuple[int, int]]) -> int:
        if not claims:
            return 0
        store = self.store

        def work(connection: Connection) -> int:
            released = store.statements.release(
                connection, owner=self.name, lane=lane, suspect_lane=suspect_lane, claims=claims
            )
            if lane == suspect_lane and self.places.keys.queues:
                # They wait for long, perhaps: others of their keys may go.
                ids = [record_id for record_id, _ in claims]
                rows = store.statements.locked_marked(connection, ids=ids)
                store.limit_keys.freed(connection, [*map(from_row, rows)])
            return released

        released = store.database.write(work)
        # The claim loop may have claimed again the entries that were given back.
        self.ledger.give_up(claims)
        return released


def claims_of(entries: Sequence[Entry]) -> list[tuple[int, int]]:
    """Names the claims of `entries`, as (record id, claim count)."""
    return list(map(_CLAIM, entries))  # in C: each entry is asked twice
