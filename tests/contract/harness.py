"""What the contract tests share: handlers that keep what they got, and waits with a bound."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, cast

import pytest
from sqlalchemy import Connection, Engine, event

from bus.persistent import PersistentBus
from notifications.queue import NotificationQueue
from notifications.recurring_schedules import RecurringSchedules
from notifications.service import NotificationService
from queue_core.cluster import process_nodes
from queue_core.cluster.node import Node
from queue_core.engine import QueueEngine
from queue_core.lifecycle import Lifecycle
from queue_core.model.config import QueueConfig
from queue_core.model.entry import Entry
from queue_core.model.node_config import NodeConfig
from queue_core.model.states import State
from queue_core.running.subscriber import EntryContext
from queue_core.runtime import clock as clock_module
from sql.database import Database

T = TypeVar("T")
C = TypeVar("C", bound=QueueConfig)

Face = PersistentBus | NotificationService

nodes_here = process_nodes.here
"""The nodes of this process, by database and name."""

BOUND_SECONDS = 20.0
"""No wait of a test lasts longer; far above what a loaded machine needs."""
_PACE_SECONDS = 0.005


def eventually(
    condition: Callable[[], T], what: str = "the condition", *, seconds: float = BOUND_SECONDS
) -> T:
    """Call `condition` until it answers with something true, and return that.

    AssertionError after so many `seconds`.
    """
    deadline, pace = time.monotonic() + seconds, threading.Event()
    while not (found := condition()):
        assert time.monotonic() < deadline, f"never came true: {what}; last answer: {found!r}"
        pace.wait(_PACE_SECONDS)
    return found


async def eventually_async(
    condition: Callable[[], Any], what: str = "the condition", *, seconds: float = BOUND_SECONDS
) -> Any:
    """As `eventually`, while coroutines run; `condition` may answer with a coroutine."""
    deadline = time.monotonic() + seconds
    while not (found := await _answer(condition)):
        assert time.monotonic() < deadline, f"never came true: {what}; last answer: {found!r}"
        await asyncio.sleep(_PACE_SECONDS)
    return found


async def _answer(condition: Callable[[], Any]) -> Any:
    answer = condition()
    return await answer if isinstance(answer, Awaitable) else answer


def engine_of(face: Face | NotificationQueue) -> QueueEngine:
    """Return the engine behind a bus, a notification service or one of its queues.

    The tests reach it here alone.
    """
    return face._engine


def database_of(face: Face) -> Database:
    """Return the database of a bus or a notification service."""
    return engine_of(face).database


def lifecycle_of(face: Face) -> Lifecycle:
    """Return what starts, turns and stops a bus or a notification service."""
    return engine_of(face).lifecycle


def schedules_of(service: NotificationService) -> RecurringSchedules:
    """Return the recurring schedules of a notification service."""
    return service._schedules


def handler_threads() -> list[threading.Thread]:
    """Return the threads of this process that run handlers of a bus."""
    return [one for one in threading.enumerate() if one.name.startswith("bus_events-handler-")]


def node_of(face: Face) -> Node:
    """Return the node that a bus or a notification service belongs to."""
    node = lifecycle_of(face).node
    assert node is not None
    return node


def stops(face: Face) -> bool:
    """Return whether a stop is under way: nothing more starts."""
    return not lifecycle_of(face).pool.accepting


def elsewhere(call: Callable[[], T]) -> T:
    """Call it in another thread, and wait for its answer."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call).result(BOUND_SECONDS)


