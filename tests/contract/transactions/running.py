"""A bus that runs, its looks for commits, and the application's engine."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from sqlalchemy import Engine

from bus.persistent import PersistentBus
from queue_core.model.entry import Entry
from queue_core.storage.store import Store
from tests.contract.conftest import MakeBus
from tests.contract.harness import Order, Recorder, with_savepoints


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


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[int]]:
    """The ids of each look for commits."""
    found, owned = list[Sequence[int]](), Store.owned

    def counted(store: Store, ids: Sequence[int], owner: str) -> list[Entry]:
        found.append(ids)
        return owned(store, ids, owner)

    monkeypatch.setattr(Store, "owned", counted)
    return found
