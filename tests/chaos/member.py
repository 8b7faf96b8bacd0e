"""The processes of a run: nodes, which handle and post, and posters, which only post.

They are forked from a server process that has imported everything, so that a start costs
milliseconds. A member ends by itself when whoever started it has gone.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from prometheus_client import CollectorRegistry
from sqlalchemy import Engine, create_engine, event, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from queue_core.cluster.node import Node
from queue_core.opening import open_database
from stickybus import (
    BusConfig,
    EntryContext,
    Mode,
    NodeConfig,
    NotificationConfig,
    NotificationService,
    PersistentBus,
    StickybusError,
)
from tests.chaos.journal import Beaten, Ended, Journal, Left, Sampled, Started, Stopping, monotonic
from tests.chaos.linked import Link
from tests.chaos.load import Kind, Load, Work

BEATS_PER_LEASE: Final = 8
SAMPLE_SECONDS: Final = 5.0
_SLOW_SECONDS, _QUICK_SECONDS = 0.25, 0.002
_STOP_SECONDS: Final = 10.0
log = logging.getLogger(__name__)
_PATIENCE_SECONDS: Final = 0.2
_ANSWER_SECONDS: Final = 5
"""Drivers wait for an answer for ever unless told otherwise."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a member is.

    `pool_size`: of the application's own engine, which handlers use too if it is set.

    `max_pages` limits the SQLite file. `clock_seconds` is how far the process's wall clock is off.
    """

    name: str
    number: int
    url: str
    folder: Path
    delivers: bool
    rate: float
    mode: Mode = Mode.STICKY_EVENTS
    lease_seconds: float = 2.0
    handler_threads: int = 4
    queue_capacity: int = 500
    poisons: int = 0
    clock_seconds: float = 0.0
    pool_size: int | None = None
    samples: bool = False
    bus_options: dict[str, Any] = field(default_factory=dict)
    link: str = Link.NONE
    """What the posts have in common."""
    neighbour: bool = False
    """Whether a notification service shares the node with the bus, which may leave and return."""

    def config(self) -> BusConfig:
        """The bus's configuration."""
        return BusConfig(
            mode=self.mode,
            poll_interval_seconds=0.5,
            handler_threads=self.handler_threads,
            queue_capacity=self.queue_capacity,
            **self.node_settings(),
            **self.bus_options,
        )

    def node_settings(self) -> dict[str, Any]:
        """What all members of the node share."""
        return {
            "node_name": self.name if self.delivers else None,
            "node": NodeConfig(
                lease_seconds=self.lease_seconds,
                beat_interval_seconds=self.lease_seconds / BEATS_PER_LEASE,
                reap_period_seconds=0.5,
                statement_timeout_seconds=3.0,
            ),
        }


class Command:
    """What a member is told through its pipe."""

    REST: Final = "rest"
    """Post no more; answered by the same word."""
    REJOIN: Final = "rejoin"
    """Stop the bus, waiting for handlers for so many milliseconds, and start it again."""
    PAGES: Final = "pages"
    """With a number: the most pages that the SQLite file may have; 0 for no limit."""


def run(settings: Settings, control: Connection) -> None:
    """A member's main program: until SIGTERM, or the other end of `control` closes."""
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.basicConfig(
        filename=settings.folder / f"{settings.name}.log",
        level=logging.INFO,
        format=f"%(asctime)s.%(msecs)03d {os.getpid()} %(levelname)s %(message)s",
        datefmt="%H:%M:%S",
    )
    real = time.time
    # The engine takes the date from here once, and corrects it by the database's: as on a machine
    # whose clock is off.
    with patch.object(time, "time", lambda: real() + settings.clock_seconds):
        _Member(settings, control, stopping).run()
    sys.stdout.flush()
    # Threads that hang in a driver must not keep the process; what hung is seen by the judge.
    os._exit(0)


