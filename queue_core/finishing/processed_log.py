"""The log of processed entries."""

from __future__ import annotations

import logging
from datetime import datetime

from queue_core.model.outcome import ENDED, Outcome
from queue_core.model.states import State
from queue_core.runtime.log import get_logger

log = get_logger(__name__)
_standard_log = logging.getLogger(__name__)
"""The same log. The other makes an object whenever it is asked for anything."""


def tells_each() -> bool:
    """Whether each entry has a line, and not only those that had failed before."""
    return _standard_log.isEnabledFor(logging.DEBUG)


def tell_processed(outcome: Outcome, lost: set[int], now: datetime) -> None:
    """Log an entry that was processed; `lost` are the ids of those whose claim was lost."""
    entry = outcome.entry
    if (
        isinstance(outcome, ENDED)
        and outcome.state is State.PROCESSED
        and entry.record_id not in lost
    ):
        log.debug(
            "entry_processed",
            record_id=entry.record_id,
            queue_name=entry.queue_name,
            class_name=entry.class_name,
            user_token=entry.user_token,
            error_count=outcome.error_count,
        )
        if outcome.error_count:
            log.info(
                "entry_recovered",
                record_id=entry.record_id,
                queue_name=entry.queue_name,
                class_name=entry.class_name,
                user_token=entry.user_token,
                tries=outcome.error_count + 1,
                milliseconds=round((now - entry.created_date).total_seconds() * 1000),
            )
