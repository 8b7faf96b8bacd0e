"""One simulation: it takes steps one by one, stops the faults, and the system must come to rest."""

from __future__ import annotations

import functools
import logging
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import count
from typing import Any
from unittest.mock import patch

import tenacity.nap

import queue_core.claiming.budget
import queue_core.cluster.host
import queue_core.cluster.node
import queue_core.cluster.process_nodes
import queue_core.engine
import queue_core.posting.posted_hand_over
import queue_core.running.runner
import queue_core.storage.store
import sql.sqlite.dialect
import sql.sqlite.patience
from queue_core.running.subscriber import EntryContext
from sql.statements import nodes as node_rows
from sql.tables import entry_tables
from tests.checker import Invariant, Violation
from tests.simulation.application import change, post
from tests.simulation.database import Databases, watching
from tests.simulation.linked_posts import LinkedPosts
from tests.simulation.process import Process
from tests.simulation.record import Record, Result, Run
from tests.simulation.settings import Settings
from tests.simulation.steps import (
    Behaviour,
    Change,
    Fault,
    Go,
    Jump,
    Kill,
    Leave,
    Outage,
    Pass,
    Post,
    Start,
    Step,
)
from tests.simulation.threads import Replaced, Scheduler, Task

REST_SECONDS = 600.0
"""Simulated time within which everything has ended once the faults have stopped.

What clocks have jumped comes on top: they have dated entries as much later. Without a jump the
slowest of 150 seeds took 80 s.
"""

MOST_PROCESSES = 40
"""The most of a simulation: an entry that kills more of them never ends."""
MOST_ROUNDS = 30_000
"""Of all threads while the system comes to rest: more mean that some loop never pauses."""
FROM_MEMORY = 5
"""In place of the engine's own number, so that some entries wait by id."""


@dataclass(frozen=True)
class _Seen:
    """A node's row, and since when it has been as it is."""

    epoch: int
    beat: int
    beat_date: str
    state: str
    pid: int
    since: float


