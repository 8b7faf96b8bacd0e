"""Fixtures of the contract tests: buses and services that are closed when the test ends."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

import pytest
from sqlalchemy import (
    URL,
    Column,
    Engine,
    Insert,
    Integer,
    MetaData,
    String,
    Table,
    create_engine,
    insert,
    select,
)

from bus.persistent import PersistentBus
from notifications.queue import NotificationQueue
from notifications.service import NotificationService
from queue_core.claiming.hint_sender import HintSender
from queue_core.inspector import Inspector, inspect
from queue_core.model.config import BusConfig, NotificationConfig
from queue_core.model.retry_policies import ImmediateRetries
from queue_core.runtime.clock import Clock
from queue_core.runtime.manual_clock import ManualClock
from tests.cloners import SQLiteFiles
from tests.contract.cluster import cluster
from tests.contract.harness import Machine, Order, Recorder, config_of, lifecycle_of

__all__ = ["cluster"]

_SETTINGS: dict[str, Any] = {"handler_threads": 4, "retry": ImmediateRetries(3)}
"""What no test measures is kept small."""


class MakeBus(Protocol):
    """Makes a bus on the test's database; its node gets a new name unless the settings give one.

    Settings of the node are given like all others.
    """

    def __call__(
        self, *, clock: Clock | None = None, database: URL | Engine | None = None, **settings: Any
    ) -> PersistentBus: ...


class MakeService(Protocol):
    """Makes a notification service on the test's database; see `MakeBus`."""

    def __call__(
        self, *, clock: Clock | None = None, database: URL | Engine | None = None, **settings: Any
    ) -> NotificationService: ...


@pytest.fixture
def _node_names() -> Callable[[], str]:
    numbers = itertools.count(1)
    return lambda: f"node-{next(numbers)}"


@pytest.fixture
def make_bus(database_url: URL, _node_names: Callable[[], str]) -> Iterator[MakeBus]:
    """A factory of buses, not started; all are closed after the test, the last made first."""
    with ExitStack() as made:

        def make(
            *, clock: Clock | None = None, database: URL | Engine | None = None, **settings: Any
        ) -> PersistentBus:
            config = config_of(BusConfig, {**_SETTINGS, "node_name": _node_names(), **settings})
            bus = PersistentBus(database or database_url, config, clock=clock)
            made.callback(bus.close)
            return bus

        yield make


@pytest.fixture
def bus(make_bus: MakeBus) -> PersistentBus:
    """A bus with the defaults, not started yet."""
    return make_bus()


@pytest.fixture
def stickybus_url(sqlite_files: SQLiteFiles, tmp_path: Path) -> str:
    """In place of the test kit's: a copy, where that one runs all migrations."""
    return str(sqlite_files.migrated(tmp_path / "stickybus.db"))


@pytest.fixture
def recorder() -> Recorder:
    """A handler that keeps what it got."""
    return Recorder()


@pytest.fixture
def make_service(database_url: URL, _node_names: Callable[[], str]) -> Iterator[MakeService]:
    """A factory of notification services, not started; the last made is closed first."""
    with ExitStack() as made:

        def make(
            *, clock: Clock | None = None, database: URL | Engine | None = None, **settings: Any
        ) -> NotificationService:
            config = config_of(
                NotificationConfig, {**_SETTINGS, "node_name": _node_names(), **settings}
            )
            service = NotificationService(database or database_url, config, clock=clock)
            made.callback(service.close)
            return service

        yield make


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """This machine, whose clocks can be set."""
    return Machine(monkeypatch)


@pytest.fixture
def sender(make_bus: MakeBus) -> tuple[HintSender, ManualClock]:
    """A sender of hints whose thread is the test, and its clock."""
    clock = ManualClock()
    hints = lifecycle_of(make_bus(clock=clock)).hints
    hints.running = True
    return hints, clock


@pytest.fixture
def queue(make_service: MakeService) -> NotificationQueue:
    """A queue of a service that is not started."""
    return make_service().create_queue("shop", "bills", Recorder(), event_types=[Order])


@pytest.fixture
def inspector(database_url: URL) -> Iterator[Inspector]:
    """An inspector of the test's database, closed after the test."""
    with inspect(database_url) as inspector:
        yield inspector


@pytest.fixture
def caller(database_url: URL) -> Iterator[Engine]:
    """An application's engine, in the isolation that MariaDB and MySQL have by default."""
    engine = create_engine(database_url, isolation_level="REPEATABLE READ")
    yield engine
    engine.dispose()


class Orders:
    """A table of the application, beside the queue's tables."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.table = Table(
            "orders",
            MetaData(),
            Column("number", Integer, primary_key=True, autoincrement=False),
            Column("note", String(40)),
        )
        self.table.create(engine)

    def add(self, number: int, note: str = "") -> Insert:
        """The statement that adds one."""
        return insert(self.table).values(number=number, note=note)

    def numbers(self) -> list[int]:
        """What is committed."""
        with self.engine.connect() as connection:
            return list(
                connection.scalars(select(self.table.c.number).order_by(self.table.c.number))
            )


@pytest.fixture
def orders(engine: Engine) -> Orders:
    """A table of the application, beside the queue's tables."""
    return Orders(engine)
