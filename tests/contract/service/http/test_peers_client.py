"""The scenarios of tasks that EntroQ's own client can play, each by its number."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from entroq import (
    Doc,
    DocArrival,
    DocClaim,
    DocID,
    InvalidArgumentError,
    Task,
    TaskArrival,
    TaskChange,
    TaskData,
    TaskID,
)
from entroq.json import EntroQJSON

from tests.contract.harness import BOUND_SECONDS
from tests.contract.service.http.peers import by_peers, by_seen_peers, claims_wait, done, refused
from tests.contract.service.http.peers_calls import HOUR_S, M, claimed, inserted, lease, soon
from tests.contract.service.http.running import Running


@by_peers
async def test_scenario_01_an_empty_queue_gives_nothing(me: EntroQJSON, other: EntroQJSON) -> None:
    assert await me.try_claim("a") is None
    assert await me.queues() == []
    assert abs(await me.time() - datetime.now(UTC)) < timedelta(minutes=1)


@by_peers
async def test_scenario_02_a_task_is_claimed_when_it_has_arrived(
    me: EntroQJSON, other: EntroQJSON
) -> None:
    ready = await inserted(me, value="ready")
    late = await inserted(me, value="late", at=soon(HOUR_S))
    first = await me.claim("a")
    assert (first.id, first.version, first.claims, first.claimant) == (ready.id, 1, 1, "me")
    assert await other.try_claim("a") is None
    await done(me, M.changing(late, at=soon(0.3)))
    assert (await other.claim("a", timeout_s=15)).id == late.id


@by_peers
async def test_scenario_03_a_change_moves_a_task(me: EntroQJSON, other: EntroQJSON) -> None:
    task = await inserted(me, value=1)
    [moved] = (await done(me, M.changing(task, queue="b"))).tasks_changed
    assert (moved.id, moved.queue, moved.version, moved.claimant) == (task.id, "b", 1, "")
    assert await me.tasks("a") == []


@by_peers
async def test_scenario_04_a_change_defers_a_task(me: EntroQJSON, other: EntroQJSON) -> None:
    task = await inserted(me)
    await done(me, M.changing(task, at=soon(HOUR_S)))
    [deferred] = await me.tasks("a")
    assert abs(lease(deferred) - HOUR_S) < 60
    assert await me.try_claim("a") is None


@by_peers
async def test_scenario_06_an_id_that_is_taken_is_told(me: EntroQJSON, other: EntroQJSON) -> None:
    await inserted(me, id="x")
    for queue in ("a", "b"):
        error = await refused(other, M.inserting(TaskData(queue, id="x")))
        assert error.inserts == error.collisions == [TaskID("x", 0, "a")]
        assert not error.has_missing()


@by_peers
async def test_scenario_09_tasks_are_listed_with_and_without_values(
    me: EntroQJSON, other: EntroQJSON
) -> None:
    for value in (1, [2], {"three": 3}):
        await inserted(me, value=value)
    with_values = await me.tasks("a")
    without = await me.tasks("a", omit_values=True)
    assert {json.dumps(task.value) for task in with_values} == {"1", "[2]", '{"three": 3}'}
    by_id = {task.id: task for task in with_values}
    assert all(replace(task, value=by_id[task.id].value) == by_id[task.id] for task in without)
    assert [task.value for task in without] == [None] * 3
    assert len(await me.tasks("a", limit=2)) == 2


@by_peers
async def test_scenario_10_what_is_not_there_is_not_deleted(
    me: EntroQJSON, other: EntroQJSON
) -> None:
    task = await inserted(me)
    for wrong in (TaskID("nothing", 0, "a"), TaskID(task.id, 7, "a")):
        error = await refused(me, M.deleting(wrong))
        assert error.deletes == error.missing == [wrong]
        assert error.has_missing()
    assert await me.tasks("a") == [task]


@by_seen_peers
async def test_scenario_11_an_insert_wakes_a_claim(
    me: EntroQJSON, other: EntroQJSON, service: Running
) -> None:
    claim = asyncio.create_task(me.claim("a", poll_ms=60_000))
    await claims_wait(service)
    task = await inserted(other)
    assert (await asyncio.wait_for(claim, BOUND_SECONDS)).id == task.id


@by_peers
async def test_scenario_15_a_lease_of_an_hour(me: EntroQJSON, other: EntroQJSON) -> None:
    await inserted(me)
    assert lease(await claimed(me, duration_ms=3_600_000)) == HOUR_S


@by_peers
async def test_scenario_16_a_task_of_another_queue_is_not_there(
    me: EntroQJSON, other: EntroQJSON
) -> None:
    task = await inserted(me)
    wrong = TaskID(task.id, 0, "b")
    assert (await refused(me, M.deleting(wrong))).deletes == [wrong]
    assert (await refused(me, M.depending(wrong))).depends == [wrong]
    change = TaskChange(task.id, 0, "b", from_queue="b")
    assert (await refused(me, M.changing(change))).changes == [wrong]
    assert await me.tasks("a") == [task]


@by_peers
async def test_scenario_17_the_claimant_of_a_task(me: EntroQJSON, other: EntroQJSON) -> None:
    ready = await inserted(me)
    later = await inserted(me, "b", at=soon(HOUR_S))
    assert (ready.claimant, later.claimant) == ("", "me")
    [delayed] = (await done(other, M.changing(ready, at=soon(HOUR_S)))).tasks_changed
    assert delayed.claimant == "other"
    [released] = (await done(other, M.arriving(delayed, 0))).tasks_changed
    assert released.claimant == ""
    await claimed(me, duration_ms=1)
    await asyncio.sleep(0.01)
    [expired] = await me.tasks("a")
    assert expired.claimant == "me"


@by_peers
async def test_scenario_18_a_renewal_moves_the_arrival_alone(
    me: EntroQJSON, other: EntroQJSON
) -> None:
    await inserted(me, value=1, attempt=2, err="why")
    task = await claimed(me)
    [renewed] = (await done(me, M.arriving(task, HOUR_S))).tasks_changed
    assert abs(lease(renewed) - HOUR_S) < 1
    kept = replace(task, version=2, at=renewed.at, modified=renewed.modified)
    assert renewed == kept
    assert (await refused(me, M.depending(task))).depends == [task.as_id()]
    assert (await refused(me, M.deleting(task))).deletes == [task.as_id()]


@by_peers
async def test_scenario_19_a_release_frees_task_and_set(me: EntroQJSON, other: EntroQJSON) -> None:
    await inserted(me)
    task = await claimed(me)
    [held] = (await me.claim_docs("n", "k")).sets
    result = await done(me, M.arriving(task, 0), M.arriving(held, 0))
    assert (result.tasks_changed[0].claimant, result.docs_changed[0].claimant) == ("", "")
    assert (await claimed(other)).id == task.id
    assert (await other.claim_docs("n", "k")).sets[0].version == 3


@by_peers
async def test_scenario_20_one_update_renews_and_releases(
    me: EntroQJSON, other: EntroQJSON
) -> None:
    await inserted(me)
    task = await claimed(me)
    [held] = (await me.claim_docs("n", "k")).sets
    result = await done(me, M.arriving(task, HOUR_S), M.arriving(held, 0))
    assert result.tasks_changed[0].claimant == "me"
    [released] = result.docs_changed
    assert released.is_set_ref()
    assert (released.claimant, released.version) == ("", 2)


@by_peers
async def test_scenario_21_an_arrival_beside_an_insert(me: EntroQJSON, other: EntroQJSON) -> None:
    task = await inserted(me)
    result = await done(me, M.arriving(task, HOUR_S), M.inserting(TaskData("b")))
    assert (len(result.tasks_changed), len(result.tasks_inserted)) == (1, 1)


@by_peers
async def test_scenario_22_a_stale_arrival_refuses_all(me: EntroQJSON, other: EntroQJSON) -> None:
    task = await inserted(me)
    [held] = (await me.claim_docs("n", "k")).sets
    stale_set = DocArrival("n", "k", 0, 5)
    error = await refused(me, M.arriving(task, 5), _arrival(stale_set))
    assert error.doc_changes == [DocID("n", "", held.version, "k")]
    stale_task = TaskArrival(task.id, 9, "a", 5)
    error = await refused(me, _arrival(stale_task), M.arriving(held, 5))
    assert error.changes == [TaskID(task.id, 9, "a")]
    assert await me.tasks("a") == [task]


def _arrival(arrival: TaskArrival | DocArrival) -> object:
    """The operation of an arrival at a version of one's own."""
    if isinstance(arrival, TaskArrival):
        named = Task(arrival.id, arrival.version, arrival.queue, soon(0), "", None)
        return M.arriving(named, arrival.by_s)
    held = Doc(arrival.namespace, "", arrival.version, arrival.key, "", None)
    return M.arriving(held, arrival.by_s)


