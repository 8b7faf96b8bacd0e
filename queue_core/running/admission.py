"""Admission: decides before a run opens whether its entry runs here, and on which handlers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from queue_core.model.entry import Entry
from queue_core.model.lanes import Lane
from queue_core.model.outcome import Parked, SetAside
from queue_core.running.pauses_in_force import PausesInForce
from queue_core.running.subscriber import Router, Subscriber

LaneWithoutPlace: TypeAlias = Callable[[Entry], Lane | None]
"""The lane in which an entry of a limited queue without a place waits; None if it may start."""


class Admission(Protocol):
    """Is asked once for each run, before its event is decoded."""

    lane_without_place: LaneWithoutPlace
    """Is asked before each handler starts."""

    def admit(self, entry: Entry) -> Sequence[Subscriber] | Parked | SetAside:
        """Those who handle the entry, perhaps nobody; else the outcome with which it does not run.

        Raises a StickybusError if the entry can't be run at all: it ends FAILED.
        """
        ...


def unlimited(entry: Entry) -> None:
    """Let every entry start."""
    del entry


class QueueAdmission:
    """Sets aside what is paused or has no place, and parks what no handler knows."""

    def __init__(
        self, router: Router, pauses: PausesInForce, lane_without_place: LaneWithoutPlace
    ) -> None:
        self._subscribers = router.subscribers
        self._pauses = pauses
        self.lane_without_place = lane_without_place

    def admit(self, entry: Entry) -> Sequence[Subscriber] | Parked | SetAside:
        """See `Admission.admit`. Raises ConfigurationError if the type's name is that of two."""
        if self._pauses.known and (lane := self._pauses.lane_of_entry(entry)) is not None:
            return SetAside(entry=entry, lane=lane, error_count=entry.error_count)
        if (lane := self.lane_without_place(entry)) is not None:
            return SetAside(entry=entry, lane=lane, error_count=entry.error_count)
        subscribers = self._subscribers(entry.queue_name, entry.class_name)
        return Parked(entry=entry) if subscribers is None else subscribers
