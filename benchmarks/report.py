"""Measurements as a Markdown table for people and as JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from benchmarks.measurement import Measurement


def markdown(measurements: Sequence[Measurement]) -> str:
    """A row for each scenario and metric, a column for each database."""
    databases = list(dict.fromkeys(measurement.database for measurement in measurements))
    rows: dict[tuple[str, str], dict[str, str]] = {}
    for measurement in measurements:
        rows.setdefault((measurement.scenario, measurement.metric), {})[measurement.database] = (
            measurement.shown
        )
    lines = ["| scenario | metric | " + " | ".join(databases) + " |", "|---|---|" + "---:|" * len(databases)]
    for (scenario, metric), shown in rows.items():
        lines.append(
            f"| {scenario} | {metric} | " + " | ".join(shown.get(name, "") for name in databases) + " |"
        )
    return "\n".join(lines)


def as_json(
    measurements: Sequence[Measurement],
    servers: Mapping[str, Mapping[str, str]],
    environment: Mapping[str, Any],
) -> str:
    """A list of objects, one for each measurement, with its server's settings and the environment."""
    objects = [
        {**asdict(measurement), "environment": {**environment, "server": servers[measurement.database]}}
        for measurement in measurements
    ]
    return json.dumps(objects, indent=2)
