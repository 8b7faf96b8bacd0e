"""This process as a node of the cluster: its name, its epoch, its beats.

A lease is never judged by dates, only by monotonic clocks: the node's own, from the moment its last
successful beat was *sent*; a reaper's, from when it first saw that beat.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

import msgspec
from sqlalchemy import Connection, Row
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from queue_core.cluster.host import host_identity, is_dead_neighbour
from queue_core.cluster.lease import Lease
from queue_core.cluster.member import Member
from queue_core.errors import NodeNameTakenError
from queue_core.model.node_config import NodeConfig
from queue_core.runtime.clock import Clock, ClockReading, SystemClock, read_clock
from queue_core.runtime.lock import Lock
from queue_core.runtime.log import get_logger
from queue_core.runtime.loop import Loop
from queue_core.runtime.signal import Signal
from sql.database import Database
from sql.families import NODES
from sql.statements import nodes

log = get_logger(__name__)

SKEW_WARNING_SECONDS = 1.0
"""The difference of this machine's clock to the database's from which the log warns."""
CLOCK_SHARE = 0.5
"""The first beat after so much of a lease reads the database's clock again."""


class Reaping(Protocol):
    """The object that looks after the dead on a node's behalf."""

    looks: int
    """Turns that it has taken."""

    def turn(self) -> float:
        """One turn; returns seconds until the next."""
        ...


