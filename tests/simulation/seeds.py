"""From a seed to a result, and from a failing seed to the shortest list of steps that fails."""

from __future__ import annotations

import functools
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Literal

from sqlalchemy import URL

from sql.schema import create
from tests.simulation.database import Databases
from tests.simulation.generator import Generator, settings_of
from tests.simulation.planted import planted
from tests.simulation.record import Result
from tests.simulation.settings import Settings
from tests.simulation.simulation import simulate, simulating
from tests.simulation.steps import Change, Step

FAILURES_ONLY = 5
"""Every fifth seed keeps only failures in history."""
LIMITED = 7
"""Every seventh seed limits its bus before other nodes start and anything is posted.

The limit is changed while it runs.
"""
ALL_EXACTLY_ONCE = 4
"""In every fourth seed two subscribers of an event have effects that happen exactly once."""


def run_seed(
    databases: Databases, seed: int, *, circuit: bool = False
) -> tuple[Settings, list[Step], Result]:
    """Simulate a seed; its settings, the steps that it chose, and the result.

    `circuit`: as in `Settings`. It is no part of the seed, whose steps are the same.
    """
    random = Random(seed)  # noqa: S311 -- to be repeated
    history: Literal["all", "failures"] = "all" if seed % FAILURES_ONLY else "failures"
    settings = replace(settings_of(random), circuit=circuit, history=history)
    if not seed % LIMITED:
        settings = replace(settings, faces=("bus",))
    if not seed % ALL_EXACTLY_ONCE:
        settings = replace(settings, subscribers=2, exactly_once=2)
    generator = Generator(random, settings)
    nodes = generator.first()
    steps: list[Step] = [*nodes]
    if not seed % LIMITED:
        steps.insert(1, Change(nodes[0].process, "bus", "limit", 1 + seed // LIMITED % 4))
    with simulating(databases, settings) as simulation:
        for step in steps:
            simulation.take(step)
        for _ in range(generator.length):
            step = generator.next(simulation)
            steps.append(step)
            simulation.take(step)
        simulation.rest()
        return settings, steps, simulation.result()


def shrink(
    databases: Databases, settings: Settings, steps: Sequence[Step]
) -> tuple[list[Step], Result]:
    """Leave out steps as long as one of the same invariants is violated, for half a minute.

    Returns the steps that are left, and their result.
    """
    least, result = list(steps), simulate(databases, settings, steps)
    wanted = {violation.invariant for violation in result.violations}
    deadline = time.monotonic() + 30.0
    size = max(1, len(least) // 2)
    while time.monotonic() < deadline:
        place, shorter = 0, False
        while place < len(least) and time.monotonic() < deadline:
            tried = least[:place] + least[place + size :]
            found = simulate(databases, settings, tried)
            if wanted & {violation.invariant for violation in found.violations}:
                least, result, shorter = tried, found, True
            else:
                place += size
        if size == 1 and not shorter:
            break
        size = max(1, size // 2)
    return least, result


@contextmanager
def in_memory() -> Iterator[Path]:
    """A folder in memory-backed storage, if there is any."""
    memory = Path("/dev/shm")  # noqa: S108 -- a folder of our own is made in it
    with tempfile.TemporaryDirectory(
        prefix="stickybus-simulation-", dir=memory if memory.is_dir() else None
    ) as folder:
        yield Path(folder)


@functools.cache
def databases_in(folder: Path) -> Databases:
    """This process's SQLite database there."""
    url = URL.create("sqlite", database=str(folder / f"{os.getpid()}.db"))
    create(url)
    return Databases(url)


def run_all(folder: Path, seeds: Sequence[int], bug: str) -> list[tuple[int, int, int, list[str]]]:
    """Simulate seeds in this process: seed, entries, runs and violations of each."""
    found = []
    with planted(bug):
        for seed in seeds:
            _, _, result = run_seed(databases_in(folder), seed)
            found.append(
                (seed, result.entries, result.runs, [str(one) for one in result.violations])
            )
    return found
