"""Schedules insert what a model of a few lines inserts, whatever is called in whatever order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import pytest
from hypothesis import Phase
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from tests import requirements as needs
from tests.contract.work_queue.finished import date_of
from tests.contract.work_queue.model import Machine, run
from tests.contract.work_queue.planted_in_schedules import BUGS
from work_queue.task import Task

QUEUES = ("a", "b")
SOON = timedelta(seconds=0.25)
"""Tasks by hand arrive between the dates of schedules, so that each has its place."""


@dataclass(frozen=True)
class Known:
    """A schedule of the model."""

    every: timedelta
    next_due: datetime


class ScheduleMachine(Machine):
    """Claims of queues that have a schedule, or none, and other tasks."""

    def __init__(self) -> None:
        super().__init__()
        self.known = dict[str, Known]()
        self.tasks: dict[str, list[tuple[datetime, str]]] = {queue: [] for queue in QUEUES}
        for queue in QUEUES:  # drawn at random, few would meet in time
            self._recur(queue, 1)
            self._insert(queue)

    @rule(queue=st.sampled_from(QUEUES), seconds=st.sampled_from([1, 3, 10]))
    def recur(self, queue: str, seconds: int) -> None:
        self._recur(queue, seconds)

    def _recur(self, queue: str, seconds: int) -> None:
        every = timedelta(seconds=seconds)
        if queue not in self.known or self.known[queue].every != every:
            self.known[queue] = Known(every, self.clock.now() + every)
        assert self.work.recur(queue, "beat", every=every).next_due == self.known[queue].next_due

    @rule(queue=st.sampled_from(QUEUES))
    def stop(self, queue: str) -> None:
        stopped = self.work.stop_recurring(queue, "beat")
        assert stopped == (self.known.pop(queue, None) is not None)

    @rule(queue=st.sampled_from(QUEUES))
    def insert(self, queue: str) -> None:
        self._insert(queue)

    def _insert(self, queue: str) -> None:
        at = self.clock.now() - SOON
        self.work.insert(queue, "by hand", at=at)
        self.tasks[queue].append((at, "by hand"))

    @rule(
        queues=st.sampled_from([("a",), ("b",), ("a", "b")]),
        limit=st.integers(1, 3),
    )
    def claim(self, queues: Sequence[str], limit: int) -> None:
        for queue in queues:
            self._fire(queue)
        taken = self.work.claim_many(*queues, limit=limit, timeout_seconds=0)
        if not taken:
            assert not any(self.tasks[queue] for queue in queues)
            return
        tasks = sorted(self.tasks[taken[0].queue])
        assert [shown(task) for task in taken] == [one for _, one in tasks[:limit]]
        self.tasks[taken[0].queue] = tasks[limit:]
        self.work.modify(*(task.delete() for task in taken))

    def _fire(self, queue: str) -> None:
        one, now = self.known.get(queue), self.clock.now()
        if one is not None and one.next_due <= now:
            date = one.next_due + (now - one.next_due) // one.every * one.every
            self.tasks[queue].append((date, date.isoformat()))
            self.known[queue] = replace(one, next_due=date + one.every)

    @invariant()
    def the_schedules_are_the_models(self) -> None:
        told = {one.queue: (one.every, one.next_due) for one in self.work.recurring()}
        assert told == {queue: (one.every, one.next_due) for queue, one in self.known.items()}

    @invariant()
    def the_tasks_are_the_models(self) -> None:
        for queue in QUEUES:
            found = sorted((task.at, shown(task)) for task in self.work.tasks(queue))
            assert found == sorted(self.tasks[queue])


def shown(task: Task) -> str:
    return str(task.value or date_of(task).isoformat())


@pytest.mark.slow
@needs.any_database
def test_schedules_do_what_the_model_does(database_name: str) -> None:
    run(ScheduleMachine, 30, Phase.generate, Phase.shrink)


@pytest.mark.slow
@pytest.mark.timeout(600)
@needs.any_database
@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_in_schedules_is_caught(
    database_name: str, bug: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(*BUGS[bug])
    with pytest.raises(AssertionError):
        run(ScheduleMachine, 5_000, Phase.generate)  # it ends with the first that catches it
