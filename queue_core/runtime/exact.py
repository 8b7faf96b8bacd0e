"""Arguments as values of Python's own types.

A subclass, such as `numpy.str_`, may not be known to JSON and drivers, and its methods may do
anything.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any


def exact_text(value: Any) -> str | None:
    """The same text as a `str`, None if it is none."""
    # Of the type: an object may tell another class than its own.
    return str.__str__(value) if issubclass(type(value), str) else None


def exact_integer(value: Any) -> int | None:
    """The same number as an `int`, None if it is none. True and False are none."""
    kind = type(value)
    return int.__int__(value) if issubclass(kind, int) and kind is not bool else None


def exact_duration(value: Any) -> timedelta | None:
    """The same duration as a `timedelta`, None if it is none."""
    return timedelta.__pos__(value) if issubclass(type(value), timedelta) else None
