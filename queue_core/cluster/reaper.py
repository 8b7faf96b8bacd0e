"""Hands the entries of dead nodes to live ones.

A node is dead only if this reaper itself saw the same (epoch, beat) for a full lease, by its own
monotonic clock, while its own node's beats succeeded without a gap: after an outage of the database
nobody is reaped by mistake. The node is fenced first (its row says DEAD, if epoch and beat still
are as they were seen); then its entries are moved, each batch in a transaction that holds the
node's row, so that the name can't come back meanwhile.

A live node may have lost a member: a bus that has stopped, while a service of its process goes on.
Entries of tables that it no longer serves are moved like those of a node that has stopped in order,
but for those whose handlers outlive the stop: the node's row names them. A member writes that its
table is served before it claims anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from functools import partial
from typing import Any

from sqlalchemy import Connection, Row
from sqlalchemy.exc import DBAPIError, IntegrityError

from queue_core.cluster.node import Node
from queue_core.cluster.redispatch import redispatch
from queue_core.cluster.silence_watch import SilenceWatch
from queue_core.cluster.subscriber_sets import SubscriberWatch
from queue_core.links.keys import LOOK_BATCH
from queue_core.links.served_tables import outliving, served
from queue_core.model.entry import Entry, from_row
from queue_core.model.lanes import AFTER_KEYED, ANY_NODE, KEYED, SUSPECT, is_node_lane
from queue_core.model.states import State
from queue_core.runtime.log import get_logger
from queue_core.storage.store import Store
from sql import partitioning
from sql.families import NODES
from sql.statements import nodes

log = get_logger(__name__)

FORGET_SECONDS = 86_400.0
"""The time for which the row of a dead node without entries is kept, for `status`."""
PARTITION_SECONDS = 3_600.0
"""The pause between two searches for the next partitions of history."""
LANE_TURNS = 6
"""One in this many turns looks for lanes that no node has or serves, though no node is dead."""


class _Kind(Enum):
    """The kinds of entries in a dead node's lane, in the order in which they are moved."""

    CLAIMED = "claimed"
    DUE = "due"
    LATER = "later"


