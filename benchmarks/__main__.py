"""The command `python -m benchmarks`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks import report
from benchmarks.databases import CHOICES, NAMES, targets
from benchmarks.measurement import Measurement, environment
from benchmarks.scenarios import SCENARIOS
from benchmarks.workload import Sizes, VerificationError
from devtools.programs import ServerError

QUICK = Sizes(scale=0.025, rounds=2)
TRIAL = Sizes(scale=0.001, rounds=1, trial=True)
FULL = Sizes(scale=1.0, rounds=6)
"""Even: the second in a round may pay for the first, and each is second as often."""
NAMED = 5
"""Scenarios that the names of a run's files hold: of more, only the number."""
RESULTS = Path(__file__).parent / "results"


def main(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[SCENARIO]...", help=", ".join(SCENARIOS))
    ] = None,
    *,
    database: Annotated[
        list[str] | None,
        typer.Option(help=f"Only on this one: {', '.join(CHOICES)}."),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="A fortieth of the full sizes, two rounds."),
    ] = False,
    trial: Annotated[
        bool,
        typer.Option(
            "--trial", help="Only try whether each scenario works; the figures mean nothing."
        ),
    ] = False,
    scale: Annotated[
        float | None, typer.Option(help="The share of the full sizes, such as 0.1.", min=0.0001)
    ] = None,
    rounds: Annotated[int | None, typer.Option(help="Rounds of comparisons.", min=1)] = None,
    json: Annotated[
        Path | None, typer.Option(help="Write one object for each measurement.", dir_okay=False)
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            help=(
                "Folder for the table (Markdown) and the plots (PNG); of a run of everything: "
                "benchmarks/results."
            ),
            file_okay=False,
        ),
    ] = None,
) -> None:
    """Measure each scenario on each database, on durable servers of the command's own.

    A scenario reports once its tables were found right; one that breaks off fails the run, which
    goes on, and the figures of the others are kept. Without names all scenarios run. The files
    are written after each scenario.
    """
    for kind, given, known in (("scenario", names, SCENARIOS), ("database", database, CHOICES)):
        for name in given or ():
            if name not in known:
                raise typer.BadParameter(f"{name!r} is no {kind}; use {', '.join(known)}")
    base = TRIAL if trial else QUICK if quick else FULL
    sizes = Sizes(scale or base.scale, rounds or base.rounds, base.trial)
    if output is None and not names and not database:
        output = RESULTS
    stem = _stem(names or [], database or [], sizes)
    files = [json] if json is not None else []
    tables = list[Path]()
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        files.append(output / f"{stem}.json")
        tables.append(output / f"{stem}.md")
    machine = environment()
    begun = time.perf_counter()
    measurements = list[Measurement]()
    failed = False
    table = ""
    try:
        for new, servers in _measure(names or list(SCENARIOS), database or list(NAMES), sizes):
            failed |= new is None
            measurements += new or []
            table = _page(measurements, servers, machine, sizes, time.perf_counter() - begun)
            # Each time: a run that breaks off leaves its figures.
            for file in files:
                file.write_text(report.as_json(measurements, servers, machine) + "\n")
            for file in tables:
                file.write_text(table)
    except ServerError as error:
        Console(stderr=True).print(f"[red]ServerError:[/red] {error}")
        raise typer.Exit(1) from error
    print(table)
    if output is not None:
        report.draw(measurements, output, stem)
    if failed:
        raise typer.Exit(1)


def _stem(names: list[str], databases: list[str], sizes: Sizes) -> str:
    """Return how the names of a run's files begin."""
    kind = {TRIAL.scale: "trial", QUICK.scale: "quick", FULL.scale: "full"}.get(
        sizes.scale, f"scale-{sizes.scale:g}"
    )
    chosen = names if len(names) <= NAMED else [f"{len(names)}-scenarios"]
    return "-".join([f"{datetime.now(UTC):%Y-%m-%d}", kind, *chosen, *databases])


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
        f"Sizes: {sizes.scale:g} of the full ones. Medians of as many rounds as the last column "
        "says; for rates they alternate. Measurements without rounds were watched once. It took "
        f"{seconds / 60:.1f} minutes.\n"
    )
    return "\n".join([head, report.markdown(measurements), "", *settings, ""])


def _measure(
    scenarios: list[str], databases: list[str], sizes: Sizes
) -> Iterator[tuple[list[Measurement] | None, dict[str, dict[str, str]]]]:
    """Return the figures of each scenario on each database, None if it failed, and settings."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress, targets(databases) as found:
        settings = {target.name: target.settings for target in found.values()}
        task = progress.add_task("", total=len(scenarios) * len(found))
        for scenario, target in product(scenarios, found.values()):
            progress.update(task, description=f"{scenario} on {target.name}")
            start = time.perf_counter()
            new: list[Measurement] | None = None
            try:
                new = list(SCENARIOS[scenario](target, sizes))
            except Exception as error:  # noqa: BLE001 -- hours of measurements must not be lost with one
                progress.console.print(f"[red]{type(error).__name__}:[/red] {error}")
                if not isinstance(error, VerificationError):
                    progress.console.print_exception()
            seconds = time.perf_counter() - start
            shown = ", ".join(measurement.shown for measurement in new or ())
            progress.console.print(
                f"{scenario} on {target.name}: {shown} ({seconds:.1f} s)", highlight=False
            )
            progress.advance(task)
            yield new, settings


if __name__ == "__main__":
    typer.run(main)
