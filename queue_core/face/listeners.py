"""The listeners of a bus or service."""

from __future__ import annotations

from collections.abc import Callable

from queue_core.claiming.backlog_watch import BacklogHook, no_more
from queue_core.face.part import FacePart
from queue_core.finishing.feeds import Feed
from queue_core.model.entry import Entry
from queue_core.reading.depths import COUNT_LIMIT
from queue_core.runtime.arguments import function, is_number, not_allowed


class FaceListeners(FacePart):
    """The listeners that are told of entries that have ended."""

    def on_failed(self, hook: Callable[[Entry, str], None]) -> Callable[[Entry, str], None]:
        """Decorate a function that is called after an entry has ended FAILED, for any reason.

        Only the node that ended the entry calls its functions, on the handler pool. They are not
        called if its process dies first.

        Args:
            hook: Called with the entry and its last error.

        Returns:
            `hook`.

        Raises:
            ConfigurationError: `hook` can't be called with two arguments.
        """
        return self._engine.on_failed(hook)

    def on_backlog(
        self,
        hook: BacklogHook | None = None,
        *,
        above: int = 1_000,
        pause_seconds: float = 21_600.0,
    ) -> BacklogHook:
        """Call a function when more entries of a queue are due than `above`.

        Waiting entries are counted every 10 seconds while this is started, as for the metrics, and
        by each node. The function runs on the handler pool; an exception of it is logged. The log
        has a WARNING `backlog` each time in any case.

        Args:
            hook: Called with the depth of the queue, a `QueueDepth`; may be decorated. Default:
                the log is enough.
            above: The number of entries, 0 or more; waiting entries are counted up to 10,000 of the
                table. Default: 1,000.
            pause_seconds: The least time between two calls for one queue. Default: 21,600, which
                is 6 hours.

        Returns:
            `hook`.

        Raises:
            ConfigurationError: An argument is not allowed.

        Example:
            >>> bus.on_backlog(above=5_000)
        """
        hook = no_more if hook is None else hook
        function(hook, key="hook")
        if not (is_number(above) and 0 <= above < COUNT_LIMIT):
            raise not_allowed("above", above, f"from 0 to {COUNT_LIMIT - 1:,}")
        if not (is_number(pause_seconds) and pause_seconds >= 0):
            raise not_allowed("pause_seconds", pause_seconds, "seconds, 0 or more")
        self._engine.backlog.add(hook, above, pause_seconds)
        return hook

    def listen(self, listener_id: str, *, capacity: int = 10_000) -> Feed:
        """Listen to the entries that this process ends, PROCESSED or FAILED.

        Each listener has its own feed, from its first call on; the same id gets the same feed. It
        has the entries that handlers of this process have run to their end, after the commit of
        the outcome. Other processes' entries, and those that end without a run, are not in it, and
        a process that dies loses its feeds: rely on history, not on a feed.

        Args:
            listener_id: Names the listener within this bus or service.
            capacity: Entries that the feed holds. When it is full, it drops its oldest. Default:
                10,000.

        Returns:
            The feed.

        Raises:
            ConfigurationError: An argument is not allowed, or the listener has another capacity.

        Example:
            >>> feed = bus.listen("dashboard")
            >>> ended = feed.get(timeout_seconds=1.0)
        """
        return self._engine.lifecycle.finisher.feeds.listen(listener_id, capacity)

    def stop_listening(self, listener_id: str) -> bool:
        """End a listener's feed. Entries that wait in it can still be taken.

        Args:
            listener_id: As for `listen`.

        Returns:
            False if it had no feed.

        Raises:
            ConfigurationError: An argument is not allowed.
        """
        return self._engine.lifecycle.finisher.feeds.forget(listener_id)