class _Member:
    def __init__(self, settings: Settings, control: Connection, stopping: threading.Event) -> None:
        self._settings = settings
        self._control = control
        self._stopping = stopping
        self._journal = Journal(settings.folder, settings.name)
        self._registry = CollectorRegistry()
        self._max_pages = 0
        self._load: Load | None = None
        self._neighbour: NotificationService | None = None

    def run(self) -> None:
        settings = self._settings
        bus = self._opened()
        if bus is None:
            return
        if settings.delivers:
            self._bus = bus
            bus.subscribe(Work, self._handle, name="work")
            self._watch_beats(bus)
            if not self._started(bus):
                return
            if settings.neighbour:
                self._neighbour = NotificationService(
                    settings.url,
                    NotificationConfig(**settings.node_settings()),
                    metrics_registry=CollectorRegistry(),
                )
                self._neighbour.start()
        if settings.rate > 0:
            self._load = Load(
                bus,
                self._users,
                self._journal,
                node=settings.name,
                number=settings.number,
                rate=settings.rate,
                poisons=settings.poisons,
                link=settings.link,
            )
            self._load.start()
        self._obey()
        if self._load is not None:
            self._load.stop(_STOP_SECONDS)
        if settings.delivers:
            self._journal.write(Stopping(at=monotonic(), node=settings.name))
        if self._neighbour is not None:
            self._neighbour.close()
        bus.close()

    # -- life -------------------------------------------------------------------------------------

    def _opened(self) -> PersistentBus | None:
        """The bus; tried again while the database is away, as a supervisor would.

        None if told to stop.
        """
        while not self._stopping.is_set():
            try:
                self._users = self._application_engine()
                bus = PersistentBus(
                    self._users if self._settings.pool_size else self._settings.url,
                    self._settings.config(),
                    metrics_registry=self._registry,
                )
            except (StickybusError, SQLAlchemyError):
                log.exception("the bus could not be made")
                self._stopping.wait(0.2)
            else:
                self._limit(bus._engine.database.engine)
                return bus
        return None

    def _started(self, bus: PersistentBus) -> bool:
        """Whether the bus has started.

        A process that can't start ends, and the stage starts another one.
        """
        try:
            bus.start()
        except (StickybusError, SQLAlchemyError):
            log.exception("the bus could not be started")
            return False
        return True

    def _obey(self) -> None:
        sample_at = monotonic()
        while not self._stopping.is_set():
            try:
                while self._control.poll(0.05):
                    self._hear(self._control.recv())
            except (EOFError, OSError):
                return
            if self._settings.samples and monotonic() >= sample_at:
                sample_at = monotonic() + SAMPLE_SECONDS
                self._sample()

    def _hear(self, message: tuple[str, int]) -> None:
        command, number = message
        if command == Command.PAGES:
            self._max_pages = number
        elif command == Command.REJOIN:
            since = monotonic()
            self._bus.stop(number / 1000)
            self._journal.write(Left(at=monotonic(), node=self._settings.name, since=since))
            self._bus.start()
        elif command == Command.REST and (self._load is None or self._load.stop(_STOP_SECONDS)):
            self._control.send(Command.REST)

    # -- the application --------------------------------------------------------------------------

    def _application_engine(self) -> Engine:
        settings = self._settings
        if settings.pool_size:
            engine = create_engine(
                settings.url,
                pool_size=settings.pool_size,
                max_overflow=0,
                pool_timeout=_PATIENCE_SECONDS,
            )
        elif settings.url.startswith("mysql"):
            limits = {"read_timeout": _ANSWER_SECONDS, "write_timeout": _ANSWER_SECONDS}
            engine = create_engine(settings.url, connect_args=limits)
        elif settings.url.startswith("postgresql"):
            # psycopg has no such option: the application waits as the bus does.
            engine = open_database(settings.url, statement_timeout_seconds=_ANSWER_SECONDS).engine
        else:
            engine = create_engine(settings.url)
        self._limit(engine)
        return engine

    def _limit(self, engine: Engine) -> None:
        """Apply the limit of pages, which SQLite keeps by connection, whenever one is used."""
        if engine.dialect.name != "sqlite":
            return

        def limit(connection: Any, *_: object) -> None:
            # 4294967294 is SQLite's own largest value.
            connection.execute(f"PRAGMA max_page_count = {self._max_pages or 4294967294}")

        event.listen(engine, "checkout", limit)

    def _handle(self, work: Work, context: EntryContext) -> None:
        run = self._bus._engine.lifecycle.pool.runner.invocations[threading.get_ident()].run
        claim = run.entry.claim_count
        self._journal.write(
            Started(
                at=monotonic(),
                node=self._settings.name,
                pid=os.getpid(),
                epoch=run.epoch,
                key=work.key,
                record_id=context.record_id,
                origin_id=run.entry.origin_id,
                claim_count=claim,
                error_count=context.error_count,
            )
        )
        if work.kind == Kind.POISON:
            os.kill(os.getpid(), signal.SIGKILL)
        failed = work.kind == Kind.FLAKY and context.error_count == 0
        with self._connection_held():
            # The handler's work.
            time.sleep(_SLOW_SECONDS if work.kind == Kind.SLOW else _QUICK_SECONDS)
        self._journal.write(
            Ended(at=monotonic(), record_id=context.record_id, claim_count=claim, failed=failed)
        )
        if failed:
            raise RuntimeError("a flaky handler fails at first")

    @contextmanager
    def _connection_held(self) -> Iterator[None]:
        """A connection of the application's small pool, waited for as long as it takes."""
        if not self._settings.pool_size:
            yield
            return
        while True:
            try:
                connection = self._users.connect()
                break
            except PoolTimeoutError:
                continue
        with connection:
            connection.execute(text("SELECT 1"))
            yield

    # -- what is seen from inside -----------------------------------------------------------------

    def _watch_beats(self, bus: PersistentBus) -> None:
        """Write down each beat that renews the lease, the first one too.

        The judge measures by them who was live.
        """
        beaten = Node._beaten

        def watched(node: Node, sent: float) -> None:
            beaten(node, sent)
            self._journal.write(
                Beaten(
                    at=sent,
                    node=node.name,
                    pid=os.getpid(),
                    epoch=node.epoch,
                    in_flight=len(bus._engine.lifecycle.ledger),
                )
            )

        # It does what it did, and tells.
        patch.object(Node, "_beaten", watched).start()

    def _sample(self) -> None:
        status = dict(
            line.split(":", 1) for line in Path("/proc/self/status").read_text("ascii").splitlines()
        )
        labels = {"table": self._settings.config().table, "statement": "claim"}

        def read(name: str) -> float:
            return (
                self._registry.get_sample_value(f"stickybus_statement_seconds_{name}", labels)
                or 0.0
            )

        self._journal.write(
            Sampled(
                at=monotonic(),
                node=self._settings.name,
                pid=os.getpid(),
                memory_bytes=int(status["VmRSS"].split()[0]) * 1024,
                threads=int(status["Threads"]),
                claims=read("count"),
                claim_seconds=read("sum"),
            )
        )
