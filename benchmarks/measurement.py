"""A measurement, and the machine that it was taken on."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

LIBRARIES = ("stickybus", "sqlalchemy", "psycopg", "PyMySQL", "msgspec")


@dataclass(frozen=True)
class Measurement:
    """One figure. `settings` are the scenario's sizes and what was set off the defaults."""

    scenario: str
    database: str
    metric: str
    value: float
    unit: str
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def shown(self) -> str:
        """The value as a person reads it."""
        digits = 0 if self.value >= 100 else 2
        return f"{self.value:,.{digits}f} {self.unit}"


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` (0 to 1) of `values` do not exceed (nearest rank)."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def environment() -> dict[str, Any]:
    """What a figure depends on besides the database."""
    return {
        "python": platform.python_version(),
        "system": platform.platform(),
        "processors": os.cpu_count(),
        "libraries": {name: version(name) for name in LIBRARIES},
    }
