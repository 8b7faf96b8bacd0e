"""Posting in Django's transactions, through Django's connection or its driver's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pymysql
import pytest
from django import setup
from django.conf import settings
from django.db import connection, connections, transaction
from sqlalchemy import URL

from bus.persistent import PersistentBus
from queue_core.errors import InvalidConnectionError
from tests.contract.conftest import MakeBus, MakeService
from tests.contract.harness import Order, Recorder, delivered, ended
from tests.contract.transactions.callers import bus

__all__ = ["bus"]

# Django's own driver for MySQL and MariaDB is mysqlclient; it takes PyMySQL in its place.
pymysql.install_as_MySQLdb()
settings.configure(USE_TZ=True, LOGGING_CONFIG=None)
setup()

_ENGINES = {"sqlite": "sqlite3", "postgresql": "postgresql", "mysql": "mysql"}


def _django_itself() -> Any:
    return connection


def _driver_inside() -> Any:
    connection.ensure_connection()
    return connection.connection


class _Wrong(Exception):
    """What rolls an atomic block back."""


Given = Callable[[], Any]
each_kind = pytest.mark.parametrize("given", [_django_itself, _driver_inside])


@pytest.fixture(autouse=True)
def _connected(database_url: URL, tmp_path: Path) -> Iterator[None]:
    """Django's default connection leads to the database of the test."""
    default = {
        "ENGINE": f"django.db.backends.{_ENGINES[database_url.get_backend_name()]}",
        "NAME": database_url.database,
        "HOST": database_url.host or "",
        "PORT": database_url.port or "",
        "USER": database_url.username or "",
        "PASSWORD": database_url.password or "",
    }
    # A file: Django never closes one in memory.
    other = {"ENGINE": "django.db.backends.sqlite3", "NAME": tmp_path / "other.db"}
    connections.settings.update(
        connections.configure_settings({"default": default, "other": other})
    )
    # There may be one without a database.
    connections["default"] = connections.create_connection("default")
    yield
    for opened in connections.all(initialized_only=True):
        opened.close()
        del connections[opened.alias]


@each_kind
def test_an_atomic_block_delivers_when_it_commits(
    bus: PersistentBus, recorder: Recorder, given: Given
) -> None:
    with transaction.atomic():
        first = bus.post(Order(1), search_key2=5, connection=given())
        rest = bus.post_many([Order(number) for number in range(2, 32)], connection=given())
        found = bus.find(search_key2=5, connection=given())
        assert recorder.calls == 0
        assert bus.find() == []
    assert [entry.record_id for entry in found] == [first]
    assert [entry.record_id for entry in ended(bus, 31)] == [first, *rest]
    assert bus.history(record_ids=[first])[0].created_date == found[0].created_date
    assert recorder.numbers() == list(range(1, 32))


@each_kind
def test_an_atomic_block_that_fails_delivers_nothing(
    bus: PersistentBus, recorder: Recorder, given: Given
) -> None:
    with suppress(_Wrong), transaction.atomic():
        bus.post(Order(1), connection=given())
        bus.post_many([Order(2), Order(3)], connection=given())
        raise _Wrong
    assert delivered(bus, recorder) == []
    assert bus.find() == []


@each_kind
def test_an_inner_atomic_block_that_fails_takes_its_events_along(
    bus: PersistentBus, recorder: Recorder, given: Given
) -> None:
    with transaction.atomic():
        bus.post(Order(1), connection=given())
        with suppress(_Wrong), transaction.atomic():
            bus.post(Order(2), connection=given())
            raise _Wrong
        with transaction.atomic():
            bus.post(Order(3), connection=given())
    recorder.wait(2)
    assert delivered(bus, recorder) == [1, 3]


@each_kind
def test_outside_of_an_atomic_block_each_post_is_committed(
    bus: PersistentBus, recorder: Recorder, given: Given
) -> None:
    bus.post(Order(1), connection=given())
    assert recorder.wait() == [Order(1)]
    assert delivered(bus, recorder) == [1]


def test_djangos_commit_delivers_at_once(make_bus: MakeBus) -> None:
    bus, recorder = make_bus(poll_interval_seconds=600.0), Recorder()
    bus.subscribe(Order, recorder)
    bus.start()
    with transaction.atomic():
        bus.post(Order(1), connection=connection)
        with transaction.atomic():
            bus.post(Order(2), connection=connection)
    assert recorder.wait(2)
    ended(bus, 2)


def test_a_hook_of_the_application_that_raises_before_ours_holds_up_no_event(
    make_bus: MakeBus, recorder: Recorder
) -> None:
    """A sweep would find the event after a lease."""
    bus = make_bus(poll_interval_seconds=0.2, lease_seconds=600.0)
    bus.subscribe(Order, recorder)
    bus.start()
    delivered(bus, recorder)  # and nothing was posted since: sweeps are rare

    def fail() -> None:
        raise _Wrong

    with suppress(_Wrong), transaction.atomic():
        transaction.on_commit(fail)
        bus.post(Order(1), connection=connection)
    recorder.wait(2)
    assert recorder.numbers() == [1, 999]


def test_a_date_is_changed_in_an_atomic_block(
    make_service: MakeService, recorder: Recorder
) -> None:
    service = make_service(poll_interval_seconds=600.0)
    queue = service.create_queue("shop", "bills", recorder, event_types=[Order])
    service.start()
    record_id = queue.schedule(Order(1), delay=3600)
    with transaction.atomic():
        queue.update(record_id, at=datetime.now(UTC), connection=connection)
    assert recorder.wait() == [Order(1)]


def test_a_connection_of_django_to_another_database_is_refused(bus: PersistentBus) -> None:
    with pytest.raises(InvalidConnectionError, match="Nothing was written"):
        bus.post(Order(1), connection=connections["other"])  # on SQLite: another file
    assert bus.find() == []
