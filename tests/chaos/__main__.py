"""The command `python -m tests.chaos`."""

from __future__ import annotations

import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from devtools.programs import ServerError, is_done_without
from devtools.servers import database_servers
from stickybus import Mode
from tests.chaos import report, tasks
from tests.chaos.run import run
from tests.chaos.scenarios import DATABASES, SCENARIOS, Scenario, Sizes
from tests.chaos.soak import soak
from tests.chaos.stage import StageError, Target
from tests.chaos.verdict import Result

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class _Planned:
    scenario: Scenario
    database: str
    mode: Mode
    seed: int

    def __str__(self) -> str:
        return f"{self.scenario.name:13} {self.database:10} {self.mode.value:14}"


app = typer.Typer(add_completion=False)
Output = Annotated[
    Path | None,
    typer.Option(help="Write the report and its picture to this folder.", file_okay=False),
]
Seed = Annotated[int | None, typer.Option(help="Of what is done at random.")]


@app.command("run")
def run_scenarios(
    *,
    scenario: Annotated[
        list[str] | None, typer.Option(help=f"Only this one: {', '.join(SCENARIOS)}.")
    ] = None,
    database: Annotated[
        list[str] | None, typer.Option(help=f"Only on this one: {', '.join(DATABASES)}.")
    ] = None,
    mode: Annotated[
        list[Mode] | None, typer.Option(help="In this mode instead of the scenario's own.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A short form of each, on one database, in one mode.")
    ] = False,
    seed: Seed = None,
    side_by_side: Annotated[int, typer.Option(help="Runs at the same time.", min=1)] = 4,
    output: Output = None,
) -> None:
    """Run scenarios on databases, on servers of the command's own.

    Exit code 1 if an invariant did not hold, or a run did not get to its end.

    A full run of all writes its report to tests/chaos/results.
    """
    for kind, given, known in (
        ("scenario", scenario, SCENARIOS),
        ("database", database, DATABASES),
    ):
        for name in given or ():
            if name not in known:
                raise typer.BadParameter(f"{name!r} is no {kind}; use {', '.join(known)}")
    places = database or [name for name in DATABASES if not is_done_without(name)]
    first = _seed(seed)
    plan = [
        _Planned(SCENARIOS[name], place, one, first + number)
        for number, name in enumerate(scenario or SCENARIOS)
        for place in _databases(SCENARIOS[name], places, first + number if quick else None)
        for one in mode or _modes(SCENARIOS[name], first + number if quick else None)
    ]
    if output is None and not (quick or scenario or database or mode):
        output = RESULTS
    console = Console(stderr=True)
    try:
        results = _run_all(plan, Sizes(quick), side_by_side, console)
    except ServerError as error:
        console.print(f"[red]{type(error).__name__}:[/red] {error}")
        raise typer.Exit(1) from error
    text = report.markdown(results, "make chaos" + (" QUICK=1" if quick else ""))
    console.print(text, highlight=False, soft_wrap=True)
    if output is not None:
        _write(output, "chaos", text)
        report.plot(results, output / "chaos.png")
    if len(results) < len(plan) or not all(result.good for result in results):
        raise typer.Exit(1)


@app.command("soak")
def run_soak(
    *,
    minutes: Annotated[float, typer.Option(help="How long.", min=0.5)] = 30.0,
    seed: Seed = None,
    output: Output = RESULTS,
) -> None:
    """Run on PostgreSQL at a steady rate with one kill a minute.

    Exit code 1 if anything grows or an invariant breaks.
    """
    console = Console(stderr=True)
    with _progress(console) as progress, database_servers(which=["postgresql"]) as servers:
        task = progress.add_task("soak")
        soaked = soak(
            Target("postgresql", servers.server("postgresql")),
            minutes,
            seed=_seed(seed),
            say=lambda what: progress.update(task, description=f"soak: {what}"),
        )
    text = report.soak_markdown(
        soaked, "make soak" + (f" MINUTES={minutes:g}" if minutes != 30.0 else "")
    )
    console.print(text, highlight=False, soft_wrap=True)
    if output is not None:
        _write(output, "soak", text)
        report.soak_plot(soaked, output / "soak.png")
    if not soaked.good:
        raise typer.Exit(1)