class Machine:
    """The clocks of this process, moved without waiting."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        wall, monotonic = time.time, clock_module.monotonic
        self._set, self._passed = 0.0, 0.0
        patch.setattr(time, "time", lambda: wall() + self._set + self._passed)
        patch.setattr(clock_module, "monotonic", lambda: monotonic() + self._passed)

    def set_clock(self, seconds: float) -> None:
        """Set the wall clock, as NTP does, or a virtual machine that wakes after a pause."""
        self._set += seconds

    def suspend(self, seconds: float) -> None:
        """Let time pass on all clocks, but no thread run."""
        self._passed += seconds


class Trouble(Exception):
    """An error that a test raises in the engine."""


@dataclass(frozen=True)
class Order:
    """The event of most tests."""

    number: int


class Recorder:
    """A handler of (event, context) that keeps each call.

    Wait for calls with `wait`.

    Args:
        failures: Number of calls that raise, from the first on.
        error: The error that they raise.
        hold: Whether calls wait until `release`.
    """

    def __init__(
        self, *, failures: float = 0, error: BaseException | None = None, hold: bool = False
    ) -> None:
        self.events: list[Any] = []
        self.contexts: list[EntryContext] = []
        self.running = 0
        self.most_running = 0
        self._failures = failures
        self._error = error or RuntimeError("the handler fails")
        self._changed = threading.Condition()
        self._released = threading.Event()
        if not hold:
            self._released.set()

    def __call__(self, event: Any, context: EntryContext) -> None:
        with self._changed:
            self.events.append(event)
            self.contexts.append(context)
            self.running += 1
            self.most_running = max(self.most_running, self.running)
            fails = len(self.events) <= self._failures
            self._changed.notify_all()
        try:
            assert self._released.wait(BOUND_SECONDS), "the test never released the handler"
            if fails:
                raise self._error
        finally:
            with self._changed:
                self.running -= 1
                self._changed.notify_all()

    @property
    def calls(self) -> int:
        """How many calls have begun."""
        return len(self.events)

    def release(self) -> None:
        """Let calls that wait, and all later ones, go on."""
        self._released.set()

    def wait(self, calls: int = 1) -> list[Any]:
        """Block until so many calls have begun; returns the events of all calls."""
        with self._changed:
            came = self._changed.wait_for(lambda: len(self.events) >= calls, BOUND_SECONDS)
        assert came, f"{len(self.events)} of {calls} calls came"
        return list(self.events)

    def numbers(self) -> list[int]:
        """The numbers of the orders received, sorted."""
        return sorted(order.number for order in self.events)


class Searchable(Protocol):
    """A bus, a notification service or a queue."""

    def find(self) -> list[Entry]: ...
    def history(self) -> list[Entry]: ...


def ended(queue: Searchable, count: int = 1) -> list[Entry]:
    """Wait until `count` entries are in history, REAPED ones aside; return them by ascending id."""

    def enough() -> list[Entry]:
        found = [entry for entry in queue.history() if entry.processing_state is not State.REAPED]
        return found if len(found) >= count else []

    found = eventually(enough, f"{count} entries have ended")
    assert len(found) == count
    return found


def delivered(bus: PersistentBus, recorder: Recorder) -> list[int]:
    """Return the numbers of orders that `recorder` got before one that is posted now is handled."""
    last = bus.post(Order(999))
    eventually(lambda: bus.history(record_ids=[last]), "the last order is handled")
    return [number for number in recorder.numbers() if number != 999]


def config_of(kind: type[C], settings: Mapping[str, Any]) -> C:
    """A configuration of settings, of which those of the node are given like all others."""
    of_node = {key: value for key, value in settings.items() if key in NodeConfig.model_fields}
    own = {key: value for key, value in settings.items() if key not in of_node}
    return kind(**({"node": NodeConfig(**of_node)} if of_node else {}), **own)


def states(entries: Collection[Entry]) -> list[State]:
    """The entries' states, in order."""
    return [entry.processing_state for entry in entries]


def with_savepoints(engine: Engine) -> Engine:
    """Return the engine, on SQLite set up for savepoints as SQLAlchemy's documentation advises."""
    if engine.dialect.name == "sqlite":
        event.listen(
            engine, "connect", lambda driver, _record: setattr(driver, "isolation_level", None)
        )
        event.listen(engine, "begin", _begin)
    return engine


def _begin(connection: Connection) -> None:
    if connection.get_execution_options().get("isolation_level") != "AUTOCOMMIT":
        connection.exec_driver_sql("BEGIN")


