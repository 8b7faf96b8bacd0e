"""Names that went keep working until 1.0: each warns, and leads to its new place."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

import stickybus
from queue_core.runtime.deprecation import OldName
from stickybus import BusConfig, InMemoryBus, NotificationConfig, NotificationService, PersistentBus
from stickybus.testing import (
    drain,
    stickybus_bus,
    stickybus_clock,
    stickybus_service,
)
from tests.contract.harness import Order, Recorder

__all__ = ["stickybus_bus", "stickybus_clock", "stickybus_service"]

BEFORE = (Path(__file__).parent / "public_names_before.txt").read_text("utf-8").split()
"""What was public before names were hidden and renamed, attributes of objects too."""


@pytest.fixture
def objects(stickybus_bus: PersistentBus, stickybus_service: NotificationService) -> dict[str, Any]:
    """One object of each class that had a public name by then which is not that of its class."""
    stickybus_bus.post(Order(1))
    found = [
        stickybus_bus,
        stickybus_service,
        stickybus_service.create_queue("shop", "reminders", lambda _event: None),
        InMemoryBus(),
        BusConfig(),
        NotificationConfig(),
        *stickybus_bus.find(),
        stickybus.Posting(event=Order(1)),
        stickybus.ManualClock(),
        stickybus.SystemClock(),
    ]
    return {type(one).__name__: one for one in found}


def _old(one: object) -> Iterator[tuple[str, OldName[Any]]]:
    for name, value in inspect.getmembers_static(type(one)):
        if isinstance(value, OldName):
            yield name, value


def test_the_help_of_an_old_name_tells_its_new_one(objects: dict[str, Any]) -> None:
    old = [value for one in objects.values() for _, value in _old(one)]
    assert old
    assert all(inspect.getdoc(value) == f"Deprecated: {value.new}." for value in old)


def test_every_name_of_before_is_still_there(objects: dict[str, Any]) -> None:
    gone = list[str]()
    for path in BEFORE:
        name, _, member = path.partition(".")
        one = objects.get(name, getattr(stickybus, name, None))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            if one is None or (member and not hasattr(one, member)):
                gone.append(path)
    assert gone == []


def test_every_old_name_warns_the_users_line_and_leads_to_the_new_one(
    objects: dict[str, Any],
) -> None:
    old_names = [(one, name, old) for one in objects.values() for name, old in _old(one)]
    assert old_names
    for one, name, old in old_names:
        with pytest.warns(
            DeprecationWarning, match=rf"^{name} will be removed in 1\.0: use "
        ) as told:
            found = getattr(one, name)
        assert found == attrgetter(old.path)(one)
        assert old.new in str(told[0].message)
        assert told[0].filename == __file__


def test_a_handler_is_registered_as_before(stickybus_bus: PersistentBus) -> None:
    recorder = Recorder()
    with pytest.warns(
        DeprecationWarning, match=r"register will be removed in 1\.0: use subscribe"
    ) as told:
        assert stickybus_bus.register(Order, recorder, name="old") is recorder
    assert told[0].filename == __file__
    stickybus_bus.post(Order(1))
    drain(stickybus_bus)
    assert recorder.events == [Order(1)]


def test_a_queue_is_started_by_an_assignment_as_before(
    stickybus_service: NotificationService,
) -> None:
    queue = stickybus_service.create_queue("shop", "reminders", lambda _event: None)
    with pytest.warns(DeprecationWarning, match=r"use start\(\) or stop\(\)"):
        queue.started = True
    assert queue.started
