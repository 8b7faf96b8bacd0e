"""The fixtures of the test kit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bus.persistent import PersistentBus
from notifications.service import NotificationService
from queue_core.opening import create_schema
from queue_core.runtime.manual_clock import ManualClock


@pytest.fixture
def stickybus_clock() -> ManualClock:
    """A clock that stands at 2026-01-01 00:00 UTC until the test moves it."""
    return ManualClock()


@pytest.fixture
def stickybus_url(tmp_path: Path) -> str:
    """The URL of a fresh SQLite database with all tables."""
    url = f"sqlite:///{tmp_path / 'stickybus.db'}"
    create_schema(url)
    return url


@pytest.fixture
def stickybus_bus(stickybus_url: str, stickybus_clock: ManualClock) -> Iterator[PersistentBus]:
    """A bus on the fresh database, by the manual clock; closed after the test."""
    bus = PersistentBus(stickybus_url, clock=stickybus_clock)
    yield bus
    bus.close()


@pytest.fixture
def stickybus_service(
    stickybus_url: str, stickybus_clock: ManualClock
) -> Iterator[NotificationService]:
    """A notification service on the fresh database, by the manual clock; closed after the test."""
    service = NotificationService(stickybus_url, clock=stickybus_clock)
    yield service
    service.close()
