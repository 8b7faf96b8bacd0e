"""A simulated process: a bus, a notification service or both on one node, and their threads."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from notifications.queue import NotificationQueue
from queue_core.cluster.member import Member
from queue_core.cluster.node import Node
from queue_core.errors import StickybusError
from queue_core.lifecycle import Lifecycle
from queue_core.model.lanes import ANY_NODE
from queue_core.running.subscriber import EntryContext
from queue_core.runtime.clock import Clock
from queue_core.runtime.loop import Loop
from queue_core.runtime.signal import Signal
from sql.database import Database
from stickybus import (
    BusConfig,
    NodeConfig,
    NotificationConfig,
    NotificationService,
    PersistentBus,
)
from tests.simulation.settings import Order
from tests.simulation.steps import Behaviour
from tests.simulation.threads import Killed, Lock, Scheduler, Task

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation

BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)
BACKOFF_SECONDS = 1.0


class ProcessClock:
    """The common monotonic time, and a date that may be off."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self.ahead_seconds = 0.0

    def now(self) -> datetime:
        """See `Clock.now`."""
        return BEGINNING + timedelta(seconds=self._scheduler.time + self.ahead_seconds)

    def monotonic(self) -> float:
        """See `Clock.monotonic`."""
        return self._scheduler.time

    def wait(self, signal: Signal, timeout_seconds: float | None) -> bool:
        """See `Clock.wait`: a boundary; the signal alone does not end it."""
        self._scheduler.pause("a wait", not_before=self._scheduler.time + (timeout_seconds or 0.0))
        raised = signal.is_set
        signal.clear()
        return raised


class SimulatedNode(Node):
    """A node without loops, of a simulated process."""

    def __init__(  # noqa: PLR0917 -- as a node's, after the process
        self,
        process: Process,
        name: str,
        database: Database,
        config: NodeConfig,
        clock: Clock,
        former: list[Member],
    ) -> None:
        super().__init__(name, database, config, clock, former)
        self._pid = process.pid
        self._telling = Lock(process.scheduler, "its turn to write what is served")  # type: ignore[assignment]
        process.last_node = self

    def start(self) -> None:
        self.register()


