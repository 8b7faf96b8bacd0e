"""Entries of the in-memory bus as their runs leave them."""

from __future__ import annotations

from datetime import datetime

import msgspec

from queue_core.model.entry import Entry, RetryDue, SubscriberProgress
from queue_core.model.outcome import Finished, Outcome, Retried
from queue_core.model.states import State
from queue_core.storage.progress import encode_progress


def run_again(outcome: Retried, now: datetime) -> Entry:
    """The entry of the next run. Each retry is due `now`: no timer would bring it later."""
    progress: SubscriberProgress = {
        name: RetryDue(so_far.failures, now) if isinstance(so_far, RetryDue) else so_far
        for name, so_far in outcome.progress.items()
    }
    return msgspec.structs.replace(
        outcome.entry, error_count=outcome.error_count, subscribers_done=encode_progress(progress)
    )


def as_ended(outcome: Outcome) -> Entry:
    """The entry as it ended."""
    # Parked: its name is unknown, and here no other node will ever know it.
    if not isinstance(outcome, Finished):
        return msgspec.structs.replace(
            outcome.entry, processing_state=State.FAILED, last_error="UnknownEvent"
        )
    return msgspec.structs.replace(
        outcome.entry,
        processing_state=outcome.state,
        error_count=outcome.error_count,
        started_date=outcome.started_date,
        finished_date=outcome.finished_date,
        last_error=outcome.last_error,
    )
