"""The `on_failed` hooks, which are told of entries that have ended FAILED; the log is told, too."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from queue_core.model.entry import Entry
from queue_core.running.pools import Pools
from queue_core.runtime.log import get_logger

log = get_logger(__name__)

FailedHook = Callable[[Entry, str], None]
"""Called with an entry that has ended FAILED, and its last error."""


class FailedHooks:
    """Each hook is called on the pool, as a handler is: one that hangs holds up no loop."""

    def __init__(self, pools: Pools) -> None:
        self._pools = pools
        self.hooks: list[FailedHook] = []

    def tell(self, entry: Entry, last_error: str, error_count: int | None = None) -> None:
        """An entry has ended FAILED, by a run or without one.

        `error_count`: None if it is the entry's.
        """
        log.error(
            "entry_failed",
            record_id=entry.record_id,
            queue_name=entry.queue_name,
            class_name=entry.class_name,
            user_token=entry.user_token,
            error_count=entry.error_count if error_count is None else error_count,
            error=last_error.partition("\n")[0].partition(":")[0],
        )
        for hook in self.hooks:
            self._pools.call(partial(hook, entry, last_error))
