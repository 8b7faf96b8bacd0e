"""The faults.

A scenario says where it applies, what the members are set to, and what is done to them.
"""

from __future__ import annotations

import signal
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry
from sqlalchemy import func, select, text

from devtools.proxy import Moment
from devtools.server import StopMode
from stickybus import Mode, PersistentBus
from tests.chaos.journal import monotonic
from tests.chaos.linked import CONCURRENCY, HEARD_SECONDS, Link
from tests.chaos.member import Command
from tests.chaos.stage import Member, Stage
from tests.checker import Standing

SERVERS = ("postgresql", "mariadb", "mysql")
DATABASES = ("postgresql", "mariadb", "sqlite", "mysql")
_HOUR_SECONDS = 3600.0
_NETWORK_LEASE_SECONDS = 10.0
"""With half a second of latency a beat takes two: a lease has to last several."""


@dataclass(frozen=True)
class Sizes:
    """How much is done. `share` of the full sizes, where a scenario has no least number."""

    quick: bool

    def of(self, full: float, quick: float) -> float:
        """The one that applies."""
        return quick if self.quick else full

    def times(self, full: int, quick: int) -> range:
        """So many rounds."""
        return range(quick if self.quick else full)


Act = Callable[[Stage, Sizes], None]


@dataclass(frozen=True)
class Scenario:
    """See the module. `own_server`: it stops the server, which others may not share with it."""

    name: str
    act: Act
    databases: Sequence[str] = DATABASES
    modes: Sequence[Mode] = (Mode.STICKY_EVENTS,)
    own_server: bool = False
    through_proxy: bool = False
    clock_offsets: tuple[float, ...] = (0.0,)
    settings: dict[str, Any] = field(default_factory=dict)
    poisons: tuple[int, int] = (0, 0)
    """Of each poster: in a full and in a quick run."""

    @property
    def about(self) -> str:
        """The first sentence of its docstring."""
        return (self.act.__doc__ or "").partition("\n")[0].rstrip(".")


def kill(stage: Stage, sizes: Sizes) -> None:
    """Nodes are killed at random (SIGKILL), 200 times."""
    for done in sizes.times(200, 8):
        stage.say(f"kill {done + 1}")
        stage.kill(stage.random.choice(stage.nodes()))
        stage.pause(stage.random.uniform(0.1, sizes.of(3.0, 1.4)))


def freeze(stage: Stage, sizes: Sizes) -> None:
    """Nodes are stopped past their lease (SIGSTOP), then go on (SIGCONT)."""
    for done in sizes.times(12, 2):
        stage.say(f"freeze {done + 1}")
        frozen = stage.random.sample(stage.nodes(), k=1 + done % 2)
        for one in frozen:
            one.signal(signal.SIGSTOP)
        stage.mark("freeze")
        stage.pause(stage.random.uniform(3.0, 5.0))
        for one in frozen:
            one.signal(signal.SIGCONT)
        stage.mark("thaw", returned=True)
        stage.pause(sizes.of(3.0, 1.0))


def poison(stage: Stage, sizes: Sizes) -> None:
    """Some entries kill the process that runs them, among thousands of others."""
    stage.mark("poison")
    stage.pause(sizes.of(60.0, 4.0))


def restart(stage: Stage, sizes: Sizes) -> None:
    """The server is restarted 20 times, fast and immediate, away for up to twice the lease."""
    for done in sizes.times(20, 2):
        stage.say(f"restart {done + 1}")
        mode = list(StopMode)[done % 2]
        stage.mark(f"stop {mode.name.lower()}")
        stage.server.stop(mode)
        stage.pause(stage.random.choice([0.0, 1.0, 4.0]) if not sizes.quick else 4.0 * (done % 2))
        stage.server.start()
        stage.mark("start", returned=True)
        stage.pause(sizes.of(5.0, 3.0))


def commit_cut(stage: Stage, sizes: Sizes) -> None:
    """Cut connections at their COMMIT: half before the server gets it, half before its answer."""
    cuts = sizes.times(300, 12)
    for done in cuts:
        stage.say(f"cut {done + 1}")
        stage.mark("cut")
        stage.proxy.cut_at_commit(list(Moment)[done % 2])
        stage.pause(stage.random.uniform(0.05, 0.4))
    stage.wait(lambda: stage.proxy.cuts >= len(cuts), "every cut has met a COMMIT")


