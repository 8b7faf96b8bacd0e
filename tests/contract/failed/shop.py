"""A bus whose entries fail."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from queue_core.model.posting import Posting
from stickybus import PersistentBus
from stickybus.testing import drain

FAR = timedelta(hours=1)


class Shop:
    """A bus whose handlers fail as long as they are told to."""

    def __init__(self, bus: PersistentBus) -> None:
        self.bus = bus
        self.failing = True
        bus.subscribe("Mail", self._send, name="send")
        bus.subscribe("Bill", self._write, name="write")

    def _send(self, event: dict[str, int]) -> None:
        if self.failing:
            raise TimeoutError(f"50%_of the mail server, order {event['number']}")

    def _write(self, event: dict[str, int]) -> None:
        if self.failing:
            raise ValueError(f"Order {event['number']}")

    def fail(self, event_name: str, count: int, **keys: Any) -> list[int]:
        """Let some events fail, and return their ids."""
        postings = [
            Posting(event={"number": number}, event_name=event_name, **keys)
            for number in range(count)
        ]
        ids = self.bus.post_many(postings)
        drain(self.bus)
        return ids

    @property
    def letters(self) -> list[int]:
        return sorted(entry.record_id for entry in self.bus.dead_letters())


def retried(bus: PersistentBus) -> list[int]:
    """The entries of which retries wait."""
    return sorted(entry.replay_of or 0 for entry in bus.find())
