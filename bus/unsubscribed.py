"""The handler of events without a subscriber, if nobody names another."""

from __future__ import annotations

from queue_core.running.subscriber import EntryContext
from queue_core.runtime.log import get_logger

log = get_logger(__name__)


def log_event(_event: object, context: EntryContext) -> None:
    """Log that an event has no subscriber; it succeeds."""
    log.info(
        "event_without_subscriber",
        record_id=context.record_id,
        queue_name=context.queue_name,
        class_name=context.class_name,
        user_token=context.user_token,
    )