class Simulation:
    """Takes steps. As the databases' `Watcher` it is told what they commit."""

    def __init__(self, databases: Databases, settings: Settings) -> None:
        self.databases = databases
        self.settings = settings
        self.scheduler = Scheduler()
        self.record = Record(databases, settings, self.scheduler)
        self.processes: dict[str, Process] = {}
        self.behaviours: dict[int, Behaviour] = {}
        self.down = False
        self.trace: list[str] = []
        self._jumped_seconds = 0.0
        self._went_away = 0.0
        self._came_back = defaultdict[str, float](float)
        """When the last outage was over that a node's watchers had to notice."""
        self._seen: dict[str, _Seen] = {}
        self.was_limited = False
        """Whether the bus has had a limit."""
        self.is_limited = False
        """Whether the bus has a limit, which was not taken away since it had its first one."""
        self._claims = set[tuple[int, int]]()
        """Those of a limited bus at the last commit."""
        self.links = LinkedPosts(self)

    # -- steps ------------------------------------------------------------------------------------

    def take(self, step: Step) -> None:
        """Take one step; it means nothing if what it speaks of does not exist."""
        self.tell(str(step))
        match step:
            case Start():
                self._start(step)
            case Outage(begins=begins):
                self._let_go(begins=begins)
            case Pass():
                self._pass(step)
            case Post() | Go() | Leave() | Change() | Kill() | Jump():
                process = self.processes.get(step.process)
                if process is not None and process.alive:
                    self._take_in(process, step)
        self._bury()
        self._measure()

    def _take_in(self, process: Process, step: Post | Go | Leave | Change | Kill | Jump) -> None:
        match step:
            case Kill():
                process.alive = False
            case Jump():
                process.clock.ahead_seconds += step.seconds
                self._jumped_seconds += abs(step.seconds)
            case Go():
                self._go(process.task(step.task), step)
            case Leave():
                self.record.leaves(process.node_name)
                if "start" not in process.tasks:  # `stop` does nothing while another thread starts
                    self._go(process.begin("leave", process.leave), step)
            case Change():
                self._go(process.begin(step.what, functools.partial(change, process, step)), step)
            case Post():
                if step.face not in process.lifecycles or self.record.knows(step.keys):
                    return
                self.behaviours |= dict.fromkeys(step.keys, step.behaviour)
                name = f"post {step.keys[0]}"
                work = functools.partial(post, process, step, lambda: process.tasks[name])
                self._go(process.begin(name, work), step)

    def _go(self, task: Task | None, step: Post | Go | Leave | Change | Start) -> None:
        if task is None:
            return
        if not isinstance(step, Start) and step.fault is not Fault.NONE:
            task.fault = step.fault
        self.scheduler.go(task, step.stops)
        if not task.done:
            self.tell(f"  {task.name} is at {task.place}")

    def _start(self, step: Start) -> None:
        if step.process in self.processes:
            return
        database, application = self.databases.take()
        with patch.object(queue_core.engine, "open_tables", lambda *_: database):
            process = Process(self, step.process, 1000 + len(self.processes), database, application)
        self.processes[step.process] = process
        self._go(process.begin("start", process.start), step)

    def _let_go(self, *, begins: bool) -> None:
        """The database goes away, or comes back."""
        time = self.scheduler.time
        if begins and not self.down:
            self._went_away = time
        if self.down and not begins:
            for name in {process.node_name for process in self.processes.values()}:
                # A shorter one no reaper has to notice: whoever lives had the rest of the lease to
                # beat in.
                if time - self._went_away > self.settings.lease_of(name) / 2:
                    self._came_back[name] = time
        self.down = begins

    def _pass(self, step: Pass) -> None:
        end = self.scheduler.time + step.seconds
        awake = [self.processes[label] for label in step.awake if label in self.processes]
        while True:
            turns = [
                (max(process.next_turn.get(name, 0.0), self.scheduler.time), process.label, name)
                for process in awake
                if process.alive and process.node is not None
                for name in ("beat", "reap")
            ]
            turn = min(turns, default=None)
            if turn is None or turn[0] > end:
                break
            at, label, name = turn
            self.scheduler.time = max(self.scheduler.time, at)
            process = self.processes[label]
            task = process.task(name)
            if task is not None:
                self.scheduler.go(task)
                if not task.done:
                    process.next_turn[name] = max(self.scheduler.time + 0.5, task.not_before)
            self._bury()
        self.scheduler.time = max(self.scheduler.time, end)

    def _bury(self) -> None:
        """Unwind the threads of processes that are dead."""
        for process in self.processes.values():
            if not process.alive and process.tasks:
                for task in list(process.tasks.values()):
                    self.scheduler.kill(task)
                process.tasks.clear()
                if process.last_node is not None:
                    self.record.lease_ended(process.node_name, process.last_node.epoch)
                self.tell(f"  {process.label} is dead")

    def _measure(self) -> None:
        for process in self.processes.values():
            for face, lifecycle in process.lifecycles.items():
                self.record.holds(f"{process.label}.{face}", len(lifecycle.ledger))

    # -- rest -------------------------------------------------------------------------------------

    def rest(self) -> None:
        """Stop the faults.

        Threads go on and dead processes start anew, until everything has ended.
        """
        self.tell("the faults stop")
        self._let_go(begins=False)
        for process in self.processes.values():
            process.clock.ahead_seconds = 0.0
            for task in process.tasks.values():
                task.fault = ""
        until = self.scheduler.time + REST_SECONDS + self._jumped_seconds
        for _ in range(MOST_ROUNDS):
            if self.scheduler.time >= until or len(self.processes) >= MOST_PROCESSES:
                return
            moved = self._rest_once()
            self._bury()
            self._measure()
            if not moved:
                if self._is_over():
                    return
                self._wait_for_next()

    def _rest_once(self) -> bool:
        moved = False
        for process in list(self.processes.values()):
            if not process.alive:
                continue
            for name in dict.fromkeys([*process.busy(), *process.due()]):
                task = process.task(name)
                if task is not None and task.not_before <= self.scheduler.time:
                    self.scheduler.go(task)
                    moved = moved or not task.stuck
                    self._bury()
        if self.processes and not any(
            process.alive and (process.node is not None or process.busy())
            for process in self.processes.values()
        ):
            first = next(iter(self.processes.values())).node_name
            labels = (f"{first}{number}" for number in count(1))
            self._start(Start(next(label for label in labels if label not in self.processes)))
            moved = True
        return moved

    def _wait_for_next(self) -> None:
        times = [
            process.next_turn.get(name, 0.0)
            for process in self.processes.values()
            if process.alive
            for name in process.turns()
        ]
        times += [
            task.not_before
            for process in self.processes.values()
            if process.alive
            for task in process.tasks.values()
        ]
        later = [time for time in times if time > self.scheduler.time]
        self.scheduler.time = min(later, default=self.scheduler.time + 1.0)

    def _is_over(self) -> bool:
        if any(
            process.busy()
            for process in self.processes.values()
            if process.alive and process.node is not None
        ):
            return False
        found = self.databases.rows(
            "SELECT (SELECT COUNT(*) FROM bus_events) + (SELECT COUNT(*) FROM notifications) AS "
            "entries"
        )
        return not found[0]["entries"]

    # -- evidence ---------------------------------------------------------------------------------

    def tell(self, line: str) -> None:
        """Add a line to the trace."""
        self.trace.append(f"{self.scheduler.time:10.3f}  {line}")

    def unexpected(self, where: str, error: BaseException) -> None:
        """A turn raised what no turn may raise."""
        self.tell(f"  {where}: {type(error).__name__}: {error}")
        self.record.found(
            Violation(
                invariant=Invariant.NEVER_SILENT,
                record_ids=(),
                explanation=f"{where} raised {type(error).__name__}: {error}",
            )
        )

    def began(self, process: Process, key: int, context: EntryContext) -> Run:
        """A handler has begun."""
        self.links.began(key, context)
        run = self.record.began(process, key, context)
        self.tell(
            f"  {process.label} handles {key} (entry {context.record_id}, lease {run.incarnation})"
        )
        return run

    def committed(self, task: Task, *, inserted: bool, nodes: bool) -> None:
        """See `Watcher`."""
        if inserted and task.keys:
            self.record.committed(task.keys)
            self.tell(f"  committed: {', '.join(map(str, task.keys))}")
        if nodes:
            self._look_at_nodes()
        self.links.committed()
        if self.is_limited:
            self._count_claims()

    def limited(self) -> None:
        """The bus has its first limit, or another one. Once it had none, it is judged no more."""
        self.is_limited, self.was_limited = self.is_limited or not self.was_limited, True

    def _count_claims(self) -> None:
        """Judge new claims by the limit that stands in the table.

        The claims that it finds stay. While they are more than it allows, no other joins them.
        """
        limits = self.databases.rows("SELECT concurrency FROM queue_limits")
        if not limits:
            # From here on, claims need no places, and a later limit counts them once nodes hear of
            # it.
            self.is_limited = False
            return
        [limit] = [row["concurrency"] for row in limits]
        claims = {
            (row["record_id"], row["claim_count"])
            for row in self.databases.rows(
                "SELECT record_id, claim_count FROM bus_events WHERE processing_state = "
                "'IN_PROCESSING'"
            )
        }
        new, self._claims = claims - self._claims, claims
        if new and len(claims) > limit:
            self.record.found(
                Violation(
                    invariant=Invariant.BOUNDED,
                    record_ids=tuple(record_id for record_id, _ in claims),
                    explanation=(
                        f"{len(claims)} entries are claimed, {len(new)} of them new, of a bus that "
                        f"is limited to {limit}"
                    ),
                )
            )

    def keep_history(self, rows: list[Mapping[str, Any]]) -> None:
        """See `Watcher`."""
        self.record.keep_history(rows)

    def _look_at_nodes(self) -> None:
        """Judge a change of the table of nodes.

        The question is whose lease has ended, and whether it was time.
        """
        time = self.scheduler.time
        for row in self.databases.rows(
            "SELECT name, epoch, beat, beat_date, state, pid FROM queue_nodes"
        ):
            name, before = row["name"], self._seen.get(row["name"])
            now = _Seen(row["epoch"], row["beat"], row["beat_date"], row["state"], row["pid"], time)
            # By its date, too: how the engine tells beats apart is no matter of the judge's.
            if before is not None and replace(now, since=before.since) == before:
                continue
            self._seen[name] = now
            if before is None or before.state != node_rows.LIVE:
                continue
            if before.epoch != now.epoch or now.state != node_rows.LIVE:
                self.tell(
                    f"  the lease {before.epoch} of {name} ends: {now.state}, lease {now.epoch}"
                )
                # Before the last outage, or since: a reaper that had seen enough may have waited
                # for a lock meanwhile.
                silent = max(
                    time - max(before.since, self._came_back[name]), self._went_away - before.since
                )
                gone = self._is_gone(before.pid)
                if (
                    now.state != node_rows.STOPPED
                    and not gone
                    and silent < self.settings.lease_of(name)
                ):
                    self.record.found(
                        Violation(
                            invariant=Invariant.ONE_RUNNER,
                            record_ids=(),
                            explanation=(
                                f"{name} lost its lease {before.epoch} at {time:.3f}, when it "
                                f"could have been silent for {silent:.3f} s at most"
                            ),
                        )
                    )
                self.record.lease_ended(name, before.epoch)

    def result(self) -> Result:
        """Judge what was recorded."""
        return self.record.result(self.trace)

    # -- the world of the engine ------------------------------------------------------------------

    def enter(self, process: Process) -> None:
        """What is the process's own and the interpreter's here becomes `process`'s."""
        queue_core.cluster.process_nodes.here = process.nodes
        queue_core.cluster.process_nodes._former = process.former_members

    def is_dead(self, _host_identity: str, pid: int) -> bool:
        """In place of a look at the machine's processes."""
        return self._is_gone(pid)

    def _is_gone(self, pid: int) -> bool:
        return any(process.pid == pid and not process.alive for process in self.processes.values())

    def close(self) -> None:
        """End all processes."""
        for process in self.processes.values():
            process.alive = False
        self._bury()


