"""Admission: decides before a run opens whether its entry runs here, and who handles it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from queue_core.model.entry import Entry
from queue_core.model.outcome import Parked
from queue_core.running.subscriber import Router, Subscriber


class Admission(Protocol):
    """Is asked once for each run, before its event is decoded."""

    def admit(self, entry: Entry) -> Sequence[Subscriber] | Parked:
        """Those who handle the entry, perhaps nobody; else the outcome with which it does not run.

        Raises a StickybusError if the entry can't be run at all: it ends FAILED.
        """
        ...


class KnownTypes:
    """Parks entries whose queue or type nobody knows here."""

    def __init__(self, router: Router) -> None:
        self._subscribers = router.subscribers

    def admit(self, entry: Entry) -> Sequence[Subscriber] | Parked:
        """See `Admission.admit`. Raises ConfigurationError if the type's name is that of two."""
        subscribers = self._subscribers(entry.queue_name, entry.class_name)
        return Parked(entry=entry) if subscribers is None else subscribers
