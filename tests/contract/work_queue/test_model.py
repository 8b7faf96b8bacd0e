"""A work queue does what a model of a few lines does, whatever is called in whatever order."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from queue_core.opening import create_schema
from queue_core.runtime.manual_clock import ManualClock
from tests import requirements as needs
from work_queue.faults import DependencyError, FaultKind
from work_queue.modification import Change, Delete, Depend, Insert, Renew
from work_queue.refs import TaskRef
from work_queue.storage import task_changes, written
from work_queue.storage.moment import Moment
from work_queue.task import Task
from work_queue.work_queue import WorkQueue

QUEUES, IDS, CLAIMANTS = ("a", "b"), ("1", "2", "3", "4"), ("me", "you")


@dataclass(frozen=True)
class Known:
    """A task of the model."""

    queue: str
    version: int
    at: datetime
    claimant: str
    claims: int


@cache
def template() -> Path:
    """An SQLite file with all tables."""
    path = Path(mkdtemp()) / "template.db"
    create_schema(f"sqlite:///{path}")
    return path


class WorkMachine(RuleBasedStateMachine):
    """Calls with tasks, claimants and times of which some fit and some don't."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory()
        self.clock = ManualClock()
        path = Path(self.folder.name) / "model.db"
        shutil.copy(template(), path)
        self.work = WorkQueue(f"sqlite:///{path}", clock=self.clock)
        self.known = dict[str, Known]()

    def teardown(self) -> None:
        self.work.close()
        self.folder.cleanup()

    # -- what happens -----------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([0.5, 1, 5, 70]))
    def time_passes(self, seconds: float) -> None:
        self.clock.advance(seconds=seconds)

    @rule(
        queue=st.sampled_from(QUEUES),
        claimant=st.sampled_from(CLAIMANTS),
        lease=st.sampled_from([1.0, 10.0]),
        limit=st.integers(1, 2),
    )
    def claim(self, queue: str, claimant: str, lease: float, limit: int) -> None:
        taken = self.work.claim_many(
            queue, limit=limit, lease_seconds=lease, claimant=claimant, timeout_seconds=0
        )
        now = self.clock.now()
        available = [
            task_id for task_id, one in self.known.items() if one.queue == queue and one.at <= now
        ]
        assert len(taken) == min(limit, len(available))
        first = sorted((self.known[task_id].at, task_id) for task_id in available)[: len(taken)]
        assert [task.id for task in taken] == [task_id for _, task_id in first]
        for task in taken:
            one = self.known[task.id]
            self.known[task.id] = replace(
                one,
                version=one.version + 1,
                claims=one.claims + 1,
                at=now + timedelta(seconds=lease),
                claimant=claimant,
            )

    actions = st.lists(
        st.tuples(
            st.sampled_from(["insert", "change", "reset", "delete", "depend", "renew"]),
            st.sampled_from(IDS),
            st.sampled_from(QUEUES),
            st.sampled_from([0, 0, 0, 1]),
            st.sampled_from([0.0, 3.0, 90.0]),
        ),
        min_size=1,
        max_size=4,
        unique_by=lambda action: action[1],
    )

    @rule(actions=actions, claimant=st.sampled_from(CLAIMANTS))
    def modify(self, actions: list[tuple[str, str, str, int, float]], claimant: str) -> None:
        after, faults, calls = dict(self.known), list[tuple[FaultKind, str]](), list[Any]()
        for kind, task_id, queue, behind, delay in actions:
            one = self.known.get(task_id)
            version = max(0, (one.version if one else 0) - behind)
            ref = TaskRef(task_id, version, one.queue if one and not behind else "")
            calls.append(self._action(kind, ref, queue, delay))
            fault = self._fault(kind, one, version, claimant)
            if fault is not None:
                faults.append((fault, task_id))
            self._apply(after, (kind, task_id, queue, behind, delay), claimant)
        try:
            self.work.modify(*calls, claimant=claimant)
            refused = list[tuple[FaultKind, str]]()
        except DependencyError as error:
            refused = [(fault.kind, fault.ref.id) for fault in error.faults]  # type: ignore[union-attr]
        assert refused == faults
        if not faults:
            self.known = after

    def _action(self, kind: str, ref: TaskRef, queue: str, delay: float) -> Any:
        match kind:
            case "insert":
                return Insert(queue=queue, id=ref.id, delay=delay)
            case "delete":
                return Delete(ref)
            case "depend":
                return Depend(ref)
            case "renew":
                return Renew(ref, delay)
            case _:
                return Change(ref, queue, delay=delay, reset_claims=kind == "reset")

    def _fault(self, kind: str, one: Known | None, version: int, claimant: str) -> FaultKind | None:
        if kind == "insert":
            return FaultKind.INSERT if one else None
        wrong = {"delete": FaultKind.DELETE, "depend": FaultKind.DEPEND}.get(kind, FaultKind.CHANGE)
        if one is None or one.version != version:
            return wrong
        held = one.at > self.clock.now() and one.claimant not in {"", claimant}
        return FaultKind.CLAIM if held and kind != "depend" else None

    def _apply(
        self, after: dict[str, Known], action: tuple[str, str, str, int, float], claimant: str
    ) -> None:
        kind, task_id, queue, _, delay = action
        if kind == "delete":
            after.pop(task_id, None)
        if kind in {"delete", "depend"}:
            return
        at = self.clock.now() + timedelta(seconds=delay)
        holder = claimant if delay else ""
        one = after.get(task_id)
        if kind == "insert" or one is None:
            after[task_id] = Known(queue, 0, at, holder, 0)
            return
        claims = 0 if kind == "reset" else one.claims
        moved = one.queue if kind == "renew" else queue
        after[task_id] = Known(moved, one.version + 1, at, holder, claims)

    # -- what must hold ---------------------------------------------------------------------------

    @invariant()
    def the_tasks_are_the_models(self) -> None:
        def shown(task: Task) -> Known:
            return Known(task.queue, task.version, task.at, task.claimant, task.claims)

        assert {task.id: shown(task) for task in self.work.tasks(ids=IDS)} == self.known

    @invariant()
    def the_numbers_are_the_models(self) -> None:
        now, expected = self.clock.now(), dict[str, tuple[int, int, int, int, int]]()
        for queue in QUEUES:
            here = [one for one in self.known.values() if one.queue == queue]
            if here:
                claimed = sum(one.at > now and one.claims > 0 for one in here)
                future = sum(one.at > now and one.claims == 0 for one in here)
                available = sum(one.at <= now for one in here)
                most = max(one.claims for one in here)
                expected[queue] = len(here), claimed, available, future, most
        assert {
            one.queue: (one.tasks, one.claimed, one.available, one.future, one.max_claims)
            for one in self.work.queue_stats()
        } == expected