class Process:
    """See the module. `label` names it in steps; its node is named by the label's letter."""

    def __init__(
        self, simulation: Simulation, label: str, pid: int, database: Database, application: Engine
    ) -> None:
        self.simulation = simulation
        self.settings = simulation.settings
        self.scheduler = simulation.scheduler
        self.label = label
        self.pid = pid
        self.alive = True
        self.database = database
        self.application = application
        self.nodes: dict[tuple[str, str], Node] = {}
        self.former_members = defaultdict[tuple[str, str], list[Any]](list)
        """In place of the registry of nodes of a real process."""
        self.last_node: Node | None = None
        self.clock = ProcessClock(self.scheduler)
        self.tasks: dict[str, Task] = {}
        self.next_turn: dict[str, float] = {}
        self.told: set[str] = set()
        """The faces of which others have told, and whose listener has not heard yet."""
        self.bus: PersistentBus | None = None
        self.queue: NotificationQueue | None = None
        self.lifecycles: dict[str, Lifecycle] = {}
        common = self.settings.common(self.node_name)
        if "bus" in self.settings.faces:
            config = BusConfig(**common, mode=self.settings.mode)
            self.bus = PersistentBus(
                simulation.databases.url,
                config,
                clock=self.clock,
                metrics_registry=CollectorRegistry(),
            )
            for number in range(self.settings.subscribers):
                self.bus.subscribe(
                    Order,
                    self._handler("bus", number),
                    name=f"subscriber-{number}",
                    retry=self.settings.retry,
                    exactly_once=number < self.settings.exactly_once,
                    max_run_seconds=self.settings.max_run_seconds,
                )
            self.lifecycles["bus"] = self.bus._engine.lifecycle
        self.service: NotificationService | None = None
        if "service" in self.settings.faces:
            self.service = NotificationService(
                simulation.databases.url,
                NotificationConfig(**common),
                clock=self.clock,
                metrics_registry=CollectorRegistry(),
            )
            self.queue = self.service.create_queue(
                "simulated",
                "orders",
                self._handler("service", 0),
                event_types=[Order],
                retry=self.settings.retry,
                exactly_once=self.settings.exactly_once > 0,
                max_run_seconds=self.settings.max_run_seconds,
            )
            self.lifecycles["service"] = self.service._engine.lifecycle

        for face, lifecycle in self.lifecycles.items():
            # So that a seed has one trace.
            lifecycle.store.circuits._random = Random(1)  # noqa: S311
            # A real one has a thread for it.
            lifecycle.hints.tell = partial(self._tell, face)  # type: ignore[method-assign]

    @property
    def node_name(self) -> str:
        """The name of its node."""
        return self.label[0]

    @property
    def node(self) -> Node | None:
        """Its node, while it takes part."""
        return next(
            (
                lifecycle.node
                for lifecycle in self.lifecycles.values()
                if lifecycle.node is not None
            ),
            None,
        )

    def _tell(self, face: str, *_what: object, **_when: object) -> None:
        for process in self.simulation.processes.values():
            if process.alive and face in process.lifecycles:
                process.told.add(face)

    def resumed(self) -> None:
        """One of its threads goes on: what a process has for itself is its own again."""
        self.simulation.enter(self)

    # -- threads ----------------------------------------------------------------------------------

    def busy(self) -> list[str]:
        """The names of threads that are in the midst of something."""
        return list(self.tasks)

    def turns(self) -> list[str]:
        """The names of the turns that it could take, handlers with something to run included."""
        if self.node is None:
            return []
        names = ["beat", "reap"]
        for face, lifecycle in self.lifecycles.items():
            names += [f"{face}.claim", *self._finishes(face)]
            if face in self.told:
                names.append(f"{face}.hear")
            if lifecycle.pool.tasks.qsize():
                names += [
                    f"{face}.handler{number}" for number in range(self.settings.handler_threads)
                ]
        return names

    def _finishes(self, face: str) -> dict[str, Loop]:
        """The loops that write outcomes, by the names of their turns."""
        if face not in self.lifecycles:
            return {}
        loops = self.lifecycles[face].finisher.loops
        return {f"{face}.finish{number or ''}": loop for number, loop in enumerate(loops)}

    def due(self) -> list[str]:
        """Those of its turns whose time has come, as their loops would see it."""
        time, found = self.scheduler.time, list[str]()
        for name in self.turns():
            face, _, kind = name.rpartition(".")
            woken = (kind == "claim" and self.lifecycles[face].claim_loop.awake.is_set) or (
                name in self._finishes(face) and self._finishes(face)[name]._signal.is_set
            )
            if (
                kind.startswith(("handler", "hear"))
                or time >= self.next_turn.get(name, 0.0)
                or (woken and time >= self.next_turn.get(f"{name} deaf", 0.0))
            ):
                found.append(name)
        return found

    def task(self, name: str) -> Task | None:
        """The thread of this name, in the midst of something or about to take its turn.

        None if it has nothing to do.
        """
        if not self.alive:
            return None
        task = self.tasks.get(name)
        if task is None:
            work = self._turn(name)
            if work is None:
                return None
            task = self.tasks[name] = Task(
                f"{self.label} {name}", self, partial(self._to_its_end, name, work)
            )
        return task

    def begin(self, name: str, work: Callable[[], None]) -> Task | None:
        """A thread of its own for `work`; None if there is one of this name."""
        if name in self.tasks:
            return None
        surviving = partial(self._surviving, name, work)
        task = self.tasks[name] = Task(
            f"{self.label} {name}", self, partial(self._to_its_end, name, surviving)
        )
        return task

    def _to_its_end(self, name: str, work: Callable[[], None]) -> None:
        try:
            work()
        finally:
            del self.tasks[name]

    def _turn(self, name: str) -> Callable[[], None] | None:
        node = self.node
        if node is None:
            return None
        face, _, kind = name.rpartition(".")
        if kind == "beat":
            return partial(self._loop_turn, name, node.beat_turn, None)
        if kind == "reap":
            return partial(self._loop_turn, name, node.reaper.turn, None)
        lifecycle = self.lifecycles.get(face)
        if lifecycle is None:
            return None
        if kind == "claim":
            return partial(
                self._loop_turn, name, lifecycle.claim_loop.turn, lifecycle.claim_loop.awake
            )
        if kind == "hear" and face in self.told:
            self.told.discard(face)
            return partial(self._surviving, name, partial(lifecycle.claim_loop.hear, ANY_NODE))
        if name in self._finishes(face):
            return partial(
                self._loop_turn, name, lifecycle.finisher.turn, self._finishes(face)[name]._signal
            )
        if kind.startswith("handler") and lifecycle.pool.tasks.qsize():
            pool = lifecycle.pool
            return partial(self._surviving, name, lambda: pool.take(pool.tasks.get_nowait()))
        return None

    def _loop_turn(self, name: str, turn: Callable[[], float], signal: Signal | None) -> None:
        """What `Loop` does around a turn."""
        if signal is not None:
            signal.clear()
        pause = BACKOFF_SECONDS
        self.next_turn[f"{name} deaf"] = self.scheduler.time + BACKOFF_SECONDS
        try:
            pause = turn()
            self.next_turn[f"{name} deaf"] = 0.0
        except (SQLAlchemyError, StickybusError) as error:
            self.simulation.tell(f"  {self.label} {name}: {type(error).__name__}")
        except Exception as error:  # noqa: BLE001 -- whatever else a turn raises is a fault of the engine
            self.simulation.unexpected(f"{self.label} {name}", error)
        self.next_turn[name] = self.scheduler.time + pause

    def _surviving(self, name: str, work: Callable[[], None]) -> None:
        try:
            work()
        except (SQLAlchemyError, StickybusError) as error:
            self.simulation.tell(f"  {self.label} {name}: {type(error).__name__}")
        except Exception as error:  # noqa: BLE001 -- see `_loop_turn`
            self.simulation.unexpected(f"{self.label} {name}", error)

    # -- its life ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Take part in the cluster, or exit."""
        make = partial(SimulatedNode, self)
        try:
            for lifecycle in self.lifecycles.values():
                lifecycle.membership.join(make)
                lifecycle.pool.runner.accepting = True
        except (SQLAlchemyError, StickybusError):
            self.alive = False
            raise
        if self.queue is not None:
            self.queue.start()

    def leave(self) -> None:
        """Stop in order, as `Lifecycle.stop` does once its threads have ended."""
        if self.queue is not None:
            self.queue._started = False
        for lifecycle in self.lifecycles.values():
            lifecycle.holdings.stopping = True
            lifecycle.pool.stop(0.0)
            # Handler threads may take some of it meanwhile.
            while lifecycle.pool.tasks.qsize():
                lifecycle.pool.take(lifecycle.pool.tasks.get_nowait())
            try:
                lifecycle.membership.leave()
            except SQLAlchemyError as error:  # the other one stops all the same
                self.simulation.tell(f"  {self.label} leave: {type(error).__name__}")

    # -- handlers ---------------------------------------------------------------------------------

    def _handler(self, face: str, number: int) -> Callable[[Order, EntryContext], None]:
        def handle(event: Order, context: EntryContext) -> None:
            self._handle(event, context, number)

        handle.__qualname__ = f"{face}_{number}"
        return handle

    def _handle(self, event: Order, context: EntryContext, number: int) -> None:
        if not self.alive:
            raise Killed
        simulation = self.simulation
        behaviour = simulation.behaviours[event.number]
        run = simulation.began(self, event.number, context)
        try:
            self._work_on(event.number, behaviour, context, number)
        except Exception:
            run.failed, run.ended = True, self.scheduler.time
            raise
        run.ended = self.scheduler.time
        simulation.tell(f"  {self.label} has handled {event.number}")

    def handling(self) -> tuple[int, datetime]:
        """The claim of the entry that runs in the current thread.

        Its claim count, and since when its run is open.
        """
        ident = self.scheduler.ident()
        [run] = [
            lifecycle.pool.runner.invocations[ident].run
            for lifecycle in self.lifecycles.values()
            if ident in lifecycle.pool.runner.invocations
        ]
        return run.entry.claim_count, run.started_date

    def _work_on(self, key: int, behaviour: Behaviour, context: EntryContext, number: int) -> None:
        for _ in range(behaviour.boundaries):
            self.scheduler.pause("handling")
        if behaviour.poison:
            self.alive = False
            raise Killed
        if context.error_count < behaviour.fails:
            raise RuntimeError("simulated")
        if context.connection is not None:
            context.connection.exec_driver_sql(
                f"INSERT INTO simulated_effects VALUES ({key}, {number})"
            )
