"""Threads of the simulation.

They are greenlets that switch at boundaries alone, so that a list of steps decides everything.

A boundary is where a real thread could lose its turn and something else could matter: around
transactions, in handlers, and wherever the engine waits. Time stands still unless a step moves it,
but for a tick at each boundary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from types import ModuleType
from typing import Any

from greenlet import getcurrent, greenlet  # type: ignore[import-untyped]

TICK = 1e-6


class Killed(BaseException):
    """Unwinds the threads of a process that is gone: none of it reaches the database."""


@dataclass(eq=False)
class Task:
    """One thread of a simulated process, from one boundary to the next. `owner` is that process."""

    name: str
    owner: Any
    work: Callable[[], None]
    place: str = "its start"
    fault: str = ""
    """What happens at the next boundary of the database that it can happen at."""
    not_before: float = -inf
    """The time that it waits for."""
    keys: list[int] = field(default_factory=list)
    """What it is posting."""
    stuck: bool = False
    """It waits for a lock."""
    _greenlet: Any = None

    @property
    def done(self) -> bool:
        """Whether it has come to its end."""
        return self._greenlet is not None and bool(self._greenlet.dead)


class Scheduler:
    """Switches between tasks. `time` is the common monotonic time of all machines, in seconds."""

    def __init__(self) -> None:
        self.time = 0.0
        self.current: Task | None = None

    def pause(self, place: str, *, not_before: float = -inf, stuck: bool = False) -> None:
        """A boundary: called by what a task runs, returns when the task goes on.

        Nothing outside of tasks.
        """
        task = self.current
        if task is None:
            return
        if not task.owner.alive:
            raise Killed
        self.time += TICK
        task.place, task.not_before, task.stuck = place, not_before, stuck
        getcurrent().parent.switch()

    def go(self, task: Task, stops: int | None = None) -> None:
        """Let a task run through `stops` boundaries (None: to its end), as far as it can."""
        if task.not_before > self.time:
            return
        while not task.done:
            if task._greenlet is None:
                task._greenlet = greenlet(task.work)
            self._switch(task, task._greenlet.switch)
            if self._waits(task):
                return
            if stops is not None:
                stops -= 1
                if stops <= 0:
                    return

    def _waits(self, task: Task) -> bool:
        return task.done or task.stuck or task.not_before > self.time

    def kill(self, task: Task) -> None:
        """Unwind a task."""
        if task._greenlet is not None and not task.done:
            running = task._greenlet
            self._switch(task, lambda: running.throw(Killed))
            assert task.done, f"{task.name} outlives its process at {task.place}"

    def _switch(self, task: Task, switch: Callable[[], Any]) -> None:
        before, self.current = self.current, task
        task.owner.resumed()
        try:
            switch()
        except Killed:
            pass
        finally:
            self.current = before

    def ident(self) -> int:
        """In place of `threading.get_ident`."""
        return id(self.current)


class Lock:
    """In place of `threading.Lock` where the engine holds one across a boundary.

    A real one would stop every greenlet.
    """

    def __init__(self, scheduler: Scheduler, place: str) -> None:
        self._scheduler = scheduler
        self._place = place
        self._held = False

    def __enter__(self) -> None:
        while self._held:
            assert self._scheduler.current is not None, (
                f"{self._place}: held by a thread, wanted outside of all"
            )
            self._scheduler.pause(self._place, stuck=True)
        self._held = True

    def __exit__(self, *_: object) -> None:
        self._held = False


class Replaced:
    """A module with some of its names replaced."""

    def __init__(self, module: ModuleType, **names: Any) -> None:
        self.__dict__.update(names)
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)
