"""What interrupted calls leave behind is collected between the tests."""

from __future__ import annotations

import gc
import warnings

PASSES = 3
"""Searches for garbage: what a finalizer of one lets go, the next one finds."""


def pytest_runtest_logfinish() -> None:
    """Collect it now, when nothing of the test refers to it any more.

    A connection whose opening was cut off is closed by nobody. Collected later, it would blame
    another test.
    """
    with warnings.catch_warnings(action="ignore"):
        for _ in range(PASSES):
            gc.collect()
