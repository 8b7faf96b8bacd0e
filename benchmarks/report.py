"""Measurements as a Markdown table and pictures for people, and as JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.measurement import Measurement

SIZES = ("entries", "backlog", "rows", "history_rows", "seconds", "rounds")
"""Those settings of a measurement that say how much was done."""


def markdown(measurements: Sequence[Measurement]) -> str:
    """A row for each scenario and metric, a column for each database, and one for the size."""
    databases = list(dict.fromkeys(measurement.database for measurement in measurements))
    rows: dict[tuple[str, str], dict[str, str]] = {}
    sizes: dict[tuple[str, str], str] = {}
    for measurement in measurements:
        metrics = rows.setdefault((measurement.scenario, measurement.metric), {})
        metrics[measurement.database] = measurement.shown
        known = {name: measurement.settings[name] for name in SIZES if name in measurement.settings}
        sizes[measurement.scenario, measurement.metric] = ", ".join(
            f"{value:,} {name.replace('_', ' ')}" for name, value in known.items()
        )
    head = f"| scenario | metric | {' | '.join(databases)} | size |"
    lines = [head, "|---|---|" + "---:|" * len(databases) + "---|"]
    for (scenario, metric), shown in rows.items():
        values = " | ".join(shown.get(name, "") for name in databases)
        lines.append(f"| {scenario} | {metric} | {values} | {sizes[scenario, metric]} |")
    return "\n".join(lines)


def as_json(
    measurements: Sequence[Measurement],
    servers: Mapping[str, Mapping[str, str]],
    environment: Mapping[str, Any],
) -> str:
    """Return a list of objects: each measurement with its server's settings and environment."""
    objects = [
        {
            **asdict(measurement),
            "environment": {**environment, "server": servers[measurement.database]},
        }
        for measurement in measurements
    ]
    return json.dumps(objects, indent=2)


def draw(measurements: Sequence[Measurement], folder: Path, stem: str) -> list[Path]:
    """A picture for each scenario: its metrics as bars by database."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    drawn = list[Path]()
    databases = list(dict.fromkeys(measurement.database for measurement in measurements))
    for scenario in dict.fromkeys(measurement.scenario for measurement in measurements):
        panels = _panels([one for one in measurements if one.scenario == scenario])
        rows = [len({one.metric for one in panel}) for panel in panels.values()]
        figure, places = plt.subplots(
            len(panels),
            figsize=(9, 1.2 * len(panels) + 0.5 * sum(rows)),
            height_ratios=rows,
            squeeze=False,
        )
        for place, (unit, panel) in zip(places[:, 0], panels.items(), strict=True):
            _bars(place, unit, panel, databases)
        places[0, 0].legend(fontsize="small")
        figure.suptitle(scenario)
        figure.tight_layout()
        drawn.append(folder / f"{stem}-{scenario}.png")
        figure.savefig(drawn[-1], dpi=100)
        plt.close(figure)
    return drawn


def _panels(measurements: Sequence[Measurement]) -> dict[str, list[Measurement]]:
    panels: dict[str, list[Measurement]] = {}
    for one in measurements:
        panels.setdefault(one.unit, []).append(one)
    return panels


def _bars(place: Any, unit: str, panel: Sequence[Measurement], databases: Sequence[str]) -> None:
    metrics = list(dict.fromkeys(one.metric for one in panel))
    height = 0.8 / len(databases)
    for number, database in enumerate(databases):
        found = [one for one in panel if one.database == database]
        if not found:
            continue
        bottoms = [metrics.index(one.metric) + number * height for one in found]
        bars = place.barh(
            bottoms, [one.value for one in found], height, label=database, color=f"C{number}"
        )
        # The figure itself, and its share of the floor.
        place.bar_label(
            bars, [one.shown.replace(f" {unit}", "") for one in found], fontsize="x-small"
        )
    place.set_yticks(
        [row + 0.4 - height / 2 for row in range(len(metrics))], metrics, fontsize="small"
    )
    place.invert_yaxis()
    place.margins(x=0.25)
    place.set_xlabel(unit, fontsize="small")