def run(examples: int, *phases: Phase) -> None:
    run_state_machine_as_test(
        WorkMachine,
        settings=settings(
            max_examples=examples,
            phases=phases,
            database=None,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


@needs.any_database
def test_it_does_what_the_model_does(database_name: str) -> None:
    run(15, Phase.generate, Phase.shrink)


# -- bugs that are planted ------------------------------------------------------------------------


@contextmanager
def changed(patch: pytest.MonkeyPatch, target: Any, name: str, value: Any) -> Iterator[None]:
    with patch.context() as inside:
        inside.setattr(target, name, value)
        yield


def _no_holder_is_asked(_moment: Moment, _row: object) -> bool:
    return False


def _holder_stays(moment: Moment, _arrival: datetime) -> str:
    return moment.claimant


def _versions_are_not_asked(self: Any, action: Any, moment: Moment) -> FaultKind | None:
    row = self._rows.get(action.task.id)
    if row is None:
        return task_changes.FAULTS[type(action)]
    return FaultKind.CLAIM if moment.held_by_another(row) else None


_changed_columns = task_changes.TaskChanges._changed
_count = written.WrittenTasks.count


def _version_stays(self: Any, place: int, action: Any, moment: Moment) -> dict[str, Any]:
    columns = _changed_columns(self, place, action, moment)
    return columns | {"version": columns["version"] - 1}


def _removals_are_not_counted(self: Any, row: Any, moment: Moment, amount: int) -> None:
    if amount > 0:
        _count(self, row, moment, amount)


def _minutes_are_not_counted(self: Any, row: Any, moment: Moment, amount: int) -> None:
    self._counts[row.queue, None] += amount


BUGS: dict[str, tuple[Any, str, Any]] = {
    "no holder is asked": (Moment, "held_by_another", _no_holder_is_asked),
    "a released task keeps its holder": (Moment, "holder", _holder_stays),
    "versions are not asked": (task_changes.TaskChanges, "_judge", _versions_are_not_asked),
    "a change keeps the version": (task_changes.TaskChanges, "_changed", _version_stays),
    "removals are not counted": (written.WrittenTasks, "count", _removals_are_not_counted),
    "minutes are not counted": (written.WrittenTasks, "count", _minutes_are_not_counted),
}


@pytest.mark.slow
@needs.any_database
@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_caught(
    database_name: str, bug: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with changed(monkeypatch, *BUGS[bug]), pytest.raises(AssertionError):
        run(100, Phase.generate)
