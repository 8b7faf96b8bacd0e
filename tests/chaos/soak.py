"""Half an hour at a steady rate on PostgreSQL with one kill a minute.

The resources of nodes and tables must stay flat.

One node is never killed: what leaks shows there. The first and the last third of the time are
compared, warm-up aside.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from sqlalchemy import Connection, text

from devtools.folders import data_folder
from tests.chaos import journal
from tests.chaos.journal import Sampled, monotonic
from tests.chaos.member import SAMPLE_SECONDS, Settings
from tests.chaos.stage import Stage, Target
from tests.chaos.verdict import Result, result_of

RATE = 20.0
"""Transactions per second of each poster; nodes post half as many."""
KILL_SECONDS = 60.0
LASTING = "node-0"
_WARM_UP = 0.1
_CONNECTIONS = text("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()")
_TABLE = text(
    "SELECT n_dead_tup, pg_total_relation_size(relid) FROM pg_stat_user_tables WHERE relname = "
    ":name"
)


@dataclass(frozen=True)
class Series:
    """One figure over time.

    Flat: `summary` of the last third is at most `factor` times the first third's, plus `slack`.
    """

    name: str
    unit: str
    points: Sequence[tuple[float, float]]
    summary: Callable[[Sequence[float]], float]
    factor: float
    slack: float

    def third(self, *, last: bool) -> float:
        """The summary of a third of what follows the warm-up; 0 if there is nothing."""
        points = self.points[round(len(self.points) * _WARM_UP) :]
        third = len(points) // 3
        values = [value for _, value in (points[-third:] if last else points[:third])]
        return self.summary(values) if values else 0.0

    @property
    def limit(self) -> float:
        """What the last third may reach."""
        return self.third(last=False) * self.factor + self.slack

    @property
    def flat(self) -> bool:
        """Whether it stayed below."""
        return self.third(last=True) <= self.limit


@dataclass(frozen=True)
class Soak:
    """What came out: the judge's result and the series."""

    minutes: float
    kills: int
    result: Result
    series: Sequence[Series]

    @property
    def good(self) -> bool:
        """Whether nothing was violated and all stayed flat."""
        return self.result.good and all(series.flat for series in self.series)


def soak(target: Target, minutes: float, *, seed: int, say: Callable[[str], None]) -> Soak:
    """Run, judge and measure."""
    folder = Path(tempfile.mkdtemp(prefix="stickybus-soak-", dir=data_folder(durable=False)))
    settings = Settings(
        name="", number=0, url="", folder=folder, delivers=False, rate=RATE, samples=True
    )
    kills = 0
    with Stage(target, settings, seed=seed, say=say) as stage:
        with _watching(stage) as tables:
            until = monotonic() + minutes * 60
            while (left := until - monotonic()) > 0:
                say(f"{left / 60:.1f} minutes left, {kills} kills, {stage.ended():,} entries ended")
                stage.pause(min(KILL_SECONDS, left))
                if monotonic() < until:
                    kills += 1
                    stage.kill(
                        stage.random.choice(
                            [one for one in stage.nodes() if one.settings.name != LASTING]
                        )
                    )
        stage.rest()
        result = result_of(stage, settings, scenario="soak", seed=seed)
        lasting = [
            line
            for lines in journal.read(folder)
            for line in lines
            if isinstance(line, Sampled) and line.node == LASTING
        ]
    if result.good:
        shutil.rmtree(folder)
    return Soak(minutes, kills, result, list(_series(stage.began, lasting, tables)))


@dataclass(frozen=True)
class _Tables:
    """What PostgreSQL tells at one moment."""

    at: float
    dead: float
    size_bytes: float
    connections: float


@contextmanager
def _watching(stage: Stage) -> Iterator[list[_Tables]]:
    """Look at the main table while the block runs."""
    seen: list[_Tables] = []
    done = threading.Event()

    def look(connection: Connection) -> None:
        dead, size = connection.execute(_TABLE, {"name": stage.tables.main.name}).one()
        # This session is no node's.
        connections = (connection.scalar(_CONNECTIONS) or 1) - 1
        seen.append(_Tables(monotonic(), dead, size, connections))

    def work() -> None:
        while not done.wait(SAMPLE_SECONDS):
            with stage.direct.connect() as connection:
                look(connection)

    thread = threading.Thread(target=work, name="watch")
    thread.start()
    try:
        yield seen
    finally:
        done.set()
        thread.join()


def _series(began: float, nodes: Sequence[Sampled], tables: Sequence[_Tables]) -> Iterator[Series]:
    def of_node(value: Callable[[Sampled], float]) -> list[tuple[float, float]]:
        return [(line.at - began, value(line)) for line in nodes]

    def of_tables(value: Callable[[_Tables], float]) -> list[tuple[float, float]]:
        return [(line.at - began, value(line)) for line in tables]

    claims = [
        (
            after.at - began,
            1000 * (after.claim_seconds - before.claim_seconds) / (after.claims - before.claims),
        )
        for before, after in pairwise(nodes)
        if after.claims > before.claims
    ]
    median = statistics.median
    yield Series(
        "memory of the node that lasts",
        "MB",
        of_node(lambda line: line.memory_bytes / 2**20),
        median,
        1.05,
        2,
    )
    yield Series("threads of that node", "", of_node(lambda line: line.threads), max, 1, 0)
    yield Series("time of a claim, its commit included", "ms", claims, median, 1.5, 0.5)
    yield Series(
        "connections of all nodes and posters",
        "",
        of_tables(lambda line: line.connections),
        median,
        1,
        2,
    )
    yield Series(
        "dead tuples of the main table", "", of_tables(lambda line: line.dead), max, 1.5, 500
    )
    yield Series(
        "size of the main table with its indexes",
        "MB",
        of_tables(lambda line: line.size_bytes / 2**20),
        max,
        1.5,
        1,
    )
