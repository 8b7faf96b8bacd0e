"""Fixtures of the tests of failed entries."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from queue_core.model.retry_policies import ImmediateRetries
from queue_core.reading import bulk
from stickybus import PersistentBus
from tests.contract.conftest import MakeBus
from tests.contract.failed.shop import FAR, Shop
from tests.contract.harness import BOUND_SECONDS


@pytest.fixture
def shop(make_bus: MakeBus) -> Shop:
    return Shop(make_bus(retry=ImmediateRetries(0)))


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> int:
    """Batches and windows of few entries."""
    monkeypatch.setattr(bulk, "WINDOW", 7)
    monkeypatch.setattr(bulk, "BATCH", 10)
    return 10


@pytest.fixture
def holding(make_bus: MakeBus) -> Iterator[tuple[PersistentBus, int, list[int]]]:
    """A bus with an entry that runs, and with others that wait."""
    bus, began, may_end = make_bus(), threading.Event(), threading.Event()

    def handle(_event: object) -> None:
        began.set()
        assert may_end.wait(BOUND_SECONDS)

    bus.subscribe("Slow", handle)
    bus.start()
    running = bus.post({}, event_name="Slow")
    assert began.wait(BOUND_SECONDS)
    waiting = [
        bus.post({}, event_name=name, delay=FAR, search_key1=key)
        for name, key in (("Slow", 1), ("Slow", 2), ("Other", 2))
    ]
    yield bus, running, waiting
    may_end.set()