@app.command("tasks")
def run_tasks(
    *,
    database: Annotated[
        list[str] | None, typer.Option(help=f"Only on this one: {', '.join(DATABASES)}.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A tenth of the tasks.")] = False,
    seed: Seed = None,
) -> None:
    """Finish tasks of a work queue while members are killed, servers stop and COMMITs are cut.

    Exit code 1 if a task is lost, or is finished twice, or a counter is wrong.
    """
    console, good = Console(stderr=True), True
    places = database or [name for name in DATABASES if not is_done_without(name)]
    wanted = [name for name in places if name != "sqlite"]
    first = _seed(seed)
    with _progress(console) as progress, database_servers(which=wanted) as servers:
        for number, name in enumerate(places):
            task = progress.add_task(name)
            result = tasks.run(
                Target(name, None if name == "sqlite" else servers.server(name)),
                tasks=500 if quick else 5_000,
                faults=10 if quick else 100,
                seed=first + number,
                say=partial(_tell, progress, task, name),
            )
            progress.remove_task(task)
            told = ", ".join(f"{count} x {kind}" for kind, count in result.faults.items())
            console.print(
                f"{name}: {result.tasks} tasks, {told}: {'; '.join(result.problems) or 'good'} "
                f"({result.seconds:.0f} s, seed {first + number})"
            )
            good &= result.good
    if not good:
        raise typer.Exit(1)


def _seed(given: int | None) -> int:
    return random.SystemRandom().randrange(1_000_000) if given is None else given


def _databases(scenario: Scenario, places: Sequence[str], turn: int | None) -> Sequence[str]:
    """Those of `places` where it applies, or one of them: in each turn another."""
    found = [place for place in places if place in scenario.databases]
    return [found[turn % len(found)]] if turn is not None and found else found


def _modes(scenario: Scenario, turn: int | None) -> Sequence[Mode]:
    """All its modes, or one of them: in each turn another."""
    return scenario.modes if turn is None else [scenario.modes[turn % len(scenario.modes)]]


def _write(folder: Path, name: str, text: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.md").write_text(f"{text}\n![The run over time]({name}.png)\n", "utf-8")


def _tell(progress: Progress, task: TaskID, name: str, what: str) -> None:
    progress.update(task, description=f"{name}: {what}")


def _progress(console: Console) -> Progress:
    return Progress(
        SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn(), console=console
    )


def _run_all(
    plan: list[_Planned], sizes: Sizes, side_by_side: int, console: Console
) -> list[Result]:
    with (
        _progress(console) as progress,
        ExitStack() as shared,
        ThreadPoolExecutor(side_by_side) as workers,
    ):
        wanted = {one.database for one in plan if not one.scenario.own_server} - {"sqlite"}
        servers = shared.enter_context(database_servers(which=sorted(wanted)))
        targets = {name: Target(name, servers.server(name)) for name in wanted} | {
            "sqlite": Target("sqlite")
        }

        def work(one: _Planned) -> Result | None:
            try:
                return judged(one)
            except (ServerError, StageError) as error:  # the others go on
                progress.console.print(f"[red]{one} {type(error).__name__}:[/red] {error}")
                return None

        def judged(one: _Planned) -> Result:
            task = progress.add_task(f"{one} starting")
            with ExitStack() as own:
                target = targets.get(one.database)
                if one.scenario.own_server:
                    server = own.enter_context(database_servers(which=[one.database])).server(
                        one.database
                    )
                    target = Target(one.database, server)
                assert target is not None

                def say(what: str) -> None:
                    progress.update(task, description=f"{one} {what}")

                result = run(one.scenario, target, one.mode, sizes, seed=one.seed, say=say)
            progress.remove_task(task)
            color = "green" if result.good else "red"
            progress.console.print(
                f"[{color}]{one} {result.committed:7,} committed, {result.deaths:4} ended, "
                f"{report.verdict(result)}[/{color}] ({result.seconds:.0f} s)",
                highlight=False,
                soft_wrap=True,
            )
            return result

        return [result for result in workers.map(work, plan) if result is not None]


if __name__ == "__main__":
    app()
