"""A notification service with a queue."""

from __future__ import annotations

import pytest

from stickybus import (
    NotificationQueue,
    NotificationService,
)
from tests.contract.conftest import MakeService
from tests.contract.harness import Order, Recorder


@pytest.fixture
def service(make_service: MakeService) -> NotificationService:
    """A service whose polls come too late for any test."""
    return make_service(poll_interval_seconds=30)


@pytest.fixture
def queue(service: NotificationService) -> NotificationQueue:
    """A queue of a service that is not started."""
    return service.create_queue("billing", "dunning", Recorder(), event_types=[Order])
