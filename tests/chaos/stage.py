"""A running system: a database, its nodes and posters, and what a scenario may do to them.

The stage restarts nodes that die, as a supervisor does: at random under the same name or under a
new one. It writes down every death and every fault with its time.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import random
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Self

from sqlalchemy import URL, create_engine, func, make_url, select, text
from sqlalchemy.pool import NullPool

from devtools.proxy import Proxy
from devtools.server import DatabaseServer
from sql import schema
from sql.tables import entry_tables
from stickybus import BusConfig
from tests.chaos import member
from tests.chaos.journal import monotonic
from tests.chaos.member import Command, Settings
from tests.checker import Standing

NODES, POSTERS = 3, 2
_BOUND_SECONDS = 60.0
"""The longest wait for what a scenario expects.

Also the longest time without an entry that ends while everything comes to rest.
"""
_STOP_SECONDS = 15.0
_LOOK_SECONDS = 0.05
_SAMPLE_SECONDS = 0.5
_AT_REST_SECONDS = 1.0

# Alembic keeps its context in its modules: two migrations at once would write to one database.
_migrating = threading.Lock()
_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload([member.__name__, "psycopg", "pymysql"])


class StageError(Exception):
    """The run did not get where its faults were to begin: it shows nothing."""


@dataclass(eq=False)
class Member:
    """A process of the run, and our end of its pipe."""

    settings: Settings
    process: BaseProcess
    control: Connection

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, unless it has gone."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def tell(self, command: str, number: int = 0) -> None:
        """Send it a command, unless it has gone."""
        with suppress(OSError):
            self.control.send((command, number))


@dataclass(frozen=True)
class Death:
    """A process has ended, by whatever cause."""

    node: str
    pid: int
    at: float


@dataclass(frozen=True)
class Fault:
    """What was done to the system, and when.

    `returned`: it was undone, and the system may recover.
    """

    what: str
    at: float
    returned: bool = False


@dataclass(frozen=True)
class Target:
    """The place of a run's database.

    It is on a server, or without one in a file below the run's folder.
    """

    name: str
    server: DatabaseServer | None = None
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def fresh(self, folder: Path) -> URL:
        """A new database with the schema. It goes with its server or folder."""
        if self.server is None:
            url = URL.create("sqlite", database=str(folder / "chaos.db"))
        else:
            name = f"chaos_{next(self._numbers)}"
            server_url = make_url(self.server.url)
            engine = create_engine(server_url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
            with engine.connect() as connection:
                connection.execute(text(f"CREATE DATABASE {name}"))
            url = server_url.set(database=name)
        with _migrating:
            schema.create(url)
        return url


class Stage:
    """See the module.

    A context manager: the load begins at its start, `rest` brings all to its end.
    """

    def __init__(
        self,
        target: Target,
        settings: Settings,
        *,
        seed: int,
        through_proxy: bool = False,
        clock_offsets: tuple[float, ...] = (0.0,),
        say: Callable[[str], None],
    ) -> None:
        self.target = target
        self.folder = settings.folder
        self.random = random.Random(seed)  # noqa: S311 -- a run is to be repeatable
        self.say = say
        self.url = target.fresh(settings.folder)
        self.direct = create_engine(self.url, poolclass=NullPool)
        self.tables = entry_tables(BusConfig().table)
        self.archived: list[Standing] = []
        self.deaths: list[Death] = []
        self.faults: list[Fault] = []
        self.problems: list[str] = []
        self.memory_peak_bytes = 0
        self.began = monotonic()
        self.mode = settings.mode
        self._proxy = Proxy.before(self.url) if through_proxy else None
        self._clock_offsets = clock_offsets
        self._settings = settings
        self._numbers = itertools.count(1)
        self._names = itertools.count(1)
        self._members: list[Member] = []
        self._pages = 0
        self._lock = threading.RLock()
        self._posting = self._supervised = True
        self._closing = threading.Event()
        self._supervisor = threading.Thread(target=self._supervise, name="supervisor", daemon=True)

    def __enter__(self) -> Self:
        url = self.url if self._proxy is None else self._proxy.__enter__().through(self.url)
        self._settings = replace(self._settings, url=url.render_as_string(hide_password=False))
        for place in range(NODES):
            self.start_node(f"node-{place}")
        self.start_posters()
        self._supervisor.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._supervised = False
        for one in self.members():
            one.signal(signal.SIGKILL)
        for one in self.members():
            one.process.join()
        self._closing.set()
        self._supervisor.join()
        if self._proxy is not None:
            self._proxy.__exit__(None, None, None)

    # -- processes --------------------------------------------------------------------------------

    @property
    def proxy(self) -> Proxy:
        """What all members connect through."""
        assert self._proxy is not None, "the scenario has asked for no proxy"
        return self._proxy

    @property
    def server(self) -> DatabaseServer:
        """The server, to be stopped and restarted if it is this run's own."""
        assert self.target.server is not None
        return self.target.server

    def members(self) -> list[Member]:
        """All that live."""
        with self._lock:
            return list(self._members)

    @property
    def link(self) -> str:
        """What the posts of this run have in common."""
        return self._settings.link

    def nodes(self) -> list[Member]:
        """The nodes that live, by name."""
        return sorted(
            (one for one in self.members() if one.settings.delivers),
            key=lambda one: one.settings.name,
        )

    def start_node(self, name: str) -> Member:
        """Start a node, which posts at half a poster's rate as long as the load lasts."""
        rate = self._settings.rate / 2 if self._posting else 0.0
        return self._start(replace(self._settings, name=name, delivers=True, rate=rate, poisons=0))

    def start_posters(self) -> None:
        """Start the posting processes."""
        for place in range(POSTERS):
            self._start(replace(self._settings, name=f"poster-{place}", delivers=False))

    def stop_posters(self) -> None:
        """End the posting processes: in good order if they can, else by SIGKILL."""
        posters = [one for one in self.members() if not one.settings.delivers]
        for one in posters:
            one.signal(signal.SIGTERM)
        deadline = monotonic() + _STOP_SECONDS
        for one in posters:
            one.process.join(max(0.0, deadline - monotonic()))
            one.signal(signal.SIGKILL)
            self._gone(one)

    def kill(self, victim: Member) -> None:
        """SIGKILL."""
        self.mark(f"kill {victim.settings.name}")
        victim.signal(signal.SIGKILL)
        self._gone(victim)

    def limit_pages(self, pages: int) -> None:
        """Let the SQLite file have so many pages at most, 0 for any number."""
        self._pages = pages
        for one in self.members():
            one.tell(Command.PAGES, pages)

    def _start(self, settings: Settings) -> Member:
        number = next(self._numbers)
        settings = replace(
            settings,
            number=number,
            clock_seconds=self._clock_offsets[number % len(self._clock_offsets)],
        )
        ours, theirs = _forks.Pipe()
        process = _forks.Process(target=member.run, args=(settings, theirs), daemon=True)
        process.start()
        theirs.close()
        one = Member(settings, process, ours)
        if self._pages:
            one.tell(Command.PAGES, self._pages)
        with self._lock:
            self._members.append(one)
        return one

    def _gone(self, one: Member) -> None:
        """Wait for the end of a process that is to end, and write it down."""
        one.process.join()
        with self._lock:
            if one not in self._members:
                return
            self._members.remove(one)
            self.deaths.append(Death(one.settings.name, one.pid, monotonic()))
            one.control.close()
            if self._supervised and one.settings.delivers:
                again = self.random.random() < 0.5
                self.start_node(one.settings.name if again else f"heir-{next(self._names)}")

    def _supervise(self) -> None:
        sample_at = 0.0
        while not self._closing.is_set():
            living: dict[Any, Member] = {one.process.sentinel: one for one in self.members()}
            for sentinel in wait(list(living), timeout=_LOOK_SECONDS):
                self._gone(living[sentinel])
            if not living:
                self._closing.wait(_LOOK_SECONDS)
            if monotonic() >= sample_at:
                sample_at = monotonic() + _SAMPLE_SECONDS
                peaks = [_peak_bytes(one.pid) for one in self.nodes()]
                self.memory_peak_bytes = max([self.memory_peak_bytes, *peaks])

    # -- time -------------------------------------------------------------------------------------

    def pause(self, seconds: float) -> None:
        """Let the system run."""
        self._closing.wait(seconds)

    def mark(self, what: str, *, returned: bool = False) -> None:
        """Write a fault down, or its end."""
        self.faults.append(Fault(what, monotonic(), returned))

    def wait(self, condition: Callable[[], bool], what: str) -> bool:
        """Wait until `condition` holds; if it does not in time, that is a problem of the run."""
        deadline = monotonic() + _BOUND_SECONDS
        while not condition():
            if monotonic() > deadline:
                self.problems.append(f"not within {_BOUND_SECONDS:.0f} s: {what}")
                return False
            self.pause(_LOOK_SECONDS)
        return True

    # -- the tables, past any proxy ---------------------------------------------------------------

    def ended(self) -> int:
        """How many rows history has."""
        with self.direct.connect() as connection:
            return connection.scalar(select(func.count()).select_from(self.tables.history)) or 0

    def rows(self) -> tuple[list[Standing], list[Standing]]:
        """All that stands in the main table and in history."""
        with self.direct.connect() as connection:
            main, history = (
                [Standing.of(dict(row)) for row in connection.execute(select(table)).mappings()]
                for table in (self.tables.main, self.tables.history)
            )
        return main, history

    def _left(self) -> int:
        """How many rows the main table has."""
        with self.direct.connect() as connection:
            return connection.scalar(select(func.count()).select_from(self.tables.main)) or 0

    # -- the end ----------------------------------------------------------------------------------

    def rest(self) -> None:
        """End the load, wait until nothing is left to be done, and stop the nodes in good order."""
        self.say("coming to rest")
        self._posting = False
        self.stop_posters()
        self._silence_nodes()
        self._drain()
        self._supervised = False
        for one in self.nodes():
            one.signal(signal.SIGTERM)
        deadline = monotonic() + _STOP_SECONDS
        for one in self.nodes():
            one.process.join(max(0.0, deadline - monotonic()))
            if one.process.is_alive():
                self.problems.append(
                    f"{one.settings.name} did not stop within {_STOP_SECONDS:.0f} s of SIGTERM"
                )
                one.signal(signal.SIGKILL)
            self._gone(one)

    def _drain(self) -> None:
        """Wait until the main table is, and stays, empty.

        It waits as long as a backlog needs, if the backlog only shrinks.
        """
        left, since = -1, monotonic()
        while True:
            before, left = left, self._left()
            if left != before:
                since = monotonic()
            elif left == 0 and monotonic() - since > _AT_REST_SECONDS:
                return
            elif monotonic() - since > _BOUND_SECONDS:
                self.problems.append(
                    f"{left} entries are left, and none has ended for {_BOUND_SECONDS:.0f} s"
                )
                return
            self.say(f"coming to rest: {left:,} entries left")
            self.pause(_LOOK_SECONDS)

    def _silence_nodes(self) -> None:
        """Let the nodes post no more.

        One that can't say so is killed, and its successor does not post.
        """
        asked = self.nodes()
        for one in asked:
            one.tell(Command.REST)
        deadline = monotonic() + _STOP_SECONDS
        for one in asked:
            try:
                silent = one.control.poll(max(0.0, deadline - monotonic())) and one.control.recv()
            except (EOFError, OSError):
                continue  # it has died, and its successor does not post
            if not silent:
                self.problems.append(f"a post of {one.settings.name} hangs")
                self.kill(one)


def _peak_bytes(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text("ascii").splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
