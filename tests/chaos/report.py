"""Results as Markdown and as a picture."""

from __future__ import annotations

import math
import os
import platform
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.measurement import percentile
from tests.chaos.scenarios import SCENARIOS
from tests.chaos.soak import Soak
from tests.chaos.verdict import FULL_RATE, Result
from tests.checker import Invariant

_COLUMNS = 4
_FAULT, _RETURN = "tab:red", "tab:green"


def verdict(result: Result) -> str:
    """One line for people who watch."""
    if result.good:
        return "0 violations"
    found = [*map(str, result.violations[:3]), *result.problems]
    return f"{len(result.violations)} violations: " + "; ".join(found)


_VERDICT_HEAD = (
    *(
        "scenario",
        "database",
        "mode",
        "committed",
        "rolled back",
        "unknown",
        "runs",
        "again",
        "reaped",
        "ended",
    ),
    *("lost", "phantom", "recorded twice", "two runners", "not sticky", "other", "seconds"),
)
_MEASURES_HEAD = (
    *("scenario", "database", "mode", "rate before, 1/s", "cut off", "re-run p50, s", "max, s"),
    *("returns", "recovery p50, s", "max, s", "peak memory of a node, MB"),
)
_VERDICT_NOTE = """
Counted by the judge (`tests/checker.py`) from the posters' ledgers, the handlers' journals and the
tables. An entry that ran again after a crash is no violation (*again*): its outcome is recorded
once. *unknown*: the answer to the COMMIT was lost, or the poster died. *reaped*: rows handed on by
a reaper. *ended*: processes, by SIGKILL, by poison or in good order.
"""
_MEASURES_NOTE = f"""
*re-run*: from a process's death to the next start of what it was running. *recovery*: from the end
of a fault until the rate of handled entries is again {FULL_RATE:.0%} of what it was before the
first one.
"""
_NAMED = (
    *(Invariant.NO_LOSS, Invariant.NO_PHANTOM, Invariant.RECORDED_ONCE, Invariant.ONE_RUNNER),
    Invariant.STICKY,
)


def markdown(results: Sequence[Result], command: str) -> str:
    """The whole report."""
    bad = [result for result in results if not result.good]
    committed, deaths = (
        sum(result.committed for result in results),
        sum(result.deaths for result in results),
    )
    outcome = "no invariant was violated" if not bad else f"{len(bad)} runs were not good"
    about = [
        f"- **{name}**: {scenario.about}."
        for name, scenario in SCENARIOS.items()
        if any(result.scenario == name for result in results)
    ]
    parts = [
        "# Chaos on real servers\n",
        (
            f"`{command}`, {environment()}. Each run: 3 nodes, 2 posting processes, lease 2 s, a "
            "look of the reaper each 0.5 s.\n"
        ),
        (
            f"{len(results)} runs, {committed:,} entries committed, {deaths:,} processes ended: "
            f"**{outcome}.**\n"
        ),
        "## Verdict",
        _VERDICT_NOTE,
        *table(_VERDICT_HEAD, map(_judged, results)),
        "\n## Measured",
        _MEASURES_NOTE,
        *table(_MEASURES_HEAD, map(_measured, results)),
        "\n## Scenarios\n",
        *about,
    ]
    for result in bad:
        run = f"{result.scenario}, {result.database}, {result.mode}, seed {result.seed}"
        parts += [f"\n## Not good: {run}\n"]
        parts += [f"- {fault}" for fault in (*result.violations[:20], *result.problems)]
    return "\n".join(parts) + "\n"