def half_open(stage: Stage, sizes: Sizes) -> None:
    """The server's side of all connections is closed, and the clients never hear of it."""
    for done in sizes.times(6, 1):
        stage.say(f"half-open {done + 1}")
        stage.mark("half-open", returned=True)
        stage.proxy.half_open()
        stage.pause(sizes.of(15.0, 8.0))


def black_hole(stage: Stage, sizes: Sizes) -> None:
    """Nothing arrives and nothing answers for 60 s, new connections included."""
    stage.mark("black hole")
    stage.proxy.swallow()
    stage.pause(sizes.of(60.0, 6.0))
    stage.proxy.pass_on()
    stage.mark("pass on", returned=True)
    stage.pause(sizes.of(10.0, 2.0))


def latency(stage: Stage, sizes: Sizes) -> None:
    """Every round trip takes 500 ms longer (lease 10 s)."""
    stage.mark("latency")
    stage.proxy.delay(0.25)
    stage.pause(sizes.of(40.0, 6.0))
    stage.proxy.pass_on()
    stage.mark("no latency", returned=True)
    stage.pause(sizes.of(10.0, 2.0))


def pool(stage: Stage, sizes: Sizes) -> None:
    """The application's engine has two connections and 0.2 s of patience.

    Every handler wants one, and the bus has as few.
    """
    stage.mark("small pool")
    stage.pause(sizes.of(40.0, 4.0))


def clocks(stage: Stage, sizes: Sizes) -> None:
    """The wall clocks of two members in three are an hour ahead or behind.

    Some nodes are killed.
    """
    stage.mark("clocks")
    for done in sizes.times(15, 2):
        stage.say(f"kill {done + 1}")
        stage.kill(stage.random.choice(stage.nodes()))
        stage.pause(2.0)


def snapshot(stage: Stage, sizes: Sizes) -> None:
    """A session holds an old snapshot: nothing that was deleted since can be cleaned up."""
    with stage.direct.connect() as session:
        if stage.target.server is not None:
            session.execution_options(isolation_level="REPEATABLE READ")
        else:
            session.execute(text("BEGIN"))
        session.execute(select(func.count()).select_from(stage.tables.history))
        stage.mark("snapshot")
        stage.pause(sizes.of(60.0, 4.0))
        session.rollback()
    stage.mark("let go", returned=True)
    stage.pause(sizes.of(5.0, 1.0))


def truncate(stage: Stage, sizes: Sizes) -> None:
    """The history is archived and truncated again and again under load."""
    # An archiver's distance: what has ended before it has committed by now.
    margin = timedelta(seconds=sizes.of(5.0, 2.0))
    history = stage.tables.history
    archiver = PersistentBus(stage.url, metrics_registry=CollectorRegistry())
    stage.mark("truncate")
    try:
        until = monotonic() + sizes.of(60.0, 5.0)
        while monotonic() < until:
            before = archiver._engine.store.clock.now() - margin
            with stage.direct.connect() as connection:
                rows = connection.execute(
                    select(history).where(history.c.finished_date < before)
                ).mappings()
                copied = [Standing.of(dict(row)) for row in rows]
            stage.archived += copied
            removed = archiver.truncate_history(before=before)
            if removed != len(copied):
                stage.problems.append(
                    f"an outcome became visible late: {len(copied)} copied, {removed} removed"
                )
            stage.pause(0.2)
    finally:
        archiver.close()


def disk_full(stage: Stage, sizes: Sizes) -> None:
    """The file may not grow for a while."""
    for done in sizes.times(5, 1):
        stage.say(f"full {done + 1}")
        with stage.direct.connect() as connection:
            pages = connection.scalar(text("PRAGMA page_count")) or 0
        stage.mark("full")
        stage.limit_pages(pages + 4)
        stage.pause(sizes.of(8.0, 4.0))
        stage.limit_pages(0)
        stage.mark("room again", returned=True)
        stage.pause(sizes.of(4.0, 2.0))