@by_peers
async def test_scenario_23_what_another_holds_is_told(me: EntroQJSON, other: EntroQJSON) -> None:
    await inserted(me)
    task = await claimed(me)
    [held] = (await me.claim_docs("n", "k")).sets
    assert (await refused(other, M.arriving(task, 5))).claims == [task.as_id()]
    error = await refused(other, M.arriving(held, 5))
    assert error.doc_claims == [DocID("n", "", held.version, "k")]
    assert error.has_claimed_docs()
    # Administrators act as the holder.
    await other.modify(M(M.deleting(task)), unsafe_claimant_id="me")


@by_peers
async def test_scenario_24_and_25_what_makes_no_sense_is_refused(
    me: EntroQJSON, other: EntroQJSON
) -> None:
    task = await inserted(me)
    with pytest.raises(InvalidArgumentError, match="Nothing was written"):
        await done(me, M.arriving(task, 5), M.arriving(task, 6))
    with pytest.raises(InvalidArgumentError):
        await me.modify(M())
    with pytest.raises(InvalidArgumentError):
        await me.try_claim([])
    with pytest.raises(InvalidArgumentError):
        await me.try_claim("a", duration_ms=-1)
    with pytest.raises(InvalidArgumentError):
        await me.tasks()
    with pytest.raises(InvalidArgumentError):
        await me.docs()
    with pytest.raises(InvalidArgumentError):
        await me.claim_doc_sets([])
    with pytest.raises(InvalidArgumentError):
        await me.claim_doc_sets([DocClaim("n", "k"), DocClaim("n", "k")])


