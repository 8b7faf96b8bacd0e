"""This process as a member of the cluster: its name, its epoch, its heartbeats, and whether its lease still holds.

One node per process, database and name, shared by the buses and services of the process and counted: the first to
start registers it, the last to stop ends its lease. A lease is never judged by dates, only by monotonic clocks: the
node's own, from the moment its last successful beat was *sent*; a reaper's, from when it first saw that beat.
"""

from __future__ import annotations

import os
import socket
import threading
import uuid
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import msgspec
from sqlalchemy import Connection, Row
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from queue_core.clock import Clock, ClockReading, Signal, SystemClock, read_clock
from queue_core.config import NodeConfig, QueueConfig
from queue_core.entry import Entry
from queue_core.errors import ConfigurationError, LifecycleError, NodeNameTakenError
from queue_core.lock import Lock
from queue_core.log import get_logger
from queue_core.loop import Loop
from queue_core.reaper import Reaper
from queue_core.store import Store
from sql import nodes
from sql.database import Database
from sql.tables import NAME_LENGTH

log = get_logger(__name__)

MARGIN = 0.1
"""Share of the lease that a node gives up: it starts nothing when another may soon judge it dead."""

SKEW_WARNING_SECONDS = 1.0
CLOCK_SHARE = 0.5
"""The first beat after so much of a lease reads the database's clock again."""


class Member(Protocol):
    """A bus's or service's engine, as its node sees it."""

    store: Store

    def describe(self) -> dict[str, Any]:
        """What is served, as plain JSON."""
        ...

    def outliving(self) -> list[int]:
        """After it has left: ids of entries whose handlers still run, or whose outcomes are still to be written."""
        ...

    def lease_lost(self) -> None:
        """The lease ended: give back what has not started."""
        ...

    def reaped(self, queue_names: Sequence[str]) -> None:
        """Entries, given by their queues, were taken from a dead node's lane; they wait for any node."""
        ...

    def failed(self, entries: Sequence[Entry]) -> None:
        """Entries of a dead process have ended FAILED; their `last_error` tells why."""
        ...