class Reaper:
    """The reaper of one node, for all tables that its members use."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._nodes = node.database.dialect.statements_for(NODES)()
        self._silence = SilenceWatch(node)
        self._served: dict[str, set[str]] = {}
        self._subscribers = SubscriberWatch(node.name)
        self._partitions_at = dict[str, float]()
        """The monotonic times of the next look for partitions, by main table."""
        self.looks = 0

    def turn(self) -> float:
        """Look at all nodes once, fence the dead, and move their entries.

        Returns seconds until the next turn.
        """
        node = self._node
        rows = {row.name: row for row in node.database.fetch(self._nodes.all_nodes)}
        self._silence.look(rows)
        self._subscribers.look(rows, node.clock.now())
        if not node.lease.holds():
            return self._node.config.reap_period_seconds
        dead = {name for name, row in rows.items() if row.state in nodes.FENCED}
        dead |= {
            row.name for row in rows.values() if row.state not in nodes.FENCED and self._fence(row)
        }
        left = set[str]()
        live = {
            name: row for name, row in rows.items() if row.state == nodes.LIVE and name != node.name
        }
        self.looks += 1
        # A lane without a node is rare: its node has never been seen to die. One just dead or left
        # is looked for at once.
        missed = self._silence.missed(rows)
        often = self._has_left(live) or dead or missed
        if not often and (self.looks - 1) % LANE_TURNS:
            return self._pause(rows, dead)
        for store in {
            id(member.store.statements): member.store for member in node.members
        }.values():
            self._look_after_keys(store)
            self._forget_groups(store)
            self._make_partitions(store)
            lanes = node.database.fetch(
                partial(store.statements.lanes, besides=(KEYED, AFTER_KEYED))
            )
            for lane in filter(is_node_lane, lanes):
                if lane in dead or (
                    lane not in rows and self._silence.misses(lane) and self._enter_dead(lane)
                ):
                    left.add(lane)
                    self._reap(store, lane)
                elif lane in live and outliving(live[lane], store.config.table) is not None:
                    self._reap(store, lane)
        self._forget(rows[name] for name in dead - left if name in rows)
        return self._pause(rows, dead)

    def _look_after_keys(self, store: Store) -> None:
        """Delete keys whose time is over, and make up for keys that endings have passed over."""
        if store.database.fetch(store.keys.are_due):
            while store.database.write(store.keys.look) == LOOK_BATCH and self._node.lease.holds():
                pass

    def _forget_groups(self, store: Store) -> None:
        """Delete groups that have been complete for long."""
        if store.database.fetch(store.groups.are_old):
            while store.database.write(store.groups.forget) and self._node.lease.holds():
                pass

    def _make_partitions(self, store: Store) -> None:
        """Make the next partitions of a divided history, unless somebody changes it just now.

        What a division that was cut off has left is undone.
        """
        table, now = store.config.table, self._node.clock.monotonic()
        if now < self._partitions_at.get(table, now):
            return
        self._partitions_at[table] = now + PARTITION_SECONDS
        database, past = store.database, store.statements.past
        left = partitioning.leftover(database, past) is not None
        if not left and not partitioning.are_missing(database, past, now=store.clock.now()):
            return
        try:
            with database.holding(store.config.history_table) as connection:
                made = 0
                if connection is not None:
                    partitioning.drop_leftover(database, connection, past)
                    made = partitioning.make_ahead(
                        database,
                        connection,
                        past,
                        now=store.clock.now(),
                        patience=partitioning.BRIEFLY,
                    )
        except DBAPIError as error:
            # A role that may not change tables, or a lock that was not had. The last partition
            # takes the entries that end meanwhile.
            log.warning("partitions_not_made", table=past.name, error=str(error.orig))
        else:
            if made:
                log.info("partitions_made", table=past.name, partitions=made)

    def _has_left(self, live: dict[str, Row[Any]]) -> bool:
        """Whether a live node serves less than at the last look."""
        before, self._served = self._served, {name: served(row) for name, row in live.items()}
        return any(before.get(name, set()) - tables for name, tables in self._served.items())

    def _pause(self, rows: dict[str, Row[Any]], dead: set[str]) -> float:
        """Seconds until the period is over, or until the lease of a silent node would be."""
        others = (row for name, row in rows.items() if name not in dead and name != self._node.name)
        ends = map(self._silence.seconds_left, others)
        return max(0.01, min([self._node.config.reap_period_seconds, *ends]))

    def _fence(self, row: Row[Any]) -> bool:
        """Declare a node dead if it was silent for its whole lease under our eyes."""
        node = self._node
        if not self._silence.silent(row):
            return False
        fenced = node.database.write(
            lambda connection: self._nodes.fence(
                connection, row.name, epoch=row.epoch, beat=row.beat
            )
        )
        if fenced:
            # A stop in order is nothing to worry about: each deploy has some.
            stopped = row.state in nodes.IN_ORDER
            told = (
                partial(log.info, "node_gone")
                if stopped
                else partial(log.warning, "node_declared_dead")
            )
            told(node=row.name, epoch=row.epoch, was=row.state, hostname=row.hostname)
        return fenced

    def _enter_dead(self, name: str) -> bool:
        """Give a lane without a node the row of a dead one, to be held while its entries move."""
        node, now = self._node, self._node.clock.now()
        values = {
            "name": name,
            "epoch": 0,
            "beat": 0,
            "state": nodes.DEAD,
            "hostname": "",
            "host_identity": "",
            "pid": 0,
            "lease_seconds": node.config.lease_seconds,
            "started_date": now,
            "beat_date": now,
            "serves": "[]",
        }
        try:
            node.database.write(lambda connection: self._nodes.enter(connection, values))
        except IntegrityError:
            return False
        return True

    def _reap(self, store: Store, lane: str) -> None:
        """Move all of a dead node's lane, a batch a transaction: claimed entries, due ones, others.

        One after the other: a look for claimed entries reads the whole lane when it finds nothing.
        Entries that commit behind a kind are for the next turn.
        """
        total, passed_over = 0, set[int]()
        for kind in _Kind:
            before, found = 0, (limit := self._node.config.reap_batch_size)
            while found == limit and self._node.lease.holds():
                batch = partial(
                    self._batch,
                    store=store,
                    lane=lane,
                    kind=kind,
                    before=before,
                    passed_over=passed_over,
                )
                found, queues, failed = store.database.write(batch)
                before += found
                total += len(queues)
                # Not before the commit: a claim would find nothing yet, and the next comes a poll
                # interval later.
                if queues:
                    self._tell(store, [] if kind is _Kind.LATER else queues, failed)
        if total:
            log.warning("entries_reaped", node=lane, table=store.config.table, entries=total)

    def _batch(
        self,
        connection: Connection,
        *,
        store: Store,
        lane: str,
        kind: _Kind,
        before: int,
        passed_over: set[int],
    ) -> tuple[int, list[str], list[Entry]]:
        """Move one batch; `before` counts the earlier entries of its kind.

        Entries whose keys a caller's transaction has locked, which may stay open, are passed over,
        and noted there.

        Returns how many it found, the queues of those that it moved, one by one, and those entries
        that have ended FAILED.
        """
        row = self._nodes.node(connection, lane, lock=True)
        if row is None:
            return 0, [], []
        besides = [] if row.state in nodes.FENCED else outliving(row, store.config.table)
        if besides is None:
            return 0, [], []
        statements, now = store.statements, store.clock.now()
        found = statements.locked_page(
            connection,
            lane=lane,
            state=State.IN_PROCESSING if kind is _Kind.CLAIMED else State.AVAILABLE,
            limit=self._node.config.reap_batch_size,
            due_by=now if kind is _Kind.DUE else None,
            # Due entries that were passed over, because another transaction held them, must not
            # slip through here.
            due_after=now if kind is _Kind.LATER else None,
            besides=[*besides, *passed_over],
        )
        moved, failed = found, list[Entry]()
        if kind is _Kind.LATER:
            ids = [entry.record_id for entry in found]
            statements.change_lane(
                connection, ids=ids, from_lane=lane, to_lane=ANY_NODE, suspect_lane=SUSPECT
            )
        elif found:
            passed_over |= store.keys.held(connection, [from_row(entry) for entry in found])
            moved = [entry for entry in found if entry.record_id not in passed_over]
            crashed = row.state == nodes.DEAD
            failed = redispatch(connection, store, moved, crashed=crashed, before=before)
        return len(found), [entry.queue_name for entry in moved], failed

    def _tell(self, store: Store, reaped: Sequence[str], failed: Sequence[Entry]) -> None:
        for member in self._node.members:
            if member.store is store:
                member.reaped(reaped)
                member.failed(failed)

    def _forget(self, rows: Iterable[Row[Any]]) -> None:
        now = self._node.clock.now()
        for row in rows:
            if (now - row.beat_date).total_seconds() > FORGET_SECONDS:
                self._node.database.write(
                    partial(self._nodes.forget, name=row.name, epoch=row.epoch)
                )
