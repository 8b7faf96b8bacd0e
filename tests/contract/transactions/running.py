"""A bus that runs, and the application's engine."""

from __future__ import annotations

import pytest
from sqlalchemy import Engine

from bus.persistent import PersistentBus
from tests.contract.conftest import MakeBus
from tests.contract.harness import (
    Order,
    Recorder,
    with_savepoints,
)


@pytest.fixture
def engine(engine: Engine) -> Engine:
    """An application's engine."""
    return with_savepoints(engine)


@pytest.fixture
def bus(make_bus: MakeBus, recorder: Recorder) -> PersistentBus:
    """A running bus with one subscriber, which sweeps often."""
    bus = make_bus(poll_interval_seconds=0.1)
    bus.subscribe(Order, recorder)
    return bus.start()