class Node:
    """See the module. Made by `join`, left by `leave`."""

    def __init__(self, name: str, database: Database, config: NodeConfig, clock: Clock) -> None:
        self.name = name
        self.database = database
        self.clock = clock
        self.config = config
        self.epoch = 0
        self.steady_since: float | None = None
        """Monotonic time since when no beat of this node has failed; None while they fail."""
        self._gaps: list[tuple[float, float]] = []
        """Seconds between two beats since then, and when it was over: the last gap of its length or a longer one."""
        self.skew_seconds = 0.0
        """What the database's clock is ahead of this machine's."""
        self.members: list[Member] = []
        self.follows_crash = True
        """Whether the former holder of the name, if there was any, ended without a stop."""
        self._beat = 0
        """Number of the last beat that was sent. Others may have seen it though its answer was lost."""
        self._clock_read_at = float("-inf")
        """When the beat was sent that read the database's clock last; one that read it too slowly does not count."""
        self._deadline = float("-inf")
        self._last_beat = float("-inf")
        self._pid = os.getpid()
        self._telling = Lock()
        """What is served is written by one at a time: what was true before a member joined would have its entries taken."""
        self._reaper = Reaper(self)
        # No error may keep beats back for as long as a lease, however short that is.
        self._beats = Loop(
            f"{name}-beat", self.beat_turn, clock, longest_backoff_seconds=config.beat_interval_seconds
        )
        self._reaping = Loop(f"{name}-reap", self._reaper.turn, clock)
        self._interrupted = Signal()

    # -- lease --------------------------------------------------------------------------------------------------

    def may_start(self) -> bool:
        """Whether the lease holds for sure: what starts now starts before anybody may take it over."""
        return self.clock.monotonic() < self._deadline

    @property
    def lease_left_seconds(self) -> float:
        """Seconds until this node starts nothing more, were no further beat to succeed."""
        return max(0.0, self._deadline - self.clock.monotonic())

    def steady_from(self, longest_gap: float) -> float | None:
        """Monotonic time since when this node's beats have succeeded, no two further apart than `longest_gap`, up to now."""
        since, gaps = self.steady_since, self._gaps
        if since is None or self.clock.monotonic() - self._last_beat > longest_gap:
            return None
        return next((end for seconds, end in reversed(gaps) if seconds > longest_gap), since)

    def register(self) -> None:
        """Take the name, with a new epoch.

        A name that was stopped, declared dead, or held by a dead process of this machine is taken at once. Any other
        is watched for one lease: taken if it stays silent. Raises NodeNameTakenError if it beats.
        """
        seen: tuple[int, int] | None = None
        watched_since = looked_at = self.clock.monotonic()
        while True:
            sent = self.clock.monotonic()
            row = self.database.fetch(lambda connection: nodes.node(connection, self.name))
            answered = self.clock.monotonic()
            if answered - looked_at > self.config.lease_seconds / 2:
                seen = None  # while this process, or the database, was away, the holder could not beat either
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
            free = row.state != nodes.LIVE or _is_dead_neighbour(row)
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
            "host_identity": _host_identity(),
            "pid": self._pid,
            "lease_seconds": self.config.lease_seconds,
            "started_date": now,
            "beat_date": now,
            "serves": self._serves(),
        }

    def _serves(self) -> str:
        former = [
            {**member.describe(), "queues": [], "types": [], "subscribers": {}, nodes.OUTLIVING: ids}
            for member in list(_former[self._key])
            if (ids := member.outliving())
        ]
        return msgspec.json.encode([*(member.describe() for member in self.members), *former]).decode()

    @property
    def _key(self) -> tuple[str, str]:
        return self.database.key, self.name

    def outliving(self, table: str) -> set[int]:
        """Ids of the entries of `table` that former members of this node and process still run, or are still to write."""
        return {
            record_id
            for member in list(_former[self._key])
            if member.store.config.table == table
            for record_id in member.outliving()
        }

    def _enter(self) -> bool:
        # Rows of dead nodes are removed after a while; an epoch from the clock is still never given twice.
        epoch = int(self.clock.now().timestamp() * 1000)
        try:
            with self._telling:
                self.database.write(lambda connection: nodes.enter(connection, self._values(epoch)))
        except IntegrityError:
            return False
        self.epoch, self._beat, self._clock_read_at = epoch, 0, float("-inf")
        return True

    def _take_over(self, row: Row[Any]) -> bool:
        epoch = row.epoch + 1

        def work(connection: Connection) -> bool:
            return nodes.take_over(
                connection, self.name, epoch=row.epoch, beat=row.beat, values=self._values(epoch)
            )

        with self._telling:
            taken = self.database.write(work)
        if taken:
            self.epoch, self._beat, self._clock_read_at = epoch, 0, float("-inf")
            self.follows_crash = row.state not in nodes.IN_ORDER
        return taken

    def beat_turn(self) -> float:
        """Renew the lease, tell what is served, and follow the database's clock. One turn; returns seconds until the next."""
        sent = self.clock.monotonic()

        def work(connection: Connection) -> tuple[bool, ClockReading | None]:
            # Never the same number twice: for the reapers of others the second would be none.
            self._beat += 1
            renewed = nodes.beat(
                connection,
                self.name,
                epoch=self.epoch,
                beat=self._beat,
                now=self.clock.now(),
                serves=self._serves(),  # it may have changed: queues start and stop, types are registered
            )
            asks = sent - self._clock_read_at >= CLOCK_SHARE * self.config.lease_seconds
            read = partial(self.database.dialect.database_now, connection)
            return renewed, read_clock(read) if asks else None

        try:
            with self._telling:
                renewed, reading = self.database.write(work)
        except BaseException:
            self.steady_since = None  # what keeps this node's beats from the database keeps those of others
            raise
        if not renewed:
            log.error("lease_lost", node=self.name, epoch=self.epoch)
            self._deadline, self.steady_since = float("-inf"), None
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
        # A long gap: what this node saw of others' beats before it says nothing about them.
        if self.steady_since is None:
            self._gaps, self.steady_since = [], sent
        else:
            gap = sent - self._last_beat
            self._gaps = [*(longer for longer in self._gaps if longer[0] > gap), (gap, sent)]
        self._last_beat = sent
        self._deadline = sent + self.config.lease_seconds * (1 - MARGIN)

    def _follow(self, reading: ClockReading) -> None:
        for clock in {id(member.store.clock): member.store.clock for member in self.members}.values():
            if isinstance(clock, SystemClock):
                self.skew_seconds = clock.follow(reading)
        if abs(self.skew_seconds) > SKEW_WARNING_SECONDS:
            log.warning("clock_skewed", node=self.name, skew_seconds=round(self.skew_seconds, 3))

    # -- members ------------------------------------------------------------------------------------------------

    def announce(self) -> None:
        """Write what the members serve."""
        with self._telling:
            self.database.write(
                lambda connection: nodes.serve(connection, self.name, epoch=self.epoch, serves=self._serves())
            )

    def start(self) -> None:
        """Register, and start to beat and to reap."""
        self.register()
        try:
            self._beats.start()
            self._reaping.start()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop to reap and to beat, and end the lease."""
        self._interrupted.set()
        self._reaping.stop()
        self._beats.stop()
        self._deadline, self.steady_since = float("-inf"), None
        with suppress(SQLAlchemyError):  # the lease then ends by itself
            self.database.write(lambda connection: nodes.leave(connection, self.name, epoch=self.epoch))
        log.info("node_stopped", node=self.name, epoch=self.epoch)


def _taken(row: Row[Any]) -> NodeNameTakenError:
    return NodeNameTakenError(
        f"the node name {row.name!r} is held by a live node: host {row.hostname}, pid {row.pid}, since "
        f"{row.started_date.isoformat()}. Nothing was started. Give this process another node_name, or none: the "
        "default is distinct for each process.",
        node_name=row.name,
        hostname=row.hostname,
        pid=row.pid,
    )


def _host_identity() -> str:
    """This machine and process space, distinct for containers that share a host name."""
    parts = [socket.gethostname()]
    for path in ("/proc/sys/kernel/random/boot_id", "/proc/self/ns/pid"):
        with suppress(OSError):
            parts.append(
                str(Path(path).readlink()) if path.endswith("pid") else Path(path).read_text("ascii").strip()
            )
    return "/".join(parts)[:255]


def _is_dead_neighbour(row: Row[Any]) -> bool:
    """Whether the holder was a process of this machine that exists no more."""
    if row.host_identity != _host_identity() or row.pid == os.getpid():
        return False
    try:
        os.kill(row.pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return _is_zombie(row.pid)


def _is_zombie(pid: int) -> bool:
    """Whether a process is dead and only not yet waited for by its parent."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0] == "Z"
    except (OSError, IndexError):
        return False


