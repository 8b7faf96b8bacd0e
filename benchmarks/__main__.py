"""The command `python -m benchmarks`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks import report
from benchmarks.databases import NAMES, targets
from benchmarks.measurement import Measurement, environment
from benchmarks.scenarios import SCENARIOS, Sizes, VerificationError
from tests.servers import ServerError

QUICK = Sizes(scale=0.1, rounds=3)
FULL = Sizes(scale=1.0, rounds=5)


def main(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[SCENARIO]...", help=", ".join(SCENARIOS))
    ] = None,
    *,
    database: Annotated[list[str] | None, typer.Option(help=f"Only on this one: {', '.join(NAMES)}.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A tenth of the full sizes, three rounds.")] = False,
    scale: Annotated[float | None, typer.Option(help="Another share of the full sizes.", min=0.0001)] = None,
    rounds: Annotated[int | None, typer.Option(help="Rounds of comparisons.", min=1)] = None,
    json: Annotated[
        Path | None, typer.Option(help="Write one object for each measurement.", dir_okay=False)
    ] = None,
) -> None:
    """Measure each scenario on each database, on durable servers of the command's own.

    A scenario reports once its tables were found right. Without names all scenarios run.
    """
    for kind, given, known in (("scenario", names, SCENARIOS), ("database", database, NAMES)):
        for name in given or ():
            if name not in known:
                raise typer.BadParameter(f"{name!r} is no {kind}; use {', '.join(known)}")
    base = QUICK if quick else FULL
    sizes = Sizes(scale=scale or base.scale, rounds=rounds or base.rounds)
    console = Console(stderr=True)
    try:
        measurements, servers = _measure(names or list(SCENARIOS), database or list(NAMES), sizes, console)
    except (ServerError, VerificationError) as error:
        console.print(f"[red]{type(error).__name__}:[/red] {error}")
        raise typer.Exit(1) from error
    print(report.markdown(measurements))
    print()
    for name, settings in servers.items():
        print(f"{name}: " + ", ".join(f"{key}={value}" for key, value in settings.items()))
    if json is not None:
        json.write_text(report.as_json(measurements, servers, environment()) + "\n")


def _measure(
    scenarios: list[str], databases: list[str], sizes: Sizes, console: Console
) -> tuple[list[Measurement], dict[str, dict[str, str]]]:
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    measurements: list[Measurement] = []
    with Progress(*columns, console=console) as progress, targets(databases) as found:
        task = progress.add_task("", total=len(scenarios) * len(found))
        for scenario in scenarios:
            for target in found.values():
                progress.update(task, description=f"{scenario} on {target.name}")
                start = time.perf_counter()
                new = list(SCENARIOS[scenario](target, sizes))
                measurements += new
                seconds = time.perf_counter() - start
                shown = ", ".join(measurement.shown for measurement in new)
                progress.console.print(
                    f"{scenario} on {target.name}: {shown} ({seconds:.1f} s)", highlight=False
                )
                progress.advance(task)
        return measurements, {target.name: target.settings for target in found.values()}


if __name__ == "__main__":
    typer.run(main)
