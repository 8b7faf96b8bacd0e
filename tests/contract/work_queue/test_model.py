"""A work queue does what a model of a few lines does, whatever is called in whatever order."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import Phase
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from tests import requirements as needs
from tests.contract.work_queue.model import CLAIMANTS, Machine, run
from tests.contract.work_queue.planted_in_tasks import BUGS
from tests.contract.work_queue.services import Services
from work_queue.faults import DependencyError, FaultKind
from work_queue.modification import Change, Delete, Depend, Insert, Renew, Replay
from work_queue.refs import TaskRef
from work_queue.task import Task
from work_queue.work_queue import WorkQueue

QUEUES, IDS = ("a", "b"), ("1", "2", "3", "4")
KINDS = ("insert", "change", "fail", "reset", "delete", "depend", "renew", "renew", "replay")


@dataclass(frozen=True)
class Known:
    """A task of the model."""

    queue: str
    version: int
    at: datetime
    claimant: str
    claims: int
    value: int
    attempt: int = 0
    failed_in: str = ""


@dataclass(frozen=True)
class Drawn:
    """An action of a modification, before the model says what it names."""

    kind: str
    id: str
    queue: str = "a"
    version: str = "newest"
    named: str = "right"
    delay: float = 0.0
    value: int = 0


class WorkMachine(Machine):
    """Calls with tasks, claimants and times of which some fit and some don't."""

    def __init__(self) -> None:
        super().__init__()
        self.known = dict[str, Known]()
        self.kept = {"a"}
        self.work.keep_history("a")
        self.past = list[tuple[str, str, int, int, str]]()
        self.limits = dict[str, int]()

    # -- what happens -----------------------------------------------------------------------------

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
        assert len(taken) == min(limit, len(available), self._places(queue))
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

    def _places(self, queue: str) -> int:
        here = [one for one in self.known.values() if one.queue == queue and one.claims]
        claimed = sum(one.at > self.clock.now() for one in here)
        return max(0, self.limits[queue] - claimed) if queue in self.limits else len(IDS)

    @rule(queue=st.sampled_from(QUEUES), concurrency=st.sampled_from([1, 2, None]))
    def limit(self, queue: str, concurrency: int | None) -> None:
        if concurrency is None:
            assert self.work.unlimit(queue) == (self.limits.pop(queue, None) is not None)
        else:
            self.work.limit(queue, concurrency=concurrency)
            self.limits[queue] = concurrency

    @precondition(lambda self: self._held())
    @rule(data=st.data(), claimant=st.sampled_from(CLAIMANTS))
    def limit_what_is_held(self, data: st.DataObject, claimant: str) -> None:
        """A limit that comes after a claim: drawn at random, few do while it is held."""
        queue = self.known[data.draw(st.sampled_from(self._held()))].queue
        self.limit(queue=queue, concurrency=1)
        if len(self.known) < len(IDS):
            self.insert(queue=queue, delay=0.0)
        self.claim(queue=queue, claimant=claimant, lease=1.0, limit=1)

    actions = st.lists(
        st.builds(
            Drawn,
            st.sampled_from(KINDS),
            st.sampled_from(IDS),
            queue=st.sampled_from(QUEUES),
            version=st.sampled_from(["newest", "newest", "newest", "old"]),
            named=st.sampled_from(["", "right", "right", "wrong"]),
            delay=st.sampled_from([0.0, 3.0, 90.0]),
            value=st.integers(0, 9),
        ),
        min_size=1,
        max_size=4,
        unique_by=lambda drawn: drawn.id,
    )

    @rule(actions=actions, claimant=st.sampled_from(CLAIMANTS))
    def modify(self, actions: list[Drawn], claimant: str) -> None:
        self._modify(actions, claimant)

    @precondition(lambda self: self._held())
    @rule(data=st.data(), seconds=st.sampled_from([0.0, 2.0, 90.0]))
    def renew(self, data: st.DataObject, seconds: float) -> None:
        """A renewal that fits, mostly: drawn at random, few do."""
        task_id = data.draw(st.sampled_from(self._held()))
        claimant = data.draw(st.sampled_from([self.known[task_id].claimant, *CLAIMANTS]))
        self._modify([Drawn("renew", task_id, delay=seconds)], claimant)

    @precondition(lambda self: len(self.known) < len(IDS))
    @rule(queue=st.sampled_from(QUEUES), delay=st.sampled_from([0.0, 0.0, 3.0]))
    def insert(self, queue: str, delay: float) -> None:
        """An insert that fits: drawn at random, few tasks would ever be there."""
        free = next(one for one in IDS if one not in self.known)
        self._modify([Drawn("insert", free, queue=queue, delay=delay, value=7)], "you")

    @precondition(lambda self: self.known)
    @rule(data=st.data(), kind=st.sampled_from(["delete", "fail"]), queue=st.sampled_from(QUEUES))
    def end(self, data: st.DataObject, kind: str, queue: str) -> None:
        """A delete, or a failure, that fits, mostly."""
        task_id = data.draw(st.sampled_from(sorted(self.known)))
        claimant = data.draw(st.sampled_from([self.known[task_id].claimant or "me", *CLAIMANTS]))
        self._modify([Drawn(kind, task_id, queue=queue)], claimant)

    def _held(self) -> list[str]:
        return [task_id for task_id, one in self.known.items() if one.claims and one.claimant]

    def _modify(self, actions: list[Drawn], claimant: str) -> None:
        after, faults, calls = dict(self.known), list[tuple[FaultKind, str]](), list[Any]()
        ended = list[tuple[str, str, int, int, str]]()
        for drawn in actions:
            one = self.known.get(drawn.id)
            ref = self._ref(drawn, one)
            calls.append(self._action(drawn, ref, one))
            fault = self._fault(drawn.kind, one, ref, claimant)
            if fault is not None:
                faults.append((fault, drawn.id))
            if drawn.kind == "delete" and one is not None and one.queue in self.kept:
                ended.append((drawn.id, one.queue, one.version, one.value, claimant))
            self._apply(after, drawn, claimant)
        try:
            self.work.modify(*calls, claimant=claimant)
            refused = list[tuple[FaultKind, str]]()
        except DependencyError as error:
            refused = [(fault.kind, fault.ref.id) for fault in error.faults]  # type: ignore[union-attr]
        assert refused == faults
        if not faults:
            self.known = after
            self.past += ended

    def _ref(self, drawn: Drawn, one: Known | None) -> TaskRef:
        if one is None:
            return TaskRef(drawn.id, 0, "")
        other = next(queue for queue in QUEUES if queue != one.queue)
        version = one.version if drawn.version == "newest" else max(0, one.version - 1)
        return TaskRef(drawn.id, version, {"right": one.queue, "wrong": other}.get(drawn.named, ""))

    def _action(self, drawn: Drawn, ref: TaskRef, one: Known | None) -> Any:
        match drawn.kind:
            case "insert":
                return Insert(queue=drawn.queue, id=ref.id, delay=drawn.delay, value=drawn.value)
            case "delete":
                return Delete(ref)
            case "depend":
                return Depend(ref)
            case "renew":
                return Renew(ref, drawn.delay)
            case "replay":
                return Replay(ref, drawn.queue)
            case "fail":
                tried = one.attempt + 1 if one else 1
                return Change(ref, drawn.queue, drawn.value, attempt=tried, err="it broke")
            case _:
                reset = drawn.kind == "reset"
                return Change(ref, drawn.queue, drawn.value, delay=drawn.delay, reset_claims=reset)

    def _fault(self, kind: str, one: Known | None, ref: TaskRef, claimant: str) -> FaultKind | None:
        if kind == "insert":
            return FaultKind.INSERT if one else None
        wrong = {"delete": FaultKind.DELETE, "depend": FaultKind.DEPEND}.get(kind, FaultKind.CHANGE)
        if one is None or one.version != ref.version or ref.queue not in {"", one.queue}:
            return wrong
        held = one.at > self.clock.now() and one.claimant not in {"", claimant}
        return FaultKind.CLAIM if held and kind != "depend" else None

    def _apply(self, after: dict[str, Known], drawn: Drawn, claimant: str) -> None:
        if drawn.kind == "delete":
            after.pop(drawn.id, None)
        if drawn.kind in {"delete", "depend"}:
            return
        delay = 0.0 if drawn.kind in {"fail", "replay"} else drawn.delay
        at = self.clock.now() + timedelta(seconds=delay)
        holder = claimant if delay else ""
        one = after.get(drawn.id)
        if drawn.kind == "insert" or one is None:
            after[drawn.id] = Known(drawn.queue, 0, at, holder, 0, drawn.value)
            return
        later = replace(one, version=one.version + 1, at=at, claimant=holder)
        if drawn.kind == "replay":
            later = replace(later, queue=drawn.queue, claims=0, attempt=0, failed_in="")
        elif drawn.kind != "renew":
            fails = drawn.kind == "fail"
            claims = 0 if drawn.kind == "reset" else one.claims
            origin = one.failed_in or (one.queue if one.queue != drawn.queue else "")
            later = replace(
                later,
                queue=drawn.queue,
                value=drawn.value,
                claims=claims,
                attempt=one.attempt + 1 if fails else 0,
                failed_in=origin if fails and origin != drawn.queue else "",
            )
        after[drawn.id] = later

    @rule(queue=st.sampled_from(QUEUES), keep=st.sampled_from([True, True, False]))
    def keep_history(self, queue: str, keep: bool) -> None:  # noqa: FBT001 -- it is drawn
        self.work.keep_history(queue, keep=keep)
        (self.kept.add if keep else self.kept.discard)(queue)

    @precondition(lambda self: self.past)
    @rule()
    def truncate(self) -> None:
        self.clock.advance(seconds=2)
        assert self.work.truncate_history(before=self.clock.now()) == len(self.past)
        self.past.clear()

    @precondition(lambda self: any(one.failed_in for one in self.known.values()))
    @rule(queue=st.sampled_from(QUEUES), claimant=st.sampled_from(CLAIMANTS))
    def replay_failed(self, queue: str, claimant: str) -> None:
        failed = {
            task_id: one
            for task_id, one in self.known.items()
            if one.queue == queue and one.failed_in
        }
        done = self.work.replay_failed(queue, claimant=claimant)
        free = {
            task_id: one
            for task_id, one in failed.items()
            if one.at <= self.clock.now() or one.claimant in {"", claimant}
        }
        assert (done.matched, done.replayed) == (len(failed), len(free))
        for task_id, one in free.items():
            drawn = Drawn("replay", task_id, queue=one.failed_in)
            self._apply(self.known, drawn, claimant)

    # -- what must hold ---------------------------------------------------------------------------

    @invariant()
    def the_tasks_are_the_models(self) -> None:
        def shown(task: Task) -> Known:
            return Known(
                task.queue,
                task.version,
                task.at,
                task.claimant,
                task.claims,
                task.value,
                task.attempt,
                task.failed_in,
            )

        assert {task.id: shown(task) for task in self.work.tasks(ids=IDS)} == self.known

    @invariant()
    def the_history_is_the_models(self) -> None:
        assert [
            (one.id, one.queue, one.version, one.value, one.finished_by)
            for one in reversed(self.work.finished_tasks(ids=IDS))
        ] == self.past

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


@pytest.mark.slow
@needs.any_database
def test_it_does_what_the_model_does(database_name: str) -> None:
    run(WorkMachine, 15, Phase.generate, Phase.shrink)


@pytest.mark.parametrize("place", ["http", "grpc"], indirect=True)
def test_it_does_so_over_a_wire(place: str, services: Services) -> None:
    class ServedMachine(WorkMachine):
        def reached(self, stored: WorkQueue) -> WorkQueue:
            return WorkQueue(getattr(services, place)(stored))

    run(ServedMachine, 5, Phase.generate)


# -- bugs that are planted ------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.timeout(600)
@needs.any_database
@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_caught(
    database_name: str, bug: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(*BUGS[bug])
    with pytest.raises(AssertionError):
        run(WorkMachine, 5_000, Phase.generate)  # it ends with the first that catches it
