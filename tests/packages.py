"""The packages that are released."""

from __future__ import annotations

import tomllib
from pathlib import Path

_PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text("utf-8"))
_BUILDS = _PROJECT["tool"]["hatch"]["build"]["targets"]
RELEASED: tuple[str, ...] = tuple(_BUILDS["wheel"]["packages"])
"""Their names, as the build takes them."""
