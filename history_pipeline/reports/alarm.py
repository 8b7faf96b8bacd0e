"""Which shares of failed entries are worth a look: by rate, never by a number of failures alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ALARMING_SHARE = 0.01
"""The share of failed entries, of those that ran, from which a report shows it in red."""
_TIMES = 2
"""A share this many times that of the week before is an alarm."""
_FEWEST = 10
"""Failures that a day needs at least, before they count as a rise."""

Row = Mapping[str, Any]


def failing(row: Row) -> bool:
    """Whether the share of a row's failed entries is alarming."""
    failed, ran = _counts(row)
    return failed > 0 and failed >= ALARMING_SHARE * ran


def risen(day: Row, before: Row) -> bool:
    """Whether the share of failed entries has at least doubled, by more than a few failures."""
    (failed, ran), (failed_before, ran_before) = _counts(day), _counts(before)
    # If nothing ran before, there is nothing that it rose from.
    return (
        failed >= _FEWEST and ran_before > 0 and failed * ran_before >= _TIMES * failed_before * ran
    )


def _counts(row: Row) -> tuple[int, int]:
    """How many entries failed, and how many ran."""
    failed: int = row["failed"]
    processed: int = row["processed"]
    return failed, processed + failed
