"""Chooses steps at random, by what there is to do: each seed has moods of its own, so that seeds differ in kind.

Moods (a weight for each kind of step, often zero) make some seeds calm and others wild: what needs two faults of one
kind in a row is rare when all kinds are always mixed ("swarm testing", Groce et al. 2012).
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from stickybus import Mode
from tests.simulation.process import Process, Settings
from tests.simulation.simulation import Simulation
from tests.simulation.steps import (
    Behaviour,
    Change,
    Ending,
    Fault,
    Go,
    Jump,
    Kill,
    Leave,
    Outage,
    Pass,
    Post,
    Start,
    Step,
)

WEIGHTS = {
    "post": 8.0,
    "go": 30.0,
    "resume": 12.0,
    "pass": 5.0,
    "lapse": 1.0,
    "kill": 1.0,
    "start": 1.5,
    "leave": 0.5,
    "outage": 0.5,
    "jump": 0.3,
    "change": 1.0,
}
_CALM = {"post", "go", "resume", "pass", "start"}


def settings_of(random: Random) -> Settings:
    """The settings of one seed."""
    modes = [Mode.STICKY_EVENTS, Mode.STICKY_EVENTS, Mode.STICKY_POLLING, Mode.POLLING]
    return Settings(
        faces=random.choice([("bus",), ("bus",), ("bus",), ("service",), ("bus", "service")]),
        mode=random.choice(modes),
        subscribers=random.choice([1, 1, 2]),
        exactly_once=random.random() < 0.25,
        queue_capacity=random.choice([4, 8, 30]),
    )


class Generator:
    """Steps of one seed, one by one."""

    def __init__(self, random: Random, settings: Settings) -> None:
        self._random = random
        self._settings = settings
        self._nodes = "abcd"[: random.choice([1, 2, 2, 3, 3, 4])]
        self._weights = {
            kind: weight * random.choice([1.0, 1.0, 3.0] if kind in _CALM else [0.0, 0.0, 1.0, 4.0])
            for kind, weight in WEIGHTS.items()
        }
        self._fault_rate = random.choice([0.0, 0.0, 0.05, 0.3])
        self._failing = random.choice([0.0, 0.2, 0.6])
        self._poisonous = random.choice([0.0, 0.0, 0.05])
        self._next_key = 1
        self._number = dict.fromkeys(self._nodes, 0)
        self.length = random.randint(15, 70)

    def first(self) -> list[Step]:
        """The start of all nodes."""
        return [self._started(name) for name in self._nodes]

    def _started(self, name: str, stops: int | None = None) -> Start:
        self._number[name] += 1
        return Start(f"{name}{self._number[name]}", stops)

    def next(self, simulation: Simulation) -> Step:
        """A step that makes sense now."""
        alive = [process for process in simulation.processes.values() if process.alive]
        makers: dict[str, Callable[[], Step | None]] = {
            "post": lambda: self._post(alive),
            "go": lambda: self._go(alive, resumed=False),
            "resume": lambda: self._go(alive, resumed=True),
            "pass": lambda: self._pass(alive, [0.5, 2.0, 5.0, 8.0]),
            "lapse": lambda: self._pass(alive, [16.0, 22.0, 40.0]),
            "kill": lambda: Kill(self._random.choice(alive).label) if alive else None,
            "start": lambda: self._start(alive),
            "leave": lambda: self._leave(alive),
            "outage": lambda: Outage(begins=not simulation.down),
            "jump": lambda: (
                Jump(self._random.choice(alive).label, self._random.choice([-3600.0, -20.0, 20.0, 3600.0]))
                if alive
                else None
            ),
            "change": lambda: self._change(alive),
        }
        weights = dict(self._weights)
        if simulation.down:
            weights["outage"] = 6.0
        while True:
            [kind] = self._random.choices(list(weights), list(weights.values()))
            step = makers[kind]()
            if step is not None:
                return step

    def _stops(self) -> int | None:
        return self._random.choice([None, None, 1, 2, 3, 5, 8])

    def _fault(self) -> Fault:
        if self._random.random() >= self._fault_rate:
            return Fault.NONE
        return self._random.choice([Fault.BROKEN, Fault.COMMIT_FAILED, Fault.COMMIT_LOST, Fault.COMMIT_LOST])

    def _post(self, alive: list[Process]) -> Step | None:
        if not alive or self._next_key > 60:
            return None
        random = self._random
        count = random.choice([1, 1, 2, 4])
        keys = tuple(range(self._next_key, self._next_key + count))
        self._next_key += count
        face = random.choice(self._settings.faces)
        return Post(
            random.choice(alive).label,
            face,
            keys,
            Behaviour(
                fails=random.randint(1, 4) if random.random() < self._failing else 0,
                boundaries=random.choice([0, 1, 1, 3]),
                poison=random.random() < self._poisonous,
            ),
            random.choice([Ending.OWN, Ending.OWN, Ending.COMMIT, Ending.ROLLBACK, Ending.SAVEPOINT]),
            delay=random.choice([0.0, 0.0, 3.0, 30.0, 100.0]) if face == "service" else 0.0,
            stops=self._stops(),
            fault=self._fault(),
        )

    def _go(self, alive: list[Process], *, resumed: bool) -> Step | None:
        tasks = [
            (process.label, name)
            for process in alive
            for name in (process.busy() if resumed else process.turns())
            if resumed or name not in {"beat", "reap"} or self._random.random() < 0.4
        ]
        if not tasks:
            return None
        label, name = self._random.choice(tasks)
        return Go(label, name, self._stops(), self._fault())

    def _pass(self, alive: list[Process], lengths: list[float]) -> Step:
        random = self._random
        sleepy = random.random() < 0.3
        awake = tuple(process.label for process in alive if not sleepy or random.random() < 0.6)
        return Pass(random.choice(lengths), awake)

    def _start(self, alive: list[Process]) -> Step | None:
        names = {process.node_name for process in alive}
        dead = [name for name in self._nodes if name not in names]
        # Under a name that is in use it is a fight, now and then.
        free = dead if dead and self._random.random() < 0.8 else list(self._nodes)
        if len(alive) >= 5:
            return None
        return self._started(self._random.choice(free), self._stops())

    def _leave(self, alive: list[Process]) -> Step | None:
        joined = [process for process in alive if process.node is not None]
        return Leave(self._random.choice(joined).label, self._stops(), self._fault()) if joined else None

    def _change(self, alive: list[Process]) -> Step | None:
        if not alive:
            return None
        random = self._random
        face = random.choice(self._settings.faces)
        what = random.choice(["truncate", "retry", "remove"])
        key = random.randint(1, max(1, self._next_key - 1))
        return Change(random.choice(alive).label, face, what, key, self._stops(), self._fault())
