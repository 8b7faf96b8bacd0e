"""Tasks: inserted, claimed, changed, deleted and listed."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from queue_core.errors import PayloadNotSerialisableError
from queue_core.runtime.manual_clock import ManualClock
from tests.contract.work_queue.backends import backend_of
from tests.contract.work_queue.claiming import HOUR, claimed, faults
from work_queue.faults import Fault, FaultKind
from work_queue.modification import Delete, Depend, Insert, Renew
from work_queue.refs import TaskRef
from work_queue.values import UNREAD
from work_queue.work_queue import WorkQueue


def test_scenario_01_an_empty_queue_gives_nothing_and_is_not_listed(work: WorkQueue) -> None:
    assert work.try_claim("a") is None
    assert work.queues() == {}


@pytest.mark.served_everywhere
def test_scenario_02_a_task_is_claimed_when_it_has_arrived(
    work: WorkQueue, clock: ManualClock
) -> None:
    work.modify(Insert(queue="a", value="ready"), Insert(queue="a", value="late", delay=2))
    task = work.claim("a")
    assert (task.value, task.version, task.claims, task.claimant) == ("ready", 1, 1, "me")
    assert work.try_claim("a") is None
    clock.advance(seconds=2)
    assert work.claim("a").value == "late"


def test_scenario_03_a_change_moves_a_task_to_another_queue(work: WorkQueue) -> None:
    task = work.insert("a", 1)
    [moved] = work.modify(task.change(queue="b")).changed
    assert (moved.id, moved.queue, moved.version, moved.claimant) == (task.id, "b", 1, "")
    assert work.tasks("a") == []
    assert work.tasks("b") == [moved]


def test_scenario_04_a_change_with_a_delay_defers_a_task(
    work: WorkQueue, clock: ManualClock
) -> None:
    [task] = work.modify(work.insert("a").change(delay=1)).changed
    assert task.at == clock.now() + timedelta(seconds=1)
    assert work.try_claim("a") is None


def test_scenario_05_an_arrival_in_the_past_is_kept_and_comes_first(
    work: WorkQueue, clock: ManualClock
) -> None:
    work.insert("a", "second")
    old = work.insert("a", "first", at=clock.now() - timedelta(days=730))
    assert old.at == clock.now() - timedelta(days=730)
    assert claimed(work).value == "first"


@pytest.mark.parametrize("queue", ["a", "b"])
def test_scenario_06_an_id_is_taken_in_every_queue(work: WorkQueue, queue: str) -> None:
    work.insert("a", id="one")
    [fault] = faults(work, Insert(queue=queue, id="one"))
    assert fault == Fault(FaultKind.INSERT, TaskRef("one", 0, "a"))


def test_scenario_07_what_exists_may_be_skipped(work: WorkQueue) -> None:
    one, other = work.insert("a", 1, id="one"), work.insert("a", 2)
    again = Insert(queue="b", value=3, id="one", skip_existing=True)
    assert work.modify(again).inserted == ()
    assert work.modify(again, other.delete()).inserted == ()
    assert work.tasks("a") == [one]


def test_scenario_08_tasks_are_read_by_ids_in_their_order(work: WorkQueue) -> None:
    work.modify(*(Insert(queue=queue, id=queue + name) for queue in "ab" for name in "12"))
    assert {task.id for task in work.tasks("a")} == {"a1", "a2"}
    assert [task.id for task in work.tasks("a", ids=["a2", "b1", "no", "a1"])] == ["a2", "a1"]
    assert [task.id for task in work.tasks(ids=["b2", "a1"])] == ["b2", "a1"]


def test_scenario_09_tasks_are_read_without_values(work: WorkQueue) -> None:
    work.modify(*(Insert(queue="a", value=value) for value in range(3)))
    full, bare = work.tasks("a"), work.tasks("a", with_values=False)
    assert [task.value for task in full] == [0, 1, 2]
    assert [task.value for task in bare] == [UNREAD] * 3
    assert [task.ref for task in full] == [task.ref for task in bare]
    with pytest.raises(PayloadNotSerialisableError, match="it was not read"):
        work.insert("a", bare[0].value)
    work.modify(bare[0].change(value="new"))
    assert {task.value for task in work.tasks("a")} == {"new", 1, 2}


@pytest.mark.parametrize("value", [{"a": [1]}, b"\0\1", None])
def test_a_change_of_a_task_without_its_value_leaves_it(work: WorkQueue, value: object) -> None:
    work.insert("a", value)
    other = work.insert("a", "other", delay=1)
    [bare] = work.tasks("a", limit=1, with_values=False)
    changed = work.modify(bare.change(queue="b", attempt=1, err="x"), other.change(value=5)).changed
    assert [task.value for task in changed] == [UNREAD, 5]
    [moved] = work.tasks("b")
    assert (moved.value, moved.attempt, moved.err, moved.failed_in) == (value, 1, "x", "a")
    assert moved.ref == changed[0].ref


@pytest.mark.parametrize("named", [TaskRef("no", 0), TaskRef("one", 7, "a")])
def test_scenario_10_a_delete_of_another_version_is_refused(
    work: WorkQueue, named: TaskRef
) -> None:
    task = work.insert("a", id="one")
    assert faults(work, Delete(named)) == [Fault(FaultKind.DELETE, named)]
    assert work.tasks("a") == [task]


def test_scenario_12_a_listing_stops_at_its_limit(work: WorkQueue) -> None:
    work.modify(*(Insert(queue="a") for _ in range(10)))
    assert len(work.tasks("a", claimant="me", limit=4)) == 4
    assert len(work.tasks("a", claimant="me", limit=50)) == 10
    assert len(work.tasks("a", limit=0)) == 10


def test_scenario_13_a_limit_counts_what_matches(work: WorkQueue) -> None:
    work.modify(*(Insert(queue="a") for _ in range(15)))
    assert len(work.claim_many("a", limit=10, claimant="other")) == 10
    mine = {task.id for task in work.claim_many("a", limit=5, lease_seconds=HOUR)}
    assert len(work.tasks("a", claimant="me", limit=3)) == 3
    assert {task.id for task in work.tasks("a", claimant="me", limit=50)} == mine


def test_scenario_14_a_claimant_sees_what_is_available_or_its_own(work: WorkQueue) -> None:
    work.modify(Insert(queue="a", value="mine", delay=5), Insert(queue="a", value="available"))
    work.modify(Insert(queue="a", value="other's", delay=5), claimant="other")
    seen = {task.value for task in work.tasks("a", claimant="me")}
    assert seen == {"mine", "available"}
    by_id = work.tasks(ids=[task.id for task in work.tasks("a")], claimant="me")
    assert {task.value for task in by_id} == seen


def test_scenario_16_a_task_is_found_in_its_own_queue_only(work: WorkQueue) -> None:
    task = work.insert("b")
    named = TaskRef(task.id, task.version, "a")
    for action, kind in {
        Delete(named): FaultKind.DELETE,
        Depend(named): FaultKind.DEPEND,
        Renew(named, 5): FaultKind.CHANGE,
    }.items():
        assert faults(work, action) == [Fault(kind, named)]
    assert work.tasks("b") == [task]
    work.modify(Delete(TaskRef(task.id, task.version)))
    assert work.tasks("b") == []


def test_scenario_32_a_change_keeps_claims_unless_it_resets_them(work: WorkQueue) -> None:
    work.insert("a")
    [kept] = work.modify(claimed(work).change()).changed
    assert kept.claims == 1
    [reset] = work.modify(claimed(work).change(reset_claims=True)).changed
    assert reset.claims == 0


@pytest.mark.served_everywhere
def test_scenario_33_all_that_is_at_fault_is_told_and_nothing_is_written(work: WorkQueue) -> None:
    work.insert("a", id="taken")
    changed, gone, depended, held = (work.insert("a", id=name) for name in "cgdh")
    work.modify(gone.delete())
    work.modify(changed.change(), depended.change())
    for task in work.claim_many("a", limit=9, claimant="other"):
        if task.id == "h":
            held = task
    before = work.tasks("a")
    found = faults(
        work,
        Insert(queue="a", id="taken"),
        changed.change(value=1),
        gone.delete(),
        depended.depend(),
        held.delete(),
        Insert(queue="a", value="good"),
    )
    assert [fault.kind for fault in found] == [*["INSERT", "CHANGE", "DELETE", "DEPEND", "CLAIM"]]
    assert [fault.ref.id for fault in found if isinstance(fault.ref, TaskRef)] == [
        *("taken", "c", "g", "d", "h")
    ]
    assert work.tasks("a") == before


@pytest.mark.served_everywhere
def test_scenario_34_nothing_is_inserted_beside_a_stale_dependency(work: WorkQueue) -> None:
    task = work.insert("a")
    work.modify(task.change())
    assert [fault.kind for fault in faults(work, task.depend(), Insert(queue="b"))] == ["DEPEND"]
    assert work.tasks("b") == []


def test_a_modification_may_only_check(work: WorkQueue) -> None:
    task = work.insert("a")
    work.modify(task.depend())
    assert work.tasks("a") == [task]


def test_scenario_90_an_id_stays_taken_when_its_task_moves(work: WorkQueue) -> None:
    task = work.insert("a", id="one")
    work.modify(task.change(queue="b"))
    [fault] = faults(work, Insert(queue="a", id="one"))
    assert fault.ref == TaskRef("one", 1, "b")
    work.modify(Delete(TaskRef("one", 1, "b")))
    assert work.insert("a", id="one").version == 0


@pytest.mark.served_everywhere
def test_tasks_are_read_page_by_page(work: WorkQueue) -> None:
    """Those of one modification have one arrival, so their ids are their order."""
    work.insert("a", id="0", delay=9)
    work.modify(*(Insert(queue="a", id=id_) for id_ in "3124"), Insert(queue="b"))
    found, after = list[str](), None
    while page := work.tasks("a", limit=2, after=after):
        found += [task.id for task in page]
        after = page[-1].place
    assert found == ["1", "2", "3", "4", "0"]
    again = asyncio.run(work.tasks_async("a", after=work.tasks(ids=["4"])[0].place))
    assert [task.id for task in again] == ["0"]


@pytest.mark.served_everywhere
def test_several_tasks_of_one_queue_are_claimed_at_once(work: WorkQueue) -> None:
    work.modify(*(Insert(queue="a", value=number, delay=-10 + number) for number in range(5)))
    assert [task.value for task in work.claim_many("a", limit=3)] == [0, 1, 2]
    assert [task.value for task in work.claim_many("a", limit=3)] == [3, 4]
    assert work.claim_many("a", limit=3, timeout_seconds=0) == []


def test_answers_come_in_the_order_of_the_actions(work: WorkQueue) -> None:
    tasks = [work.insert("a", number) for number in range(4)]
    changes = [
        task.renew(5) if task.value % 2 else task.change(value=-task.value)
        for task in reversed(tasks)
    ]
    modified = work.modify(*changes, *(Insert(queue="b", value=text) for text in "xyz"))
    assert [task.value for task in modified.changed] == [3, -2, 1, 0]
    assert [task.value for task in modified.inserted] == [*"xyz"]
    assert work.tasks(ids=[task.id for task in modified.changed]) == [*modified.changed]


@pytest.mark.database_only
def test_an_error_inside_a_modification_leaves_nothing(
    work: WorkQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = work.insert("a")
    counts = backend_of(work).statements.counts

    def fail(*_arguments: object) -> None:
        raise RuntimeError("the last statement fails")

    monkeypatch.setattr(counts, "add", fail)
    with pytest.raises(RuntimeError):
        work.modify(task.delete(), Insert(queue="b", id="new"))
    monkeypatch.undo()
    assert work.tasks("a") == [task]
    assert work.queues() == {"a": 1}
    work.modify(task.delete(), Insert(queue="b", id="new"))


def test_tasks_that_are_claimed_at_once_come_in_the_order_of_their_arrival(work: WorkQueue) -> None:
    delays = (-3, -9, 0, -6)
    work.modify(*(Insert(queue="a", value=delay, delay=delay) for delay in delays))
    assert [task.value for task in work.claim_many("a", limit=3)] == [-9, -6, -3]
