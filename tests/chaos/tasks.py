"""A work queue under faults: processes that claim, renew, move and finish tasks, with counters.

Each task is finished in one modification: it is deleted, a counter that all share is raised, and a
task with its number is inserted into the queue of what is done. So at rest each number is there
once, and the counters add up to their number, whatever was killed, stopped or cut.
"""

from __future__ import annotations

import logging
import multiprocessing
import random
import shutil
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path

from prometheus_client import CollectorRegistry
from sqlalchemy import URL
from sqlalchemy.exc import SQLAlchemyError

from devtools.folders import data_folder
from devtools.proxy import Moment, Proxy
from devtools.server import StopMode
from stickybus import (
    DependencyError,
    DocClaim,
    Insert,
    InsertDoc,
    StickybusError,
    Task,
    WorkQueue,
)
from tests.chaos.journal import monotonic
from tests.chaos.stage import Target

MEMBERS = 6
LEASE_SECONDS = 1.5
QUEUES, DONE = ("first", "second"), "done"
NAMESPACE, COUNTERS = "counters", 3
BOUND_SECONDS = 120.0
"""The longest time without a task that is finished."""
_LOOK_SECONDS = 0.05
_INSERTED = 500
_REFUSED = StickybusError, SQLAlchemyError
_forks = multiprocessing.get_context("forkserver")


# -- members --------------------------------------------------------------------------------------


def member(url: str, seed: int) -> None:
    """A process: it works until it is killed, whatever the database answers."""
    logging.disable(logging.WARNING)  # of what is done to it
    chance, pause = random.Random(seed), threading.Event()  # noqa: S311 -- no secret
    while True:
        with suppress(*_REFUSED), _work_on(url) as work:
            while True:
                with suppress(*_REFUSED):
                    _turn(work, chance)
        pause.wait(_LOOK_SECONDS)


@contextmanager
def _work_on(url: str | URL) -> Iterator[WorkQueue]:
    with WorkQueue(url, lease_seconds=LEASE_SECONDS, metrics_registry=CollectorRegistry()) as work:
        yield work


def _turn(work: WorkQueue, chance: random.Random) -> None:
    """Claim a task, and finish it in one of two ways, hand it on, or forget it."""
    for task in work.claim_many(*QUEUES, limit=chance.choice((1, 1, 3)), timeout_seconds=1):
        match chance.choices(("hold", "hope", "move", "renew", "forget"), (6, 6, 3, 2, 1))[0]:
            case "hold":
                _finish_holding(work, task)
            case "hope":
                _finish(work, task)
            case "move":
                work.modify(task.change(queue=chance.choice(QUEUES)))
            case "renew":
                [later] = work.modify(task.renew(LEASE_SECONDS)).changed
                _finish(work, later)


def _finish_holding(work: WorkQueue, task: Task) -> None:
    """Hold the counter first, for as long as the task."""
    [counter] = work.claim_docs(DocClaim(NAMESPACE, _key(task)), until=task.ref)
    [doc] = counter.docs
    work.modify(task.delete(), doc.change(doc.content + 1), Insert(queue=DONE, value=task.value))


def _finish(work: WorkQueue, task: Task) -> None:
    """Read the counter, and hope that nobody else changes it meanwhile."""
    [doc] = work.docs(NAMESPACE, key=_key(task))
    try:
        work.modify(
            task.delete(), doc.change(doc.content + 1), Insert(queue=DONE, value=task.value)
        )
    except DependencyError:
        work.modify(task.release())


def _key(task: Task) -> str:
    return f"{task.value % COUNTERS}"


# -- the run --------------------------------------------------------------------------------------


@dataclass
class Result:
    """What a run has done, and what did not hold."""

    database: str
    tasks: int
    seconds: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        """Whether all held."""
        return not self.problems


