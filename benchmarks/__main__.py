"""The command `python -m benchmarks`."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks import report
from benchmarks.databases import NAMES, targets
from benchmarks.measurement import Measurement, environment
from benchmarks.scenarios import SCENARIOS
from benchmarks.workload import Sizes, VerificationError
from tests.servers import ServerError

QUICK = Sizes(scale=0.025, rounds=2)
FULL = Sizes(scale=1.0, rounds=6)
"""Even: whoever comes second in a round may pay for what the first has left behind, and each does as often."""
RESULTS = Path(__file__).parent / "results"


def main(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[SCENARIO]...", help=", ".join(SCENARIOS))
    ] = None,
    *,
    database: Annotated[list[str] | None, typer.Option(help=f"Only on this one: {', '.join(NAMES)}.")] = None,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="A fortieth of the full sizes, two rounds; within five minutes."),
    ] = False,
    scale: Annotated[float | None, typer.Option(help="Another share of the full sizes.", min=0.0001)] = None,
    rounds: Annotated[int | None, typer.Option(help="Rounds of comparisons.", min=1)] = None,
    json: Annotated[
        Path | None, typer.Option(help="Write one object for each measurement.", dir_okay=False)
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            help="Folder for the table (Markdown) and the plots (PNG); of a run of everything: benchmarks/results.",
            file_okay=False,
        ),
    ] = None,
) -> None:
    """Measure each scenario on each database, on durable servers of the command's own.

    A scenario reports once its tables were found right; one that breaks off fails the run, which goes on, and what the
    others have measured is kept. Without names all scenarios run.
    """
    for kind, given, known in (("scenario", names, SCENARIOS), ("database", database, NAMES)):
        for name in given or ():
            if name not in known:
                raise typer.BadParameter(f"{name!r} is no {kind}; use {', '.join(known)}")
    base = QUICK if quick else FULL
    sizes = Sizes(scale=scale or base.scale, rounds=rounds or base.rounds)
    console = Console(stderr=True)
    machine = environment()
    begun = time.perf_counter()
    try:
        measurements, servers, failed = _measure(
            names or list(SCENARIOS), database or list(NAMES), sizes, console
        )
    except ServerError as error:
        console.print(f"[red]ServerError:[/red] {error}")
        raise typer.Exit(1) from error
    table = _page(measurements, servers, machine, sizes, time.perf_counter() - begun)
    print(table)
    text = report.as_json(measurements, servers, machine) + "\n"
    if json is not None:
        json.write_text(text)
    if output is None and not names and not database:
        output = RESULTS
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        kind = {QUICK.scale: "quick", FULL.scale: "full"}.get(sizes.scale, f"scale-{sizes.scale:g}")
        stem = "-".join([f"{datetime.now(UTC):%Y-%m-%d}", kind, *(names or ()), *(database or ())])
        (output / f"{stem}.md").write_text(table)
        (output / f"{stem}.json").write_text(text)
        report.draw(measurements, output, stem)
    if failed:
        raise typer.Exit(1)


def _page(
    measurements: list[Measurement],
    servers: dict[str, dict[str, str]],
    machine: dict[str, Any],
    sizes: Sizes,
    seconds: float,
) -> str:
    settings = [
        f"- {name}: " + ", ".join(f"{key}={value}" for key, value in known.items())
        for name, known in {**servers, "machine": machine}.items()
    ]
    head = (
        f"Sizes: {sizes.scale:g} of the full ones. Medians of so many rounds as the last column says, which alternate for "
        f"rates; what has no rounds was watched once. It took {seconds / 60:.1f} minutes.\n"
    )
    return "\n".join([head, report.markdown(measurements), "", *settings, ""])


def _measure(
    scenarios: list[str], databases: list[str], sizes: Sizes, console: Console
) -> tuple[list[Measurement], dict[str, dict[str, str]], bool]:
    """What was measured, the servers' settings, and whether a scenario failed."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    measurements: list[Measurement] = []
    failed = False
    with Progress(*columns, console=console) as progress, targets(databases) as found:
        task = progress.add_task("", total=len(scenarios) * len(found))
        for scenario in scenarios:
            for target in found.values():
                progress.update(task, description=f"{scenario} on {target.name}")
                start = time.perf_counter()
                try:
                    new = list(SCENARIOS[scenario](target, sizes))
                except Exception as error:  # noqa: BLE001 -- hours of measurements must not be lost with one
                    failed, new = True, []
                    progress.console.print(f"[red]{type(error).__name__}:[/red] {error}")
                    if not isinstance(error, VerificationError):
                        progress.console.print_exception()
                measurements += new
                seconds = time.perf_counter() - start
                shown = ", ".join(measurement.shown for measurement in new)
                progress.console.print(
                    f"{scenario} on {target.name}: {shown} ({seconds:.1f} s)", highlight=False
                )
                progress.advance(task)
        return measurements, {target.name: target.settings for target in found.values()}, failed


if __name__ == "__main__":
    typer.run(main)
