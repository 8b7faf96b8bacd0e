"""Feeds of the entries that this process has ended, each for one listener."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue

import msgspec

from queue_core.model.entry import Entry
from queue_core.model.outcome import ENDED, Outcome
from queue_core.model.states import State
from queue_core.runtime.arguments import is_number, not_allowed, of_kind, wait_seconds
from queue_core.runtime.exact import exact_text


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """An entry that this process has run to its end, after the commit of its outcome.

    Attributes:
        entry: The entry as it was when its last run started.
        state: PROCESSED or FAILED.
        error_count: Its failed runs.
        last_error: Type, message and traceback if it is FAILED, else None.
    """

    entry: Entry
    state: State
    error_count: int
    last_error: str | None = None


class Feed:
    """The entries that one listener has not taken yet, in the order of the commits.

    A full feed drops its oldest entries: a slow listener holds up neither the engine nor other
    listeners. Safe to use from several threads, each of which gets other entries.
    """

    def __init__(self, listener_id: str, capacity: int) -> None:
        self._listener_id = listener_id
        # Each step of a listener is one call in C. A lock that Python's code takes, as a condition
        # does, would stay locked after an exception from a signal, and the engine would wait.
        self._waiting = SimpleQueue[Ended]()
        self._capacity = capacity
        self._dropped = 0
        self._putting = threading.Lock()

    def __repr__(self) -> str:
        return f"Feed({self._listener_id!r}, waiting={len(self)}, dropped={self._dropped})"

    def __len__(self) -> int:
        return self._waiting.qsize()

    @property
    def listener_id(self) -> str:
        """The listener's id."""
        return self._listener_id

    @property
    def capacity(self) -> int:
        """The most entries that it holds."""
        return self._capacity

    @property
    def dropped(self) -> int:
        """The entries that it has dropped, because it was full."""
        return self._dropped

    def get(self, timeout_seconds: float = 0.0) -> Ended | None:
        """Take the oldest entry.

        Args:
            timeout_seconds: The longest wait for one, 0 or more. Default: 0, no wait.

        Returns:
            The entry; None if there was none in time.

        Raises:
            ConfigurationError: The time is not allowed.
        """
        timeout_seconds = wait_seconds(timeout_seconds, key="timeout_seconds")
        try:
            return self._waiting.get(timeout=timeout_seconds)
        except Empty:
            return None

    def _put(self, ended: Sequence[Ended]) -> None:
        with self._putting:
            for one in ended:
                self._waiting.put(one)
            with suppress(Empty):  # a listener took it meanwhile
                while self._waiting.qsize() > self._capacity:
                    self._waiting.get_nowait()
                    self._dropped += 1


class Feeds:
    """The feeds of one bus or service, by listener."""

    def __init__(self) -> None:
        self._feeds: dict[str, Feed] = {}

    def __bool__(self) -> bool:
        return bool(self._feeds)

    def listen(self, listener_id: str, capacity: int) -> Feed:
        """The feed of a listener, which is made by its first call. Raises ConfigurationError."""
        name = exact_text(listener_id)
        if not name:
            raise not_allowed("listener_id", listener_id, "a text that is not empty")
        of_kind(capacity, int, key="capacity")
        if not is_number(capacity) or capacity < 1:
            raise not_allowed("capacity", capacity, "an integer of 1 or more")
        feed = self._feeds.setdefault(name, Feed(name, capacity))
        if feed.capacity != capacity:
            raise not_allowed("capacity", capacity, f"{feed.capacity}, as {name!r} listens already")
        return feed

    def forget(self, listener_id: str) -> bool:
        """End a listener's feed; False if there is none. Raises ConfigurationError."""
        of_kind(listener_id, str, key="listener_id")
        return self._feeds.pop(exact_text(listener_id) or "", None) is not None

    def tell(self, batch: Sequence[Outcome], lost: set[int]) -> None:
        """Give every listener the entries of a written batch that have ended."""
        ended = [
            Ended(
                entry=outcome.entry,
                state=outcome.state,
                error_count=outcome.error_count,
                last_error=outcome.last_error,
            )
            for outcome in batch
            if isinstance(outcome, ENDED) and outcome.entry.record_id not in lost
        ]
        for feed in list(self._feeds.values()) if ended else ():
            feed._put(ended)  # noqa: SLF001 -- of this module