class Node:
    """A node of the cluster, for the members of this process. `process_nodes.join` makes it."""

    def __init__(
        self, name: str, database: Database, config: NodeConfig, clock: Clock, former: list[Member]
    ) -> None:
        self.name = name
        self.database = database
        self._nodes = database.dialect.statements_for(NODES)()
        self.clock = clock
        self.config = config
        self.epoch = 0
        self.lease = Lease(clock, config.lease_seconds)
        self.skew_seconds = 0.0
        """The lead of the database's clock over this machine's."""
        self.members: list[Member] = []
        self.former = former
        """Members that have left while their handlers still ran."""
        self.former_crashed = True
        """Whether the former holder of the name, if there was any, ended without a stop."""
        self._beat = 0
        """Number of the last beat that was sent.

        Others may have seen it though its answer was lost.
        """
        self._clock_read_at = float("-inf")
        """When the last beat was sent that read the database's clock fast enough."""
        self._pid = os.getpid()
        self._telling = Lock()
        """One at a time writes the served queues: by an older list, others would take entries."""
        # No error may keep beats back for as long as a lease, however short that is.
        self.beats = Loop(
            f"{name}-beat",
            self.beat_turn,
            clock,
            longest_backoff_seconds=config.beat_interval_seconds,
        )
        self.reaper: Reaping
        self._reaping: Loop
        self._interrupted = Signal()

    def reap_by(self, reaper: Reaping) -> None:
        """Before its start: whose turns its second loop takes."""
        self.reaper = reaper
        self._reaping = Loop(f"{self.name}-reap", reaper.turn, self.clock)

    def register(self) -> None:
        """Take the name, with a new epoch.

        A name that was stopped, declared dead, or held by a dead process of this machine is taken
        at once. Any other is watched for one lease: taken if it stays silent. Raises
        NodeNameTakenError if it beats.
        """
        seen: tuple[int, int] | None = None
        watched_since = looked_at = self.clock.monotonic()
        while True:
            sent = self.clock.monotonic()
            row = self.database.fetch(lambda connection: self._nodes.node(connection, self.name))
            answered = self.clock.monotonic()
            if answered - looked_at > self.config.lease_seconds / 2:
                # While this process, or the database, was away, the holder could not beat either.
                seen = None
            looked_at = answered
            if row is None:
                if self._enter():
                    break
                continue
            if seen is not None and (row.epoch, row.beat) != seen and row.state == nodes.LIVE:
                raise _taken(row)
            if seen is None:
                seen, watched_since = (row.epoch, row.beat), answered
            silent = sent - watched_since >= max(row.lease_seconds, self.config.lease_seconds)
            free = row.state != nodes.LIVE or is_dead_neighbour(row.host_identity, row.pid)
            if (free or silent) and self._take_over(row):
                log.info("node_name_taken_over", node=self.name, epoch=self.epoch, silent=silent)
                break
            if not free:
                left = max(row.lease_seconds, self.config.lease_seconds) - (sent - watched_since)
                self.clock.wait(
                    self._interrupted, max(0.01, min(self.config.beat_interval_seconds / 2, left))
                )
        self._beaten(sent)
        log.info("node_registered", node=self.name, epoch=self.epoch, pid=self._pid)

    def _values(self, epoch: int) -> dict[str, Any]:
        now = self.clock.now()
        return {
            "name": self.name,
            "epoch": epoch,
            "beat": 0,
            "state": nodes.LIVE,
            "hostname": socket.gethostname()[:255],
            "host_identity": host_identity(),
            "pid": self._pid,
            "lease_seconds": self.config.lease_seconds,
            "started_date": now,
            "beat_date": now,
            "serves": self._serves(),
        }

    def _serves(self) -> str:
        former = [
            {
                **member.describe(),
                "queues": [],
                "types": [],
                "subscribers": {},
                nodes.OUTLIVING: ids,
            }
            for member in list(self.former)
            if (ids := member.outliving())
        ]
        return msgspec.json.encode(
            [*(member.describe() for member in self.members), *former]
        ).decode()

    def outliving(self, table: str) -> set[int]:
        """Ids of the entries of `table` that former members still run, or have not written yet."""
        return {
            record_id
            for member in list(self.former)
            if member.store.config.table == table
            for record_id in member.outliving()
        }

    def _enter(self) -> bool:
        # Rows of dead nodes are removed after a while; an epoch from the clock is still never given
        # twice.
        epoch = int(self.clock.now().timestamp() * 1000)
        try:
            with self._telling:
                self.database.write(
                    lambda connection: self._nodes.enter(connection, self._values(epoch))
                )
        except IntegrityError:
            return False
        self.epoch, self._beat, self._clock_read_at = epoch, 0, float("-inf")
        return True

    def _take_over(self, row: Row[Any]) -> bool:
        epoch = row.epoch + 1

        def work(connection: Connection) -> bool:
            return self._nodes.take_over(
                connection, self.name, epoch=row.epoch, beat=row.beat, values=self._values(epoch)
            )

        with self._telling:
            taken = self.database.write(work)
        if taken:
            self.epoch, self._beat, self._clock_read_at = epoch, 0, float("-inf")
            self.former_crashed = row.state not in nodes.IN_ORDER
        return taken

    def beat_turn(self) -> float:
        """Renew the lease, write the served queues, and follow the database's clock.

        One turn; returns seconds until the next.
        """
        try:
            return self._beat_turn()
        except BaseException as error:
            for member in list(self.members):
                member.beat_failed(error)
            raise

    def _beat_turn(self) -> float:
        sent = self.clock.monotonic()

        def work(connection: Connection) -> tuple[bool, ClockReading | None]:
            # Never the same number twice: for the reapers of others the second would be none.
            self._beat += 1
            renewed = self._nodes.beat(
                connection,
                self.name,
                epoch=self.epoch,
                beat=self._beat,
                now=self.clock.now(),
                # It may have changed: queues start and stop, types are registered.
                serves=self._serves(),
            )
            asks = sent - self._clock_read_at >= CLOCK_SHARE * self.config.lease_seconds
            read = partial(self.database.dialect.database_now, connection)
            return renewed, read_clock(read) if asks else None

        try:
            with self._telling:
                renewed, reading = self.database.write(work)
        except BaseException:
            self.lease.miss()
            raise
        if not renewed:
            log.error("lease_lost", node=self.name, epoch=self.epoch)
            self.lease.end()
            for member in list(self.members):
                member.lease_lost()
            self.register()
            return self.config.beat_interval_seconds
        self._beaten(sent)
        if reading is not None:
            self._follow(reading)
            if reading.is_close:  # else the next beat reads it again
                self._clock_read_at = sent
        return self.config.beat_interval_seconds

    def _beaten(self, sent: float) -> None:
        self.lease.renew(sent)
        for member in list(self.members):
            member.beaten()

    def _follow(self, reading: ClockReading) -> None:
        for clock in {
            id(member.store.clock): member.store.clock for member in self.members
        }.values():
            if isinstance(clock, SystemClock):
                self.skew_seconds = clock.follow(reading)
        if abs(self.skew_seconds) > SKEW_WARNING_SECONDS:
            log.warning("clock_skewed", node=self.name, skew_seconds=round(self.skew_seconds, 3))

    def announce(self) -> None:
        """Write the queues that the members serve."""
        with self._telling:
            self.database.write(
                lambda connection: self._nodes.serve(
                    connection, self.name, epoch=self.epoch, serves=self._serves()
                )
            )

    def start(self) -> None:
        """Register, and start to beat and to reap."""
        self.register()
        try:
            self.beats.start()
            self._reaping.start()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop to reap and to beat, and end the lease."""
        self._interrupted.set()
        self._reaping.stop()
        self.beats.stop()
        self.lease.end()
        with suppress(SQLAlchemyError):  # the lease then ends by itself
            self.database.write(
                lambda connection: self._nodes.leave(connection, self.name, epoch=self.epoch)
            )
        log.info("node_stopped", node=self.name, epoch=self.epoch)


def _taken(row: Row[Any]) -> NodeNameTakenError:
    return NodeNameTakenError(
        f"the node name {row.name!r} is held by a live node: host {row.hostname}, pid {row.pid}, "
        f"since {row.started_date.isoformat()}. Nothing was started. Give this process another "
        "node_name, or none: the default is distinct for each process.",
        node_name=row.name,
        hostname=row.hostname,
        pid=row.pid,
    )
