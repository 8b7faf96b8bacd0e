"""`make simulate`: many seeds on both cores, and of a failing one the shortest trace found.

SEEDS: how many (10,000). SEED: one, with its whole trace. FIRST: the first of many (0). PLANTED: a bug to plant.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from sqlalchemy import URL

from sql.schema import create
from tests.simulation.database import Databases
from tests.simulation.planted import planted
from tests.simulation.seeds import run_seed, shrink

CHUNK = 20
SHOWN = 3
"""Failing seeds whose trace is made short and shown."""


@contextmanager
def sqlite_databases() -> Iterator[Databases]:
    """A database in memory-backed storage, if there is any."""
    memory = Path("/dev/shm")  # noqa: S108 -- a folder of our own is made in it
    folder = tempfile.mkdtemp(prefix="stickybus-simulation-", dir=memory if memory.is_dir() else None)
    url = URL.create("sqlite", database=f"{folder}/simulation.db")
    create(url)
    databases = Databases(url)
    try:
        yield databases
    finally:
        databases.close()
        shutil.rmtree(folder, ignore_errors=True)


def _run(chunk: tuple[Sequence[int], str]) -> list[tuple[int, int, int, list[str]]]:
    """In a process of the pool: seed, entries, runs and violations of each of the chunk's seeds."""
    seeds, bug = chunk
    found = []
    with sqlite_databases() as databases, planted(bug):
        for seed in seeds:
            _, _, result = run_seed(databases, seed)
            found.append((seed, result.entries, result.runs, [str(one) for one in result.violations]))
    return found


def _show(console: Console, seed: int, bug: str, *, short: bool) -> bool:
    """Run a seed and print its trace; True if it kept the invariants."""
    with sqlite_databases() as databases, planted(bug):
        settings, steps, result = run_seed(databases, seed)
        if short and result.violations:
            steps, result = shrink(databases, settings, steps)
    console.print(f"\n[bold]seed {seed}[/], {len(steps)} steps; {escape(str(settings))}")
    console.print("\n".join(result.trace), markup=False, highlight=False)
    for violation in result.violations:
        console.print(f"[red]{escape(str(violation))}[/]")
    return not result.violations


def main() -> int:
    """Simulate; the exit code says whether all invariants held."""
    console = Console()
    bug = os.environ.get("PLANTED", "")
    if "SEED" in os.environ:
        return 0 if _show(console, int(os.environ["SEED"]), bug, short=False) else 1
    count, first = int(os.environ.get("SEEDS") or 10_000), int(os.environ.get("FIRST") or 0)
    seeds = range(first, first + count)
    chunks = [(seeds[at : at + CHUNK], bug) for at in range(0, count, CHUNK)]
    bad = dict[int, list[str]]()
    entries = runs = 0
    began = time.monotonic()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with (
        multiprocessing.get_context("spawn").Pool(min(2, os.cpu_count() or 1), maxtasksperchild=25) as pool,
        Progress(*columns, console=console) as progress,
    ):
        bar = progress.add_task("seeds", total=count)
        for found in pool.imap_unordered(_run, chunks):
            for seed, posted, ran, violations in found:
                entries, runs = entries + posted, runs + ran
                if violations:
                    bad[seed] = violations
                    progress.console.print(f"[red]seed {seed}: {escape(violations[0])}[/]")
            progress.advance(bar, len(found))
    seconds = time.monotonic() - began
    console.print(
        f"{count} seeds, {entries} entries, {runs} runs in {seconds:.0f} s ({1000 * seconds / count:.0f} ms a seed): "
        f"{len(bad)} failed"
    )
    for seed in sorted(bad)[:SHOWN]:
        _show(console, seed, bug, short=True)
        console.print(f"The whole trace: SEED={seed} make simulate", style="bold")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
