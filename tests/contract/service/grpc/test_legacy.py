"""Callers of proto.EntroQ: values are bytes, and names are UUIDs."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import grpc
import pytest

from tests.contract.service.grpc.harness import PATIENCE_SECONDS, Stubs, details, refused
from work_queue.modification import Insert
from work_queue.work_queue import WorkQueue

NIL = str(UUID(int=0))
ANN, BOB = str(uuid4()), str(uuid4())
CAPITALS = "6F9619FF-8B86-4011-B42D-00CF4FC964FF"
RAW = b"\x00\xffnot JSON"


def insert(legacy: Any, stubs: Stubs, **task: Any) -> Any:
    """The task that is inserted."""
    request = stubs.proto.ModifyRequest(claimant_id=ANN, inserts=[{"queue": "a", **task}])
    [inserted] = legacy.Modify(request).inserted
    return inserted


def claim(legacy: Any, stubs: Stubs, claimant: str = ANN) -> Any:
    """The task that is claimed."""
    request = stubs.proto.ClaimRequest(claimant_id=claimant, queues=["a"], duration_ms=60_000)
    return legacy.TryClaim(request).task


@pytest.mark.parametrize("value", [RAW, b"", b'{"a": 1, "a": 2}', b"[1,  2]", "ü".encode()])
def test_scenario_94_bytes_come_and_go(
    legacy: Any, stubs: Stubs, work: WorkQueue, value: bytes
) -> None:
    new = insert(legacy, stubs, value=value)
    assert (new.value, new.version, new.claimant_id) == (value, 0, NIL)
    request = stubs.proto.ClaimRequest(claimant_id=ANN, queues=["a"], duration_ms=60_000)
    task = legacy.Claim(request, timeout=PATIENCE_SECONDS).task
    assert (task.value, task.version, task.claimant_id) == (value, 1, ANN)
    assert task.at_ms - task.modified_ms == 60_000
    change = {"old_id": {"id": task.id, "version": 1}, "new_data": {"queue": "a", "value": value}}
    [changed] = legacy.Modify(stubs.proto.ModifyRequest(claimant_id=ANN, changes=[change])).changed
    assert (changed.value, changed.version, changed.claimant_id) == (value, 2, NIL)
    assert legacy.Tasks(stubs.proto.TasksRequest(queue="a")).tasks[0] == changed
    gone = stubs.proto.ModifyRequest(claimant_id=ANN, deletes=[{"id": task.id, "version": 2}])
    legacy.Modify(gone)
    assert work.queues() == {}
    error = refused(grpc.StatusCode.NOT_FOUND, legacy.Modify, gone)
    told, fault = details(error, stubs, stubs.proto.ModifyDep)
    kinds = stubs.proto.ActionType
    assert (told.type, fault.type) == (kinds.Value("DETAIL"), kinds.Value("DELETE"))
    assert (fault.id.id, fault.id.version) == (task.id, 2)


def test_a_task_of_newer_callers_is_read_as_json(
    legacy: Any, stubs: Stubs, work: WorkQueue
) -> None:
    large = 2**70
    work.modify(Insert(queue="a", value={"n": large}), Insert(queue="b", value=None))
    work.modify(work.tasks("a")[0].renew(60), claimant="a caller of today")
    [task] = legacy.Tasks(stubs.proto.TasksRequest(queue="a")).tasks
    assert task.value == f'{{"n":{large}}}'.encode()
    assert str(UUID(task.id)) == task.id
    assert UUID(task.claimant_id) != UUID(NIL)
    [empty] = legacy.Tasks(stubs.proto.TasksRequest(queue="b")).tasks
    assert empty.value == b""


def test_uuids_are_one_name_however_they_are_written(
    legacy: Any, stubs: Stubs, work: WorkQueue
) -> None:
    name = str(uuid4())
    assert insert(legacy, stubs, id=name.upper()).id == name
    claim(legacy, stubs, claimant=ANN.upper())
    assert work.tasks("a")[0].claimant == ANN
    refused(grpc.StatusCode.NOT_FOUND, insert, legacy, stubs, id=name)


def test_the_nil_uuid_is_nobody_and_no_id(legacy: Any, stubs: Stubs, work: WorkQueue) -> None:
    api = stubs.proto
    task = insert(legacy, stubs, id=NIL)
    assert task.id not in {NIL, insert(legacy, stubs, id=NIL).id}
    later = legacy.Time(api.TimeRequest()).time_ms + 60_000
    insert(legacy, stubs, at_ms=later)
    claim(legacy, stubs, claimant=BOB)
    # Clients that nobody gave a claimant send it so.
    everything = api.TasksRequest(queue="a", claimant_id=NIL)
    assert len(legacy.Tasks(everything).tasks) == 3
    assert len(list(legacy.StreamTasks(everything))) == 3
    assert len(legacy.Tasks(api.TasksRequest(queue="a", claimant_id=BOB)).tasks) == 2
    change = {"old_id": {"id": task.id}, "new_data": {"queue": "b", "id": NIL}}
    invalid = grpc.StatusCode.INVALID_ARGUMENT
    for request in (
        api.ModifyRequest(claimant_id=NIL, inserts=[{"queue": "a", "at_ms": later}]),
        api.ModifyRequest(claimant_id=ANN, deletes=[{"id": NIL}]),
    ):
        refused(invalid, legacy.Modify, request)
    refused(invalid, claim, legacy, stubs, claimant=NIL)
    holder = work.tasks(ids=[task.id])[0].claimant or ANN
    named = {"id": task.id, "version": work.tasks(ids=[task.id])[0].version}
    legacy.Modify(api.ModifyRequest(claimant_id=holder, changes=[{**change, "old_id": named}]))
    assert work.queues() == {"a": 2, "b": 1}


def test_a_recurring_task_is_done_by_its_name(legacy: Any, stubs: Stubs, work: WorkQueue) -> None:
    work.recur("a", "beat", every=0.2)
    request = stubs.proto.ClaimRequest(claimant_id=ANN, queues=["a"], duration_ms=60_000)
    task = legacy.Claim(request, timeout=PATIENCE_SECONDS).task
    work.stop_recurring("a", "beat")
    named = {"id": task.id, "version": task.version}
    legacy.Modify(stubs.proto.ModifyRequest(claimant_id=ANN, deletes=[named]))
    assert not work.tasks(ids=[task.id])


@pytest.mark.parametrize("name", ["invoice-41", CAPITALS])
def test_a_task_that_these_callers_can_not_name_is_not_theirs(
    legacy: Any, stubs: Stubs, work: WorkQueue, name: str
) -> None:
    work.insert("a", id=name)
    other = work.insert("a")
    error = refused(grpc.StatusCode.UNIMPLEMENTED, claim, legacy, stubs)
    assert name in error.details()
    assert "'a'" in error.details()
    everything = stubs.proto.TasksRequest(queue="a")
    assert [task.id for task in legacy.Tasks(everything).tasks] == [other.id]
    assert [page.tasks[0].id for page in legacy.StreamTasks(everything)] == [other.id]
    assert claim(legacy, stubs).id == other.id  # what was given back has queued up again
    mine = work.claim("a", timeout_seconds=PATIENCE_SECONDS)
    assert (mine.id, mine.claims) == (name, 1)


def test_other_names_are_refused(legacy: Any, stubs: Stubs, work: WorkQueue) -> None:
    api, invalid = stubs.proto, grpc.StatusCode.INVALID_ARGUMENT
    task = {"queue": "a"}
    for request in (
        api.ModifyRequest(claimant_id="ann", inserts=[task]),
        api.ModifyRequest(inserts=[task]),
        api.ModifyRequest(claimant_id=ANN, inserts=[{**task, "id": "one"}]),
        api.ModifyRequest(claimant_id=ANN, inserts=[task], deletes=[{"id": "one"}]),
        api.ModifyRequest(claimant_id=ANN, inserts=[task], depends=[{}]),
    ):
        refused(invalid, legacy.Modify, request)
    refused(invalid, claim, legacy, stubs, claimant="ann")
    refused(invalid, claim, legacy, stubs, claimant="")
    refused(invalid, legacy.Tasks, api.TasksRequest(task_id=["one"]))
    assert work.queues() == {}


def test_what_another_claimant_holds_is_at_fault(legacy: Any, stubs: Stubs) -> None:
    insert(legacy, stubs)
    task = claim(legacy, stubs)
    request = stubs.proto.ModifyRequest(claimant_id=BOB, deletes=[{"id": task.id, "version": 1}])
    error = refused(grpc.StatusCode.NOT_FOUND, legacy.Modify, request)
    assert [item.type for item in details(error, stubs, stubs.proto.ModifyDep)][1:] == [
        stubs.proto.ActionType.Value("CLAIM")
    ]


def test_the_rest_is_served_too(legacy: Any, stubs: Stubs) -> None:
    insert(legacy, stubs, value=RAW)
    claim(legacy, stubs)
    [answer] = legacy.StreamTasks(stubs.proto.TasksRequest(queue="a"))
    assert answer.tasks[0].value == RAW
    expected = stubs.proto.QueueStats(name="a", num_tasks=1, num_claimed=1, max_claims=1)
    for call in (legacy.Queues, legacy.QueueStats):
        assert list(call(stubs.proto.QueuesRequest()).queues) == [expected]
    assert legacy.Time(stubs.proto.TimeRequest()).time_ms > 0


def test_it_has_no_docs(legacy: Any, stubs: Stubs, channel: grpc.Channel) -> None:
    call: Any = channel.unary_unary("/proto.EntroQ/Docs")
    refused(grpc.StatusCode.UNIMPLEMENTED, call, b"")
