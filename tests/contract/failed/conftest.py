"""Fixtures of the tests of failed entries."""

from __future__ import annotations

import pytest

from queue_core.model.retry_policies import ImmediateRetries
from queue_core.reading import bulk
from tests.contract.conftest import MakeBus
from tests.contract.failed.shop import Shop


@pytest.fixture
def shop(make_bus: MakeBus) -> Shop:
    return Shop(make_bus(retry=ImmediateRetries(0)))


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> int:
    """Batches and windows of few entries."""
    monkeypatch.setattr(bulk, "WINDOW", 7)
    monkeypatch.setattr(bulk, "BATCH", 10)
    return 10
