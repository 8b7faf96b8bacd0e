"""Whether the packages of an extra are installed: with Spark or without it."""

from __future__ import annotations

import importlib.util

from history_pipeline.errors import ArrowUnavailableError, SparkUnavailableError

_PACKAGES = {
    "archive": ("pyarrow", "numpy"),
    "delta": ("pyarrow", "numpy", "deltalake"),
    "report": ("pyarrow", "jinja2", "matplotlib"),
    "spark": ("pyspark", "pyarrow", "jinja2", "matplotlib"),
}


def check_arrow(extra: str = "archive") -> None:
    """Raises ArrowUnavailableError if a package of `archive`, `delta` or `report` is missing."""
    if package := _missing(extra):
        raise ArrowUnavailableError(_text(package, extra, "read"))


def check_spark() -> None:
    """Raises SparkUnavailableError if a package of `spark` is missing."""
    if package := _missing("spark"):
        raise SparkUnavailableError(_text(package, "spark", "started"))


def _missing(extra: str) -> str | None:
    return next(
        (package for package in _PACKAGES[extra] if importlib.util.find_spec(package) is None), None
    )


def _text(package: str, extra: str, undone: str) -> str:
    return (
        f"the package {package} is not installed. Nothing was {undone}. Install the extra: "
        f"pip install 'stickybus[{extra}]'."
    )