def environment() -> str:
    """The day and the machine, in a few words."""
    return (
        f"{datetime.now(UTC):%Y-%m-%d}, Python {platform.python_version()}, {os.cpu_count()} "
        "cores, the servers beside the nodes"
    )


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Lines of a Markdown table: names to the left, figures to the right."""
    yield "| " + " | ".join(head) + " |"
    yield "|---|---|---|" + "--:|" * (len(head) - 3)
    for row in rows:
        yield "| " + " | ".join(row) + " |"


def _judged(result: Result) -> list[str]:
    named = [result.count(invariant) for invariant in _NAMED]
    other = len(result.violations) - sum(named) + len(result.problems)
    figures = [
        result.committed,
        result.rolled_back,
        result.unknown,
        result.runs,
        result.duplicates,
        result.reaped,
    ]
    figures += [result.deaths, *named, other, round(result.seconds)]
    return [result.scenario, result.database, result.mode, *(f"{figure:,}" for figure in figures)]


def _measured(result: Result) -> list[str]:
    recovered = [seconds for seconds in result.recoveries if seconds is not None]
    never = len(result.recoveries) - len(recovered)
    returns = f"{len(result.recoveries)}" + (f" ({never} not)" if never else "")
    return [
        *(result.scenario, result.database, result.mode, f"{result.rate_before:.0f}"),
        *(f"{len(result.reruns)}", *_half_and_most(result.reruns)),
        *(returns, *_half_and_most(recovered), f"{result.memory_peak_bytes / 2**20:.0f}"),
    ]


def _half_and_most(values: Sequence[float]) -> tuple[str, str]:
    return (f"{percentile(values, 0.5):.2f}", f"{max(values):.2f}") if values else ("", "")


def plot(results: Sequence[Result], path: Path) -> None:
    """Handled entries per second of each run, with its faults (red) and returns (green)."""
    with _axes(len(results), _COLUMNS, "entries handled per second", path) as axes:
        for axis, result in zip(axes, results, strict=True):
            _title(axis, f"{result.scenario}, {result.database}, {result.mode}")
            _rate(axis, result)


def soak_markdown(soak: Soak, command: str) -> str:
    """The report of a soak."""
    result = soak.result
    rows = [
        [
            f"{series.name}{series.unit and f', {series.unit}'}",
            *(
                f"{figure:,.1f}"
                for figure in (series.third(last=False), series.third(last=True), series.limit)
            ),
            "yes" if series.flat else "**no**",
        ]
        for series in soak.series
    ]
    half, most = _half_and_most(result.reruns)
    setting = (
        f"`{command}`, {environment()}. PostgreSQL, 3 nodes, 2 posting processes, lease 2 s, one "
        "kill a minute; one node is never killed.\n"
    )
    outcome = (
        f"{soak.minutes:g} minutes, {soak.kills} kills, {result.committed:,} entries committed, "
        f"{result.runs:,} runs ({result.duplicates} of them again): **{len(result.violations)} "
        f"violations.** What a kill had cut off ran again after {half or '-'} s (median), "
        f"{most or '-'} s (most).\n"
    )
    parts = [
        "# Soak\n",
        setting,
        outcome,
        "The first and the last third of the time, without the first tenth of it.\n",
        "| figure | first third | last third | limit | flat |",
        "|---|--:|--:|--:|---|",
        *("| " + " | ".join(row) + " |" for row in rows),
        *(f"- {fault}" for fault in (*result.violations[:20], *result.problems)),
    ]
    return "\n".join(parts) + "\n"


def soak_plot(soak: Soak, path: Path) -> None:
    """Each series over time, and the rate."""
    with _axes(len(soak.series) + 1, 2, "", path) as axes:
        _title(axes[0], "entries handled per second; kills")
        _rate(axes[0], soak.result)
        for axis, series in zip(axes[1:], soak.series, strict=True):
            _title(axis, f"{series.name}{series.unit and f', {series.unit}'}")
            axis.plot(*zip(*series.points, strict=True), lw=0.8)
            axis.set_ylim(bottom=0)


@contextmanager
def _axes(count: int, most_columns: int, label: str, path: Path) -> Iterator[list[Any]]:
    """A grid of so many axes, written to `path` at the end of the block."""
    # Here, so that who wants no picture needs no matplotlib.
    from matplotlib import pyplot as plt
    from matplotlib import use

    use("Agg")  # draws without a screen
    columns = min(most_columns, count)
    rows = math.ceil(count / columns)
    figure, grid = plt.subplots(
        rows, columns, figsize=(4.2 * columns, 2.1 * rows), squeeze=False, layout="constrained"
    )
    axes = list(grid.flat)
    yield axes[:count]
    for axis in axes[count:]:
        axis.set_visible(False)
    figure.supxlabel("seconds", fontsize=8)
    figure.supylabel(label, fontsize=8)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _title(axis: Any, text: str) -> None:
    axis.set_title(text, fontsize=8)
    axis.tick_params(labelsize=7)


def _rate(axis: Any, result: Result) -> None:
    seconds = range(math.ceil(result.seconds))
    edges = [bisect_left(result.handled_at, second) for second in [*seconds, len(seconds)]]
    axis.fill_between(
        seconds, [after - before for before, after in pairwise(edges)], step="post", lw=0
    )
    for fault in result.faults:
        axis.axvline(fault.at, color=_RETURN if fault.returned else _FAULT, lw=0.4, alpha=0.6)
    axis.set_ylim(bottom=0)
