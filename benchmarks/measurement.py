"""A measurement, and the machine that it was taken on."""

from __future__ import annotations

import math
import os
import platform
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[1]
LIBRARIES = ("stickybus", "sqlalchemy", "psycopg", "PyMySQL", "msgspec")


@dataclass(frozen=True)
class Measurement:
    """One figure. `settings` are the scenario's sizes and those off the defaults.

    `ratio_to_floor`: the rate divided by that of the bare driver in the same rounds. None where a
    bare driver has no such work (delays, memory).
    """

    scenario: str
    database: str
    metric: str
    value: float
    unit: str
    settings: dict[str, Any] = field(default_factory=dict)
    ratio_to_floor: float | None = None

    @property
    def shown(self) -> str:
        """The value as a person reads it."""
        digits = 0 if abs(self.value) >= 100 else 2
        ratio = "" if self.ratio_to_floor is None else f" ({self.ratio_to_floor:.2f} of floor)"
        return f"{self.value:,.{digits}f} {self.unit}{ratio}"


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that `share` (0 to 1) of `values` do not exceed (nearest rank)."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def environment() -> dict[str, Any]:
    """The circumstances that a figure depends on, besides the database."""
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        # Figures of a busy machine are worth nothing but their ratios.
        "load_average": os.getloadavg()[0],
        "python": platform.python_version(),
        "system": platform.platform(),
        "commit": _commit(),
        "libraries": {name: version(name) for name in LIBRARIES},
    }


def _commit() -> str:
    """Of the working tree, with a mark if it was changed since; empty where there is none."""
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    try:
        return subprocess.run(
            command, cwd=_ROOT, capture_output=True, text=True, check=True
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.processor())