@by_peers
async def test_scenario_32_claims_are_kept_or_start_anew(me: EntroQJSON, other: EntroQJSON) -> None:
    await inserted(me)
    [kept] = (await done(me, M.changing(await claimed(me)))).tasks_changed
    [anew] = (await done(me, M.changing(kept, reset_claims=True))).tasks_changed
    assert (kept.claims, anew.claims) == (1, 0)


@by_peers
async def test_scenario_33_all_faults_are_told(me: EntroQJSON, other: EntroQJSON) -> None:
    for id_ in ("taken", "held", "stale"):
        await inserted(me, id_, id=id_)
    held = await claimed(other, "held")
    error = await refused(
        me,
        M.inserting(TaskData("x", id="taken")),
        M.inserting(TaskData("x")),
        M.changing(TaskChange("stale", 5, "stale", from_queue="stale")),
        M.deleting(TaskID("missing", 0, "x")),
        M.depending(TaskID("gone", 0, "x")),
        M.deleting(held),
    )
    assert [one.id for one in error.inserts] == ["taken"]
    assert [one.id for one in error.changes] == ["stale"]
    assert [one.id for one in error.deletes] == ["missing"]
    assert [one.id for one in error.depends] == ["gone"]
    assert [one.id for one in error.claims] == ["held"]
    assert await me.tasks("x") == []


@by_peers
async def test_scenario_34_nothing_is_inserted_beside_a_stale_dependency(
    me: EntroQJSON, other: EntroQJSON
) -> None:
    task = await inserted(me)
    await done(me, M.changing(task))
    await refused(me, M.depending(task), M.inserting(TaskData("b")))
    assert await me.tasks("b") == []


@by_peers
async def test_scenario_35_and_36_after_a_lease_has_run_out(
    me: EntroQJSON, other: EntroQJSON
) -> None:
    await inserted(me)
    mine = await claimed(me, duration_ms=50)
    theirs = await other.claim("a", timeout_s=15, duration_ms=50)
    assert (await refused(me, M.deleting(mine))).deletes == [mine.as_id()]
    await asyncio.sleep(0.06)
    await done(other, M.deleting(theirs))
    assert await me.tasks("a") == []


@by_peers
async def test_scenario_37_39_and_40_queues_are_counted(me: EntroQJSON, other: EntroQJSON) -> None:
    for queue, count in (("q/1", 1), ("q/2", 2), ("a=b", 3)):
        await done(me, *(M.inserting(TaskData(queue)) for _ in range(count)))
    await inserted(me, "q/2", at=soon(HOUR_S))
    await claimed(me, "q/2")

    async def sizes(**query: object) -> dict[str, int]:
        found = await me.queues(**query)
        return {queue["name"]: queue["num_tasks"] for queue in found}

    assert await sizes() == {"q/1": 1, "q/2": 3, "a=b": 3}
    assert await sizes(exact=["a=b", "bogus"]) == {"a=b": 3}
    assert await sizes(prefix="q/") == {"q/1": 1, "q/2": 3}
    assert await sizes(prefix="q/", exact=["a=b"]) == {"q/1": 1, "q/2": 3, "a=b": 3}
    assert len(await sizes(limit=2)) == 2
    [queue] = await me.queues(exact=["q/2"])
    assert queue == {
        "name": "q/2",
        "num_tasks": 3,
        "num_claimed": 1,
        "num_available": 1,
        "num_future": 1,
    }


@by_peers
async def test_scenario_90_an_id_is_taken_after_a_move(me: EntroQJSON, other: EntroQJSON) -> None:
    task = await inserted(me, id="x")
    await done(me, M.changing(task, queue="b"))
    error = await refused(me, M.inserting(TaskData("a", id="x")))
    assert error.inserts == [TaskID("x", 1, "b")]