@dataclass
class Statements:
    """The statements that an engine has run, in order."""

    texts: list[str] = field(default_factory=list)

    def starting_with(self, *words: str) -> list[str]:
        """Those that begin with one of `words`, in any case."""
        return [text for text in self.texts if text.lstrip().upper().startswith(words)]


def without_schema(statement: str) -> str:
    """The statement as it is on a database whose tables are named without their schema."""
    return re.sub(r"\b(public|stickybus_test_\w+)\.(?=\w)", "", statement)


@contextmanager
def statements_of(database: Database) -> Iterator[Statements]:
    """Record what our own connections run inside the block."""
    statements = Statements()

    def record(_connection: object, _cursor: object, text: str, *_rest: object) -> None:
        statements.texts.append(without_schema(text))

    with listening(database, before_cursor_execute=record):
        yield statements


def moving(database: Database, otherwise: str) -> str:
    """Return a text of the statement that claims or writes outcomes on this database.

    It is `otherwise` where the statement names its work.
    """
    return "INSERT INTO bus_events_move" if database.dialect.name == "sqlite" else otherwise


@contextmanager
def listening(database: Database, **listeners: Callable[..., None]) -> Iterator[None]:
    """Let `listeners` hear SQLAlchemy's events of these names on all of our own connections."""
    for engine in database.engines:
        for name, listener in listeners.items():
            event.listen(engine, name, listener)
    try:
        yield
    finally:
        for engine in database.engines:
            for name, listener in listeners.items():
                event.remove(engine, name, listener)


@contextmanager
def meanwhile(database: Database, statement: str, act: Callable[[], object]) -> Iterator[None]:
    """Call `act` in another thread after the first statement that holds this text.

    Its caller goes on with what it has read when `act` has returned.
    """
    acted = list[bool]()

    def listener(_connection: object, _cursor: object, text: str, *_: object) -> None:
        if statement in text and not acted:
            acted.append(True)
            elsewhere(act)

    with listening(database, after_cursor_execute=listener):
        yield
    assert acted, f"nobody has run a statement with {statement}"


@contextmanager
def lost_answers(database: Database, statement: str, *, committed: bool) -> Iterator[list[str]]:
    """Break the connection of the first transaction that ran a `statement` of this text.

    It breaks after the COMMIT if `committed`, else before.

    A statement that commits by itself is such a transaction. The list that is given has one item
    once that has happened.
    """
    lost = list[str]()

    def note(connection: Connection, _cursor: Any, text: str, parameters: Any, *_rest: Any) -> None:
        if statement not in without_schema(text):
            return
        if connection.engine in {database.autocommit, database.inserts}:  # it commits by itself
            cut(connection, text, parameters)
        else:
            connection.info["lose"] = True

    def lose(connection: Connection) -> None:
        if connection.info.pop("lose", False):
            cut(connection, "COMMIT")

    def cut(connection: Connection, *last: Any) -> None:
        if lost:
            return
        lost.append("answer")
        driver: Any = connection.connection.driver_connection
        if committed:
            driver.cursor().execute(*last)
        driver.close()

    with listening(database, before_cursor_execute=note, commit=lose):
        yield lost


def see_what_changes(connection: Connection) -> None:
    """Let a transaction change rows that others have changed after its snapshot, as InnoDB did.

    MariaDB refuses that with error 1020, from 11.6 on unless it is told otherwise.
    """
    # The name of the dialect is the URL's.
    if getattr(connection.dialect, "is_mariadb", False):
        connection.exec_driver_sql("SET SESSION innodb_snapshot_isolation = OFF")
        connection.commit()


def deadlock(connection: Connection) -> Exception:
    """What the driver raises for a statement that met one."""
    errors: Any = connection.dialect.loaded_dbapi
    if connection.dialect.name == "postgresql":
        return cast("Exception", errors.errors.DeadlockDetected("deadlock detected"))
    if connection.dialect.name == "sqlite":
        return cast("Exception", errors.OperationalError("database is locked"))
    return cast("Exception", errors.OperationalError(1213, "Deadlock found"))