_tables = functools.cache(entry_tables)
_identity = functools.cache(queue_core.cluster.host.host_identity)


@contextmanager
def simulating(databases: Databases, settings: Settings) -> Iterator[Simulation]:
    """A simulation on an empty database. Inside the block, time and threads are the scheduler's."""
    databases.reset()
    simulation = Simulation(databases, settings)
    scheduler = simulation.scheduler
    sleeping = Replaced(
        time,
        sleep=lambda _: scheduler.pause("a pause before another try"),
        monotonic=lambda: scheduler.time,
    )
    waiting = Replaced(
        time,
        sleep=lambda _: scheduler.pause("the write lock", stuck=True),
        monotonic=lambda: scheduler.time,
    )
    threads = Replaced(threading, get_ident=scheduler.ident)
    with ExitStack() as stack:
        for module, name, value in (
            (queue_core.storage.store, "entry_tables", _tables),
            (queue_core.cluster.node, "host_identity", _identity),
            (queue_core.cluster.node, "is_dead_neighbour", simulation.is_dead),
            (queue_core.cluster.process_nodes, "here", {}),
            (queue_core.cluster.process_nodes, "_former", defaultdict(list)),
            (queue_core.running.runner, "threading", threads),
            (queue_core.posting.posted_hand_over, "FROM_MEMORY", FROM_MEMORY),
            (sql.sqlite.dialect, "threading", threads),
            (sql.sqlite.patience, "time", waiting),
            (tenacity.nap, "time", sleeping),
        ):
            stack.enter_context(patch.object(module, name, value))
        before = logging.root.manager.disable
        logging.disable(logging.CRITICAL)
        stack.callback(logging.disable, before)
        stack.enter_context(watching(databases, simulation))
        stack.callback(simulation.close)
        yield simulation


def simulate(databases: Databases, settings: Settings, steps: Iterable[Step]) -> Result:
    """Take the steps, let the system come to rest, and judge."""
    with simulating(databases, settings) as simulation:
        for step in steps:
            simulation.take(step)
        simulation.rest()
        return simulation.result()
