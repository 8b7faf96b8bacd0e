"""Watches handlers that run for too long.

It reports each once, and takes the entry from a handler that is past its own limit.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from queue_core.model.config import QueueConfig
from queue_core.model.outcome import Outcome
from queue_core.running.runner import Runner
from queue_core.runtime.log import get_logger

log = get_logger(__name__)


class Watchdog:
    """Reports handlers that run for too long, and ends the runs that are past their own limit.

    `complete` receives the outcome of an entry that is taken from its handler.
    """

    def __init__(self, config: QueueConfig, complete: Callable[[Outcome], None]) -> None:
        self._config = config
        self._complete = complete
        self._at = 0.0
        self._overdue = set[tuple[int, int]]()
        self._cut = set[tuple[int, int]]()

    def turn(self, now: float, runner: Runner) -> None:
        """Look at the runs of `runner`, once a poll interval."""
        if now < self._at:
            return
        self._at = now + self._config.poll_interval_seconds
        overdue = runner.running_longer_than(self._config.max_execution_seconds)
        for handling in overdue:
            if handling.key not in self._overdue:
                log.warning(
                    "handler_overdue",
                    record_id=handling.entry.record_id,
                    subscriber=handling.subscriber.name,
                    seconds=round(handling.seconds, 1),
                    stack=handling.stack,
                )
            limit = handling.limit or inf
            if handling.seconds > limit and handling.key not in self._cut:
                # A failed run: its outcome is written, and the handler's work from here comes
                # too late.
                self._complete(runner.cut(handling))
                self._cut.add(handling.key)
        self._overdue = {handling.key for handling in overdue}
        self._cut &= self._overdue