# -- the nodes of this process -----------------------------------------------------------------------------------

_nodes: dict[tuple[str, str], Node] = {}
# The threads of these beat in the parent of a fork alone.
os.register_at_fork(after_in_child=_nodes.clear)
_former: defaultdict[tuple[str, str], list[Member]] = defaultdict(list)
"""Members that have left while handlers of theirs still ran, by the key of their node, which may be gone too."""
os.register_at_fork(after_in_child=_former.clear)
_locks: defaultdict[tuple[str, str], threading.RLock] = defaultdict(threading.RLock)
"""One a name: it is held for up to a lease while the name is fought for."""
os.register_at_fork(after_in_child=_locks.clear)


def default_name() -> str:
    """A name that no other process has: host, pid and a random part."""
    tail = f"-{os.getpid()}-{uuid.uuid4().hex[:6]}"
    return socket.gethostname()[: NAME_LENGTH - len(tail)] + tail


_default_names: dict[int, str] = {}


def name_of(config: QueueConfig) -> str:
    """The configured node name, or this process's own."""
    # Without the lock, which is held for up to a lease while a name is fought for: posting must not wait for that.
    own = os.getpid()
    return config.node_name or _default_names.get(own) or _default_names.setdefault(own, default_name())


def join(
    member: Member, config: QueueConfig, make: Callable[[str, Database, NodeConfig, Clock], Node] = Node
) -> Node:
    """Register the process's node for `member`'s database, or share the one that is there.

    Raises NodeNameTakenError, LifecycleError if the node has a member on the same table already, and
    ConfigurationError if it has other settings.
    """
    name, database = name_of(config), member.store.database
    if name.startswith("!"):
        raise ConfigurationError(
            f"node_name={name!r} must not begin with an exclamation mark.", key="node_name"
        )
    key = database.key, name
    with _locks[key]:
        node = _nodes.get(key)
        if node is not None:
            table = member.store.config.table
            if any(other.store.config.table == table for other in node.members):
                raise LifecycleError(
                    f"node {name!r} already runs a bus or service on the table {table!r} in this process. Nothing was "
                    "started. Give this one a table or a node_name of its own.",
                    node_name=name,
                    table=table,
                )
            _check_agreement(node, member)
            node.members.append(member)
            try:
                node.announce()
            except BaseException:
                node.members.remove(member)
                raise
            return node
        node = make(name, database, config.node, member.store.clock)
        node.members.append(member)
        node.start()
        _nodes[key] = node
        return node


def _check_agreement(node: Node, member: Member) -> None:
    theirs, own = node.config, member.store.config.node
    for key in NodeConfig.model_fields:
        has, wants = getattr(theirs, key), getattr(own, key)
        if has != wants:
            tables = ", ".join(other.store.config.table for other in node.members)
            raise ConfigurationError(
                f"node {node.name!r}: {key}={wants!r} of the member on {member.store.config.table} differs from {key}="
                f"{has!r} of the members on {tables}. Nothing was started. Give all members of a process that are on "
                "one database the same NodeConfig.",
                key=key,
                value=wants,
                node_name=node.name,
            )


def leave(node: Node, member: Member) -> None:
    """End `member`'s share of the node; the last one ends its lease."""
    key = node.database.key, node.name
    with _locks[key]:
        node.members.remove(member)
        if member.outliving():
            _former[key].append(member)
        if node.members:
            # The leaver closes its connections: what the node opened there from now on would stay open for good.
            node.database = node.members[0].store.database
            node.announce()
            return
        del _nodes[key]
    node.stop()


def forget(member: Member) -> None:
    """Nothing outlives `member` any more, or it is a member again."""
    for members in list(_former.values()):
        with suppress(ValueError):
            members.remove(member)
