"""Bugs of leases."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from sqlalchemy import Connection, update

from queue_core.cluster.lease import Lease
from queue_core.cluster.node import Node
from queue_core.cluster.reaper import Reaper
from queue_core.cluster.silence_watch import SilenceWatch
from queue_core.holding.holdings import Holdings
from sql.statements.nodes import Nodes
from sql.tables import queue_nodes
from tests.simulation.planted.bugs import Planting, bug


@bug
def epoch_not_raised() -> list[Planting]:
    """A name that is taken over, or taken anew, keeps its epoch."""

    def take_over(self: Node, row: Any) -> bool:
        taken = self.database.write(
            lambda connection: Nodes().take_over(
                connection,
                self.name,
                epoch=row.epoch,
                beat=row.beat,
                values=self._values(row.epoch),
            )
        )
        if taken:
            self.epoch, self._beat = row.epoch, 0
        return taken

    return [(Node, "_take_over", take_over)]


@bug
def start_without_lease() -> list[Planting]:
    """What was claimed starts, whether the lease holds or not."""
    return [(Holdings, "may_start", lambda _self, _epoch: True)]


@bug
def lease_of_the_claim_forgotten() -> list[Planting]:
    """What was claimed under a lease that ended starts under the next."""
    return [
        (
            Holdings,
            "may_start",
            lambda self, _epoch: self.node is not None and self.node.lease.holds(),
        )
    ]


@bug
def lease_from_the_answer() -> list[Planting]:
    """A lease counts from the answer to a beat, not from when it was sent."""
    beaten: Any = Node._beaten
    return [(Node, "_beaten", lambda self, _sent: beaten(self, self.clock.monotonic()))]


@bug
def beat_number_used_again() -> list[Planting]:
    """The beat after one whose answer was lost has the same number."""
    turn: Any = Node.beat_turn

    def beat_turn(self: Node) -> float:
        before = self._beat
        try:
            seconds: float = turn(self)
        except BaseException:
            self._beat = before
            raise
        return seconds

    return [(Node, "beat_turn", beat_turn)]


@bug
def beat_of_a_dead_node() -> list[Planting]:
    """A node that was declared dead, or lost its name, goes on beating."""

    def beat(
        _nodes: Nodes,
        connection: Connection,
        name: str,
        *,
        epoch: int,
        beat: int,
        now: Any,
        serves: str,
    ) -> bool:
        del epoch
        values = {"beat": beat, "beat_date": now, "serves": serves}
        changed = update(queue_nodes).where(queue_nodes.c.name == name).values(values)
        return connection.execute(changed).rowcount == 1

    return [(Nodes, "beat", beat)]


@bug
def name_taken_at_once() -> list[Planting]:
    """A name is taken without watching whether its holder is silent."""
    register: Any = Node.register

    def registered(self: Node) -> None:
        sent = self.clock.monotonic()
        row = self.database.fetch(lambda connection: Nodes().node(connection, self.name))
        if row is not None and self._take_over(row):
            self._beaten(sent)
        else:
            register(self)

    return [(Node, "register", registered)]


@bug
def lease_judged_by_dates() -> list[Planting]:
    """A reaper compares the date of the last beat with its own."""

    def fence(self: Reaper, row: Any) -> bool:
        node = self._node
        if (
            row.name == node.name
            or (node.clock.now() - row.beat_date).total_seconds() < row.lease_seconds
        ):
            return False
        return node.database.write(
            lambda connection: Nodes().fence(connection, row.name, epoch=row.epoch, beat=row.beat)
        )

    return [(Reaper, "_fence", fence)]


@bug
def lease_ends_at_a_date() -> list[Planting]:
    """A lease ends at a date, and so goes on when its process sets the date back."""
    renew: Any = Lease.renew

    def renewed(self: Any, sent: float) -> None:
        renew(self, sent)
        self.end_date = self._clock.now() + timedelta(seconds=self.left_seconds)

    def holds(self: Any) -> bool:
        return bool(self._deadline > float("-inf") and self._clock.now() < self.end_date)

    return [(Lease, "renew", renewed), (Lease, "holds", holds)]


@bug
def outage_not_noticed() -> list[Planting]:
    """A reaper counts the time of an outage as silence of others."""
    return [
        (
            SilenceWatch,
            "_watched_seconds",
            lambda self, row: self._node.clock.monotonic() - self._seen[row.name].since,
        )
    ]


@bug
def gap_judged_by_the_own_lease() -> list[Planting]:
    """Let a reaper judge by its own lease, and not by that of the node that it judges."""

    def watched(self: SilenceWatch, row: Any) -> float:
        node = self._node
        steady_from = node.lease.steady_from(node.config.lease_seconds / 2)
        if steady_from is None:
            return 0.0
        return node.clock.monotonic() - max(self._seen[row.name].since, steady_from)

    return [(SilenceWatch, "_watched_seconds", watched)]
