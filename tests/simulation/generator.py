"""Chooses steps at random, by what there is to do.

Each seed has its moods, so that seeds differ in kind.

Moods (a weight for each kind of step, often zero) make some seeds calm and others wild: what needs
two faults of one kind in a row is rare when all kinds are always mixed ("swarm testing", Groce et
al. 2012).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

from stickybus import Mode
from tests.simulation.process import Process
from tests.simulation.settings import Settings
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
    Link,
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
    "scene": 2.5,
}
_CALM = {"post", "go", "resume", "pass", "start", "scene"}


def settings_of(random: Random) -> Settings:
    """The settings of one seed."""
    modes = [Mode.STICKY_EVENTS, Mode.STICKY_EVENTS, Mode.STICKY_POLLING, Mode.POLLING]
    return Settings(
        faces=random.choice([("bus",), ("bus",), ("bus",), ("service",), ("bus", "service")]),
        mode=random.choice(modes),
        subscribers=random.choice([1, 1, 2]),
        exactly_once=int(random.random() < 0.25),
        max_run_seconds=random.choice([None, None, 4.0]),
        queue_capacity=random.choice([4, 8, 30]),
        long_leases=random.choice(["", "", "", "a", "b", "ac"]),
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
        self._links = random.choice(
            [
                [Link.NONE],
                [Link.NONE, Link.KEY],
                [Link.ORDER],
                [Link.NONE, Link.AFTER],
                [Link.NONE, Link.ORDER, Link.ORDER_AFTER],
                list(Link),
            ]
        )
        self._next_key = 1
        self._number = dict.fromkeys(self._nodes, 0)
        self._scene = list[Step]()
        self.length = random.randint(15, 70)

    def first(self) -> list[Start]:
        """The start of all nodes."""
        return [self._started(name) for name in self._nodes]

    def _started(self, name: str, stops: int | None = None) -> Start:
        self._number[name] += 1
        return Start(f"{name}{self._number[name]}", stops)

    def next(self, simulation: Simulation) -> Step:
        """A step that makes sense now."""
        if self._scene and self._random.random() < 0.9:
            return self._scene.pop(0)
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
                Jump(
                    self._random.choice(alive).label,
                    self._random.choice([-300.0, -20.0, 20.0, 300.0]),
                )
                if alive
                else None
            ),
            "change": lambda: self._change(alive),
            "limit": lambda: self._limit(alive),
            "scene": lambda: self._begin_scene(alive, limited=simulation.is_limited),
        }
        weights = dict(self._weights)
        if simulation.down:
            weights["outage"] = 6.0
        if simulation.is_limited:
            weights["limit"], weights["scene"] = 6.0, 9.0
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
        return self._random.choice(
            [Fault.BROKEN, Fault.COMMIT_FAILED, Fault.COMMIT_LOST, Fault.COMMIT_LOST]
        )

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
            random.choice(
                [Ending.OWN, Ending.OWN, Ending.COMMIT, Ending.ROLLBACK, Ending.SAVEPOINT]
            ),
            delay=random.choice([0.0, 0.0, 3.0, 12.0, 45.0]) if face == "service" else 0.0,
            stops=self._stops(),
            fault=self._fault(),
            link=random.choice(self._links),
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
        # Turns that find something to do, rather than those that don't.
        busy = [task for task in tasks if "handler" in task[1] or "finish" in task[1]]
        label, name = self._random.choice(busy if busy and self._random.random() < 0.5 else tasks)
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
        return (
            Leave(self._random.choice(joined).label, self._stops(), self._fault())
            if joined
            else None
        )

    def _change(self, alive: list[Process]) -> Step | None:
        if not alive:
            return None
        random = self._random
        face = random.choice(self._settings.faces)
        what = random.choice(
            ["truncate", "retry", "remove", "pause", "pause", "pause one handler", "resume"]
        )
        key = random.randint(1, max(1, self._next_key - 1))
        return Change(random.choice(alive).label, face, what, key, self._stops(), self._fault())

    def _limit(self, alive: list[Process]) -> Step | None:
        """Raise the limit of the bus, lower it, or take it away."""
        if not alive:
            return None
        random = self._random
        most = random.choice([1, 1, 2, 2, 3, 3, 5, 5, 5, 0])
        return Change(
            random.choice(alive).label, "bus", "limit", most, self._stops(), self._fault()
        )

    # -- scenes: orders of steps that are rare by chance ------------------------------------------

    def _begin_scene(self, alive: list[Process], *, limited: bool) -> Step | None:
        """Plan one; other steps may come between its own."""
        joined = [process for process in alive if process.node is not None]
        if not joined or self._next_key > 60 or self._scene:
            return None
        hero = self._random.choice(joined)
        others = [process for process in joined if process is not hero]
        scene = self._random.choice(
            [
                self._zombie,
                self._overrun,
                self._lost_retry,
                self._comeback,
                self._restart,
                self._uncommitted,
                *([self._places_ahead] * 12 if limited else []),
            ]
        )
        self._scene = scene(hero, self._random.choice(others) if others else hero)
        return self._scene.pop(0)

    def _begun(self, label: str, *, fails: int = 0, boundaries: int = 2) -> list[Step]:
        """A post whose handler has begun."""
        key, face = self._next_key, self._random.choice(self._settings.faces)
        self._next_key += 1
        return [
            Post(label, face, (key,), Behaviour(fails=fails, boundaries=boundaries), Ending.OWN),
            Go(label, f"{face}.claim"),
            Go(label, f"{face}.handler0", 1),
        ]

    def _rerun(self, label: str, handler: int = 0, stops: int | None = 1) -> list[Step]:
        return [
            step
            for face in self._settings.faces
            for step in (Go(label, f"{face}.claim"), Go(label, f"{face}.handler{handler}", stops))
        ]

    def _written(self, label: str, fault: Fault = Fault.NONE) -> list[Step]:
        return [Go(label, f"{face}.finish", None, fault) for face in self._settings.faces]

    def _zombie(self, hero: Process, other: Process) -> list[Step]:
        """A node is frozen for longer than its lease while a handler runs, and comes back."""
        back = [Go(hero.label, "beat", self._stops())] if self._random.random() < 0.7 else []
        return [
            *self._begun(hero.label),
            Post(
                hero.label,
                self._settings.faces[0],
                self._key(),
                Behaviour(boundaries=1),
                Ending.OWN,
            ),
            Pass(32.0, (other.label,) if other is not hero else ()),
            *self._rerun(other.label),
            *back,
            *(
                Go(hero.label, f"{face}.handler{number}")
                for face in self._settings.faces
                for number in (0, 1)
            ),
            *self._written(hero.label),
            *self._rerun(other.label, stops=None),
        ]

    def _overrun(self, hero: Process, other: Process) -> list[Step]:
        """A handler runs past its own limit, if it has one, and ends when its entry runs again."""
        return [
            *self._begun(hero.label, boundaries=3),
            Pass(9.0, tuple({hero.label: 0, other.label: 0})),
            *(Go(hero.label, f"{face}.claim") for face in self._settings.faces),
            *self._written(hero.label),
            *self._rerun(hero.label, 1),
            *(Go(hero.label, f"{face}.handler0") for face in self._settings.faces),
            *self._written(hero.label),
            *self._rerun(hero.label),
        ]

    def _lost_retry(self, hero: Process, _other: Process) -> list[Step]:
        """A retry is written, its answer lost, and written again when the entry runs already."""
        return [
            *self._begun(hero.label, fails=1),
            *(Go(hero.label, f"{face}.handler0") for face in self._settings.faces),
            *self._written(
                hero.label, self._random.choice([Fault.COMMIT_LOST, Fault.COMMIT_FAILED])
            ),
            Pass(9.0, (hero.label,)),
            *self._rerun(hero.label),
            *self._written(hero.label),
            Pass(9.0, (hero.label,)),
            *self._rerun(hero.label, 1),
        ]

    def _comeback(self, hero: Process, other: Process) -> list[Step]:
        """A reaper is about to move what a dead node left when the node's name comes back."""
        stops = self._random.choice([3, 4, 5, 6, 7, 8])
        again = self._started(hero.node_name)
        return [
            *self._begun(hero.label),
            Kill(hero.label),
            Pass(self._random.choice([14.0, 16.0, 19.0]), (other.label,)),
            Go(other.label, "reap", stops),
            again,
            *self._begun(again.process),
            Go(other.label, "reap"),
            *self._rerun(other.label),
        ]

    def _restart(self, hero: Process, _other: Process) -> list[Step]:
        """A node dies while a handler runs, after failures or not, and is started again at once."""
        again = self._started(hero.node_name)
        return [
            *self._begun(hero.label, fails=self._random.choice([0, 2])),
            *(Go(hero.label, f"{face}.handler0") for face in self._settings.faces),
            *self._written(hero.label),
            *self._rerun(hero.label),
            Kill(hero.label),
            again,
            *self._rerun(again.process),
        ]

    def _uncommitted(self, hero: Process, _other: Process) -> list[Step]:
        """A post is about to commit, and fails to, while the pool looks for work."""
        face, [key] = self._random.choice(self._settings.faces), self._key()
        return [
            Post(hero.label, face, (key,), Behaviour(), Ending.OWN, stops=2),
            Go(hero.label, f"{face}.handler0"),
            Go(
                hero.label,
                f"post {key}",
                None,
                self._random.choice([Fault.COMMIT_FAILED, Fault.COMMIT_LOST]),
            ),
            *self._rerun(hero.label),
        ]

    def _places_ahead(self, hero: Process, other: Process) -> list[Step]:
        """A node has reserved places of a limit, and claims by them in doubt or beside others."""
        random = self._random
        labels = (hero.label, other.label)
        claim = Go(hero.label, "bus.claim")
        most = len(self._nodes) * random.choice([2, 3, 4])
        changed: list[Step] = [Change(other.label, "bus", "limit", random.choice([1, 2, 3]))]
        beside: list[Step] = [
            self._waiting(other, 2),
            Go(other.label, "bus.claim"),
            Go(other.label, "bus.claim"),
        ]
        return [
            Change(other.label, "bus", "limit", most),
            Pass(2.0, labels),
            claim,
            self._waiting(hero, 1),
            claim,
            Go(hero.label, "bus.handler0", 1),
            self._waiting(hero, 3),
            *random.choice([[], [], changed]),
            replace(claim, fault=random.choice([Fault.NONE, Fault.COMMIT_LOST])),
            *random.choice([[], changed, beside]),
            self._waiting(hero, 3),
            Pass(2.0, labels),
            claim,
            claim,
        ]

    def _waiting(self, process: Process, count: int) -> Post:
        """A post of entries that wait for a claim."""
        keys = tuple(key for _ in range(count) for key in self._key())
        return Post(process.label, "bus", keys, Behaviour(boundaries=2), Ending.OWN)

    def _key(self) -> tuple[int, ...]:
        self._next_key += 1
        return (self._next_key - 1,)
