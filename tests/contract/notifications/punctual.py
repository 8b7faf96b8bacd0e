"""A handler that knows how late it is called, and the bounds of that."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

from stickybus import (
    Entry,
)
from tests.contract.harness import BOUND_SECONDS, Recorder

FAR = timedelta(hours=1)
PUNCTUAL_SECONDS = 0.25
"""Of one that no stopped thread has made late; milliseconds on an idle machine."""
LATE_SECONDS = BOUND_SECONDS
"""Of any, on a busy machine, which may stop threads for seconds; the next poll is at 30 s."""


class Punctual(Recorder):
    """Keeps how late each call came."""

    def __init__(self) -> None:
        super().__init__()
        self.late = list[float]()

    def __call__(self, event: object, context: object) -> None:
        self.late.append((datetime.now(UTC) - context.effective_date).total_seconds())  # type: ignore[attr-defined]
        super().__call__(event, context)  # type: ignore[arg-type]  # as it was given


def orders(entries: list[Entry]) -> list[int]:
    return sorted(int(json.loads(entry.event_json or "{}")["number"]) for entry in entries)