def run(
    target: Target, *, tasks: int, faults: int, seed: int, say: Callable[[str], None]
) -> Result:
    """Finish tasks under faults, and judge.

    On a server, connections are cut at their COMMIT, before and after the server gets it, and the
    server is stopped and started.
    """
    folder = Path(tempfile.mkdtemp(prefix="stickybus-tasks-", dir=data_folder(durable=False)))
    begun, result = monotonic(), Result(target.name, tasks)
    url = target.fresh(folder)
    with _work_on(url) as work:
        for key in range(COUNTERS):
            work.modify(InsertDoc(namespace=NAMESPACE, key=f"{key}", content=0))
        for first in range(0, tasks, _INSERTED):
            numbers = range(first, min(first + _INSERTED, tasks))
            work.modify(*(Insert(queue=QUEUES[0], value=number) for number in numbers))
        with ExitStack() as open_things:
            proxy = None
            if target.server is not None:
                proxy = open_things.enter_context(Proxy.before(url))
            run = _Run(target, proxy, url, seed)
            open_things.callback(run.end)
            _act(run, work, result, faults, say)
        if result.good:
            result.problems += _problems(work, tasks)
    result.seconds = monotonic() - begun
    shutil.rmtree(folder, ignore_errors=True)
    return result


class _Run:
    """Members, and what can be done to them."""

    def __init__(self, target: Target, proxy: Proxy | None, url: URL, seed: int) -> None:
        self._target = target
        self._proxy = proxy
        led = url if proxy is None else proxy.through(url)
        self._url = led.render_as_string(hide_password=False)
        self.chance = random.Random(seed)  # noqa: S311 -- no secret
        self._members = [self._start() for _ in range(MEMBERS)]
        self.kinds = {"kill": self.kill}
        if proxy is not None:
            self.kinds |= {"cut": self.cut, "restart": self.restart}

    def _start(self) -> BaseProcess:
        started = _forks.Process(
            target=member, args=(self._url, self.chance.randrange(1_000_000)), daemon=True
        )
        started.start()
        return started

    def kill(self) -> None:
        """Kill a member, and start another."""
        place = self.chance.randrange(MEMBERS)
        self._members[place].kill()
        self._members[place].join()
        self._members[place] = self._start()

    def cut(self) -> None:
        """Cut the next connections at their COMMIT."""
        assert self._proxy is not None
        self._proxy.cut_at_commit(self.chance.choice(list(Moment)), times=2)

    def restart(self) -> None:
        """Stop the server, and start it."""
        assert self._target.server is not None
        self._target.server.restart(self.chance.choice(list(StopMode)))

    def end(self) -> None:
        """End all members."""
        for one in self._members:
            one.kill()
        for one in self._members:
            one.join()


def _act(
    run: _Run, work: WorkQueue, result: Result, faults: int, say: Callable[[str], None]
) -> None:
    """Do one fault each time that a part of the tasks is finished, until all are."""
    finished, since, pause = 0, monotonic(), threading.Event()
    while finished < result.tasks:
        with suppress(*_REFUSED):
            now = work.queues(DONE).get(DONE, 0)
            since = monotonic() if now > finished else since
            finished = now
        if monotonic() - since > BOUND_SECONDS:
            result.problems.append(f"{finished} of {result.tasks} tasks are done, and no more are")
            return
        if result.faults.total() * result.tasks < faults * finished:
            kind = run.chance.choice(list(run.kinds))
            say(f"{finished} of {result.tasks} done, {kind}")
            run.kinds[kind]()
            result.faults[kind] += 1
        pause.wait(_LOOK_SECONDS)


def _problems(work: WorkQueue, tasks: int) -> Iterator[str]:
    done = Counter(task.value for task in work.tasks(DONE))
    if twice := [number for number, times in done.items() if times > 1]:
        yield f"finished twice: {twice[:10]}"
    if lost := set(range(tasks)) - set(done):
        yield f"lost: {sorted(lost)[:10]}"
    counted = sum(doc.content for doc in work.docs(NAMESPACE))
    if counted != tasks:
        yield f"the counters add up to {counted}, not {tasks}"
    if work.queues() != {DONE: tasks}:
        yield f"the statistics say {work.queues()}"
    if left := [task.queue for queue in QUEUES for task in work.tasks(queue)]:
        yield f"tasks are left: {Counter(left)}"
