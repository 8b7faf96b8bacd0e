"""Whether Arrow is installed, which reads an archive without Spark."""

from __future__ import annotations

import importlib.util

from history_pipeline.errors import ArrowUnavailableError


def check_arrow() -> None:
    """Raises ArrowUnavailableError if the extra `archive` is missing."""
    if importlib.util.find_spec("pyarrow") is None:
        raise ArrowUnavailableError(
            "the package pyarrow is not installed. Nothing was read. Install the extra: "
            "pip install 'stickybus[archive]'."
        )
