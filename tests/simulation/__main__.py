"""`make simulate`: many seeds on both cores, and of a failing one the shortest trace found.

SEEDS: how many (10,000). SEED: one, with its whole trace. FIRST: the first of many (0). PLANTED: a
bug to plant.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import signal
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tests.simulation.planted import planted
from tests.simulation.seeds import databases_in, in_memory, run_all, run_seed, shrink

CHUNK = 20
SHOWN = 3
"""Failing seeds whose trace is made short and shown."""


def _show(console: Console, folder: Path, seed: int, bug: str, *, short: bool) -> bool:
    """Run a seed and print its trace; True if it kept the invariants."""
    databases = databases_in(folder)
    with planted(bug):
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
    argparse.ArgumentParser(
        prog="python -m tests.simulation",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    ).parse_args()
    console, bug = Console(), os.environ.get("PLANTED", "")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with in_memory() as folder:
        if "SEED" in os.environ:
            return 0 if _show(console, folder, int(os.environ["SEED"]), bug, short=False) else 1
        first = int(os.environ.get("FIRST") or 0)
        bad = _run_many(
            console, folder, range(first, first + int(os.environ.get("SEEDS") or 10_000)), bug
        )
        for seed in bad[:SHOWN]:
            _show(console, folder, seed, bug, short=True)
            console.print(f"The whole trace: SEED={seed} make simulate", style="bold")
    return 1 if bad else 0


def _run_many(console: Console, folder: Path, seeds: range, bug: str) -> list[int]:
    """Run seeds on all cores; those that failed."""
    bad, entries, runs, began = list[int](), 0, 0, time.monotonic()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    workers = min(2, os.cpu_count() or 1)
    with (
        ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool,
        Progress(*columns, console=console) as progress,
    ):
        bar = progress.add_task("seeds", total=len(seeds))
        chunks = [seeds[at : at + CHUNK] for at in range(0, len(seeds), CHUNK)]
        try:
            for future in as_completed(
                [pool.submit(run_all, folder, chunk, bug) for chunk in chunks]
            ):
                for seed, posted, ran, violations in future.result():
                    entries, runs = entries + posted, runs + ran
                    progress.advance(bar)
                    if violations:
                        bad.append(seed)
                        progress.console.print(f"[red]seed {seed}: {escape(violations[0])}[/]")
        except BaseException:  # Ctrl-C, or the signal that `main` turns into an exit
            pool.shutdown(cancel_futures=True)
            raise
    seconds = time.monotonic() - began
    console.print(
        f"{len(seeds)} seeds, {entries} entries, {runs} runs in {seconds:.0f} s "
        f"({1000 * seconds / len(seeds):.0f} ms a seed): {len(bad)} failed"
    )
    return sorted(bad)


if __name__ == "__main__":
    sys.exit(main())