def busy(stage: Stage, sizes: Sizes) -> None:
    """Another process holds the file's write lock for longer than the lease."""
    for done in sizes.times(6, 1):
        stage.say(f"busy {done + 1}")
        with closing(
            sqlite3.connect(stage.url.database or "", timeout=30.0, isolation_level=None)
        ) as other:
            other.execute("BEGIN IMMEDIATE")
            stage.mark("busy")
            stage.pause(5.0)
            other.execute("ROLLBACK")
        stage.mark("free", returned=True)
        stage.pause(sizes.of(4.0, 2.0))


def _has_left(stage: Stage, member: Member) -> bool:
    return member not in stage.members()


def rolling(stage: Stage, sizes: Sizes) -> None:
    """All nodes are restarted one after the other (SIGTERM), as by a deployment."""
    for done in sizes.times(10, 1):
        stage.say(f"round {done + 1}")
        for one in stage.nodes():
            stage.mark(f"SIGTERM {one.settings.name}")
            one.signal(signal.SIGTERM)
            stage.wait(partial(_has_left, stage, one), "a node has stopped")
            stage.pause(sizes.of(1.0, 0.5))


def rejoin(stage: Stage, sizes: Sizes) -> None:
    """A bus stops without waiting, and starts again, while a service keeps its node alive."""
    for done in sizes.times(60, 6):
        stage.say(f"rejoin {done + 1}")
        one = stage.random.choice(stage.nodes())
        stage.mark(f"rejoin {one.settings.name}")
        one.tell(Command.REJOIN, stage.random.choice((0, 20, 400)))
        stage.pause(stage.random.uniform(0.1, 1.0))


def links(stage: Stage, sizes: Sizes) -> None:
    """Nodes are killed, and stopped past their lease, while entries have keys or a limit."""
    if stage.link == Link.LIMIT:
        with PersistentBus(stage.url, metrics_registry=CollectorRegistry()) as bus:
            bus.limit(concurrency=CONCURRENCY)
        stage.mark("limit")
        stage.pause(HEARD_SECONDS)
    for done in sizes.times(20, 1):
        stage.say(f"kill and freeze {done + 1}")
        stage.kill(stage.random.choice(stage.nodes()))
        frozen = stage.random.choice(stage.nodes())
        frozen.signal(signal.SIGSTOP)
        stage.pause(stage.random.uniform(2.5, sizes.of(5.0, 3.0)))
        frozen.signal(signal.SIGCONT)
        stage.mark("thaw", returned=True)
        stage.pause(sizes.of(3.0, 0.5))


_EACH_MODE = (Mode.STICKY_EVENTS, Mode.POLLING, Mode.STICKY_POLLING)
SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario("kill", kill, modes=_EACH_MODE),
        Scenario("freeze", freeze, modes=_EACH_MODE),
        Scenario("poison", poison, modes=_EACH_MODE, poisons=(5, 1)),
        Scenario("restart", restart, SERVERS, own_server=True),
        Scenario(
            "order-restart",
            restart,
            SERVERS,
            own_server=True,
            settings={"link": Link.ORDER},
        ),
        Scenario("commit-cut", commit_cut, SERVERS, _EACH_MODE, through_proxy=True),
        Scenario("half-open", half_open, SERVERS, through_proxy=True),
        Scenario("black-hole", black_hole, SERVERS, through_proxy=True),
        Scenario(
            "latency",
            latency,
            SERVERS,
            through_proxy=True,
            settings={"lease_seconds": _NETWORK_LEASE_SECONDS},
        ),
        Scenario("pool", pool, settings={"pool_size": 2}),
        Scenario("clocks", clocks, SERVERS, clock_offsets=(0.0, _HOUR_SECONDS, -_HOUR_SECONDS)),
        Scenario("snapshot", snapshot),
        Scenario("truncate", truncate),
        Scenario("disk-full", disk_full, ("sqlite",)),
        Scenario("busy", busy, ("sqlite",)),
        Scenario("rolling", rolling, modes=_EACH_MODE),
        *(
            Scenario(name, links, modes=_EACH_MODE, settings={"link": link})
            for name, link in (("keys", Link.KEY), ("order", Link.ORDER), ("limits", Link.LIMIT))
        ),
        Scenario("rejoin", rejoin, modes=_EACH_MODE, settings={"neighbour": True}),
    )
}
"""By name, in the order in which they are reported."""
