"""A member of a node: one of its buses and services, which `queue_core.membership` speaks for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from queue_core.model.entry import Entry
from queue_core.storage.store import Store


class Member(Protocol):
    """A bus's or service's engine, as its node sees it."""

    store: Store

    def describe(self) -> dict[str, Any]:
        """The served queues or subscribers, as plain JSON."""
        ...

    def outliving(self) -> list[int]:
        """After it has left: ids of entries that still run, or whose outcomes are unwritten."""
        ...

    def lease_lost(self) -> None:
        """The lease ended: give back the entries that have not started."""
        ...

    def reaped(self, queue_names: Sequence[str]) -> None:
        """Entries of these queues were taken from a dead node's lane: count them, and wake claims.

        Other nodes get a hint of any node's lane. The look that follows it finds suspects, too.
        """
        ...

    def beaten(self) -> None:
        """A beat has reached the database."""
        ...

    def beat_failed(self, error: BaseException) -> None:
        """A beat has failed; the next one follows soon."""
        ...

    def failed(self, entries: Sequence[Entry]) -> None:
        """Entries of a dead process have ended FAILED; their `last_error` tells why."""
        ...
