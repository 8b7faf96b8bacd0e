"""The scenarios that EntroQ's own client can play, each by its number."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import httpx
import pytest
from entroq import (
    DependencyError,
    Doc,
    DocArrival,
    DocClaim,
    DocData,
    DocID,
    InvalidArgumentError,
    Modification,
    Task,
    TaskArrival,
    TaskChange,
    TaskData,
    TaskID,
    TransportError,
)
from entroq.json import EntroQJSON

from tests.contract.service.http.conftest import Serve
from tests.contract.service.http.peers import by_peers, done, refused
from tests.contract.service.http.running import Running

M = Modification
HOUR_S = 3600.0


def soon(seconds: float) -> datetime:
    return datetime.now(UTC) + timedelta(seconds=seconds)


def lease(task: Task) -> float:
    assert task.modified is not None
    granted: timedelta = task.at - task.modified
    return granted.total_seconds()


async def inserted(client: EntroQJSON, queue: str = "a", **data: object) -> Task:
    result = await done(client, M.inserting(TaskData(queue, **data)))
    return result.tasks_inserted[0]


async def doc_of(client: EntroQJSON, key: str = "k", **data: object) -> Doc:
    result = await done(client, M.inserting(DocData("n", key, **data)))
    return result.docs_inserted[0]


async def claimed(client: EntroQJSON, queue: str = "a", *, duration_ms: int = 60_000) -> Task:
    task = await client.try_claim(queue, duration_ms=duration_ms)
    assert task is not None
    return task


# -- tasks ----------------------------------------------------------------------------------------


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
    late = await inserted(me, value="late", at=soon(1))
    first = await me.claim("a")
    assert (first.id, first.version, first.claims, first.claimant) == (ready.id, 1, 1, "me")
    assert await other.try_claim("a") is None
    assert (await other.claim("a", timeout_s=10)).id == late.id


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
    assert abs(lease(deferred) - HOUR_S) < 5
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


@by_peers
async def test_scenario_11_an_insert_wakes_a_claim(me: EntroQJSON, other: EntroQJSON) -> None:
    claim = asyncio.create_task(me.claim("a", poll_ms=60_000))
    await asyncio.sleep(0)
    task = await inserted(other)
    assert (await asyncio.wait_for(claim, 3)).id == task.id


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
    theirs = await other.claim("a", timeout_s=5, duration_ms=50)
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


# -- docs -----------------------------------------------------------------------------------------


@by_peers
async def test_scenario_54_to_56_tasks_and_docs_change_together(
    me: EntroQJSON, other: EntroQJSON
) -> None:
    result = await done(
        me, M.inserting(TaskData("a")), M.inserting(DocData("n", "k", content={"x": 1}))
    )
    [task], [doc] = result.tasks_inserted, result.docs_inserted
    assert (task.version, doc.version, doc.content, doc.claimant) == (0, 0, {"x": 1}, "")
    result = await done(me, M.changing(task, queue="b"), M.changing(doc, content=2))
    [moved], [changed] = result.tasks_changed, result.docs_changed
    assert (moved.version, changed.version, changed.content) == (1, 1, 2)
    assert not changed.is_set_ref()
    error = await refused(me, M.changing(moved, queue="c"), M.changing(doc, content=3))
    assert error.doc_changes == [doc.as_id()]
    assert (await me.tasks("b")) == [moved]
    await done(me, M.deleting(changed))
    assert await me.docs("n") == []


@by_peers
async def test_scenario_57_and_58_docs_are_read_by_key_and_id(
    me: EntroQJSON, other: EntroQJSON
) -> None:
    for key in ("shard/1", "shard0", "shard/0", "shard"):
        await doc_of(me, key, id=key, content=key)

    async def keys(**query: object) -> list[str]:
        return [doc.key for doc in await me.docs("n", **query)]

    assert await keys() == ["shard", "shard/0", "shard/1", "shard0"]
    assert await keys(key_start="shard/", key_end="shard0") == ["shard/0", "shard/1"]
    assert await keys(key_exact="shard/1") == ["shard/1"]
    assert await keys(ids=["shard0", "nothing", "shard"]) == ["shard0", "shard"]
    assert await keys(limit=1) == ["shard"]
    assert [doc.content for doc in await me.docs("n", omit_values=True, limit=1)] == [None]


@by_peers
async def test_scenario_59_a_doc_of_another_namespace_is_not_there(
    me: EntroQJSON, other: EntroQJSON
) -> None:
    doc = await doc_of(me)
    wrong = replace(doc, namespace="m")
    assert (await refused(me, M.deleting(wrong))).doc_deletes == [wrong.as_id()]
    assert (await refused(me, M.depending(wrong))).doc_depends == [wrong.as_id()]
    assert (await refused(me, M.changing(wrong))).doc_changes == [wrong.as_id()]
    assert await me.docs("n") == [doc]


@by_peers
async def test_scenario_61_the_id_of_a_doc_is_taken(me: EntroQJSON, other: EntroQJSON) -> None:
    await doc_of(me, id="x", content=1)
    error = await refused(
        me, M.inserting(DocData("n", "other", id="x")), M.inserting(DocData("n", "good"))
    )
    assert [one.id for one in error.doc_inserts] == ["x"]
    assert [doc.content for doc in await me.docs("n")] == [1]


@by_peers
async def test_scenario_62_and_63_a_set_has_one_version(me: EntroQJSON, other: EntroQJSON) -> None:
    one = await doc_of(me, secondary_key="1")
    two = (await done(me, M.inserting(DocData("n", "k", secondary_key="2")))).docs_inserted[0]
    assert two.version == 1
    assert (await refused(me, M.changing(one))).doc_changes == [one.as_id()]
    [docs] = [await me.docs("n", key_exact="k")]
    assert {doc.version for doc in docs} == {1}
    await other.claim_docs("n", "k", duration_ms=1)
    await asyncio.sleep(0.01)
    assert (await refused(me, M.deleting(docs[0]))).doc_deletes == [docs[0].as_id()]


@by_peers
async def test_scenario_64_and_65_who_holds_a_set_changes_it(
    me: EntroQJSON, other: EntroQJSON
) -> None:
    await doc_of(me)
    [doc] = await me.claim_docs("n", "k")
    for operation in (
        M.changing(doc),
        M.deleting(doc),
        M.inserting(DocData("n", "k", secondary_key="new")),
    ):
        error = await refused(other, operation)
        assert (len(error.doc_claims), error.has_missing_docs()) == (1, False)
    with pytest.raises(DependencyError) as held:
        await other.claim_docs("n", "k")
    assert held.value.doc_claims == [DocID("n", "", doc.version, "k")]
    await done(other, M.depending(doc))
    [kept] = (await done(me, M.changing(doc, content=1, at=soon(HOUR_S)))).docs_changed
    assert kept.claimant == "me"
    [freed] = (await done(me, M.changing(kept, content=2))).docs_changed
    assert freed.claimant == ""
    assert (await other.claim_docs("n", "k"))[0].content == 2


@by_peers
async def test_scenario_66_a_set_without_docs_is_held(me: EntroQJSON, other: EntroQJSON) -> None:
    found = await me.claim_docs("n", "k")
    [held] = found.sets
    assert (list(found), held.version, held.claimant) == ([], 1, "me")
    await refused(other, M.inserting(DocData("n", "k")))
    [renewed] = (await done(me, M.arriving(held, HOUR_S))).docs_changed
    await done(me, M.arriving(renewed, HOUR_S), M.inserting(DocData("n", "k")))


@by_peers
async def test_scenario_69_the_keys_of_a_doc_stay(me: EntroQJSON, other: EntroQJSON) -> None:
    doc = await doc_of(me, secondary_key="s")
    [changed] = (await done(me, M.changing(doc, key="x", secondary_key="y"))).docs_changed
    assert (changed.key, changed.secondary_key, changed.created) == ("k", "s", doc.created)


@by_peers
async def test_scenario_71_and_72_sets_are_claimed_together(
    me: EntroQJSON, other: EntroQJSON
) -> None:
    await done(me, *(M.inserting(DocData("n", key)) for key in ("a", "b")))
    claims = [DocClaim("n", "b"), DocClaim("n", "a", omit_members=True), DocClaim("n", "empty")]
    found = await me.claim_doc_sets(claims)
    assert [held.key for held in found.sets] == ["b", "a", "empty"]
    assert [doc.key for doc in found] == ["b"]
    with pytest.raises(DependencyError) as refusal:
        await other.claim_doc_sets([DocClaim("n", "free"), DocClaim("n", "b")])
    assert [one.key for one in refusal.value.doc_claims] == ["b"]
    assert (await me.claim_docs("n", "free")).sets[0].version == 1


@by_peers
async def test_scenario_73_and_74_sets_are_held_as_long_as_a_task(
    me: EntroQJSON, other: EntroQJSON
) -> None:
    await inserted(me)
    task = await claimed(me)
    found = await me.claim_doc_sets([DocClaim("n", "a"), DocClaim("n", "b")], task_to_match=task)
    assert {held.at for held in found.sets} == {task.at}
    await done(me, M.deleting(task))
    with pytest.raises(DependencyError) as refusal:
        await other.claim_doc_sets([DocClaim("n", "c")], task_to_match=task)
    assert refusal.value.depends == [task.as_id()]
    assert refusal.value.has_missing()


@by_peers
async def test_scenario_78_a_place_in_a_set_is_taken_once(
    me: EntroQJSON, other: EntroQJSON
) -> None:
    doc = await doc_of(me, secondary_key="s")
    assert (await refused(me, M.inserting(DocData("n", "k", "s")))).doc_inserts
    await done(me, M.inserting(DocData("n", "other", "s")))
    await done(me, M.deleting(doc))
    await done(me, M.inserting(DocData("n", "k", "s")))


@by_peers
async def test_scenario_79_members_at_version_0_have_their_sets(
    me: EntroQJSON, other: EntroQJSON
) -> None:
    await doc_of(me, id="x")
    found = await me.claim_docs("n", "k")
    await done(me, M.arriving(found.sets[0], 5), M.deleting(DocID("n", "x", 0)))
    assert await me.docs("n") == []


@by_peers
async def test_scenario_80_a_doc_of_the_future_is_held(me: EntroQJSON, other: EntroQJSON) -> None:
    doc = await doc_of(me, at=soon(HOUR_S))
    assert doc.claimant == "me"
    with pytest.raises(DependencyError):
        await other.claim_docs("n", "k")
    await me.claim_docs("n", "k")


@by_peers
async def test_scenario_60_the_date_of_a_doc_is_the_services(
    me: EntroQJSON, other: EntroQJSON
) -> None:
    before = await me.time()
    doc = await doc_of(me)
    assert before <= doc.created == doc.modified <= await me.time()
    [changed] = (await done(me, M.changing(doc, content=1))).docs_changed
    assert changed.created == doc.created


@by_peers
async def test_scenario_67_a_modification_raises_a_set_once(
    me: EntroQJSON, other: EntroQJSON
) -> None:
    doc = await doc_of(me, secondary_key="1")
    [two] = (await done(me, M.inserting(DocData("n", "k", "2")))).docs_inserted
    assert two.version == 1
    doc = replace(doc, version=1)
    result = await done(me, M.inserting(DocData("n", "k", "3")), M.changing(doc, content=1))
    assert [one.version for one in (*result.docs_inserted, *result.docs_changed)] == [2, 2]


@by_peers
async def test_scenario_68_a_held_set_beside_that_of_another(
    me: EntroQJSON, other: EntroQJSON
) -> None:
    await done(me, *(M.inserting(DocData("n", key, id=key)) for key in ("a", "b", "c")))
    [mine] = await me.claim_docs("n", "a")
    [theirs] = await other.claim_docs("n", "b")
    error = await refused(me, M.changing(mine, content=1), M.changing(theirs, content=1))
    assert len(error.doc_claims) == 1
    [kept] = await me.docs("n", key_exact="a")
    assert (kept.claimant, kept.version, kept.content) == ("me", 1, None)
    [free] = await me.docs("n", key_exact="c")
    changed = (await done(me, M.changing(mine), M.changing(free))).docs_changed
    assert [doc.version for doc in changed] == [2, 1]


@by_peers
async def test_scenario_70_many_write_into_one_set(me: EntroQJSON, other: EntroQJSON) -> None:
    async def faults(secondary: str, id_: str | None) -> int:
        try:
            await done(me, M.inserting(DocData("n", "k", secondary, id=id_)))
        except DependencyError as error:
            return len(error.doc_inserts)
        return 0

    found = await asyncio.gather(*(faults(str(number), None) for number in range(8)))
    assert found == [0] * 8
    assert len(await me.docs("n")) == 8
    found = await asyncio.gather(*(faults(f"new {number}", "x") for number in range(8)))
    assert sorted(found) == [0, *[1] * 7]


@by_peers
async def test_scenario_81_optimistic_writers_of_a_set(me: EntroQJSON, other: EntroQJSON) -> None:
    await done(me, *(M.inserting(DocData("n", "k", str(number), content=0)) for number in range(3)))

    async def add(client: EntroQJSON, number: int) -> None:
        for _ in range(4):
            while True:
                docs = await client.docs("n")
                doc = docs[number % 3]
                try:
                    await done(client, M.changing(doc, content=doc.content + 1))
                    break
                except DependencyError:
                    pass

    await asyncio.gather(*(add(me.as_claimant(f"w{number}"), number) for number in range(6)))
    assert sum(doc.content for doc in await me.docs("n")) == 24


@by_peers
async def test_scenario_83_a_lock_that_runs_out(me: EntroQJSON, other: EntroQJSON) -> None:
    await done(me, *(M.inserting(DocData("n", "k", key)) for key in ("1", "2")))
    await me.claim_docs("n", "k", duration_ms=400)
    with pytest.raises(DependencyError):
        await other.claim_docs("n", "k")
    await asyncio.sleep(0.45)
    assert [doc.secondary_key for doc in await other.claim_docs("n", "k")] == ["1", "2"]


@by_peers
async def test_scenario_84_renewals_in_crossed_order_end(me: EntroQJSON, other: EntroQJSON) -> None:
    await done(me, *(M.inserting(TaskData("a", id=id_)) for id_ in ("1", "2", "3")))
    await me.claim_doc_sets([DocClaim("n", key) for key in ("1", "2", "3")])

    async def renew(order: list[str]) -> None:
        for _ in range(4):
            tasks = {task.id: task for task in await me.tasks("a")}
            operations = [M.arriving(tasks[id_], HOUR_S) for id_ in order]
            try:
                await done(me, *operations)
            except DependencyError as error:
                lost.append(len(error.changes))

    lost, orders = list[int](), [["1", "2", "3"], ["3", "2", "1"]] * 5
    await asyncio.wait_for(asyncio.gather(*(renew(order) for order in orders)), 30)
    assert all(lost)


# -- many at once ---------------------------------------------------------------------------------


@by_peers
async def test_scenario_42_each_of_many_inserts_wakes_one(
    me: EntroQJSON, other: EntroQJSON
) -> None:
    claims = [asyncio.create_task(me.claim("a", timeout_s=15)) for _ in range(10)]
    await asyncio.gather(*(inserted(other) for _ in range(10)))
    tasks = await asyncio.gather(*claims)
    assert len({task.id for task in tasks}) == 10
    assert {task.claims for task in tasks} == {1}


@by_peers
async def test_scenario_43_short_queues_get_their_share(me: EntroQJSON, other: EntroQJSON) -> None:
    sizes = {"long": 60, "medium": 12, "short": 4}
    for queue, size in sizes.items():
        await done(me, *(M.inserting(TaskData(queue)) for _ in range(size)))
    order = list[str]()

    async def consume() -> None:
        while (task := await me.try_claim(list(sizes))) is not None:
            order.append(task.queue)
            await done(me, M.deleting(task))

    await asyncio.gather(*(consume() for _ in range(5)))
    assert Counter(order) == sizes
    assert "short" not in order[40:]


@by_peers
async def test_scenario_82_task_and_doc_change_exactly_once(
    me: EntroQJSON, other: EntroQJSON
) -> None:
    await inserted(me, value=0)
    await doc_of(me, content=0)

    async def add(client: EntroQJSON) -> None:
        for _ in range(5):
            task = await client.claim("a")
            [doc] = await client.claim_doc_sets([DocClaim("n", "k")], task_to_match=task)
            await done(
                client,
                M.changing(task, value=task.value + 1),
                M.changing(doc, content=doc.content + 1),
            )

    await asyncio.gather(*(add(me.as_claimant(f"worker-{number}")) for number in range(5)))
    assert [task.value for task in await me.tasks("a")] == [25]
    assert [doc.content for doc in await me.docs("n")] == [25]


@by_peers
async def test_scenario_88_a_wait_that_ends_takes_nothing(
    me: EntroQJSON, other: EntroQJSON
) -> None:
    with pytest.raises(TimeoutError):
        await me.claim("a", timeout_s=0.2)
    waiting = asyncio.create_task(me.claim("a"))
    await asyncio.sleep(0.1)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    task = await inserted(other)
    claim = await other.claim("a", timeout_s=5)
    assert (claim.id, claim.claims, claim.version) == (task.id, 1, 1)


# -- errors ---------------------------------------------------------------------------------------


def test_a_client_of_a_service_that_is_not_there_may_try_again(service: Running) -> None:
    service.stop()

    async def call() -> None:
        async with EntroQJSON(service.url) as client:
            await client.try_claim("a")

    with pytest.raises(TransportError) as error:
        asyncio.run(call())
    assert error.value.safe_to_retry


def test_a_claim_that_a_stop_ends_is_no_transport_error(service: Running) -> None:
    async def call() -> None:
        async with EntroQJSON(service.url) as client:
            claim = asyncio.create_task(client.claim("a"))
            while not service.waiting:  # noqa: ASYNC110 -- the room is a thread's
                await asyncio.sleep(0.01)
            await asyncio.to_thread(service.stop)
            await claim

    with pytest.raises(httpx.HTTPStatusError, match="503"):
        asyncio.run(call())


def test_scenario_89_a_client_goes_on_after_a_restart(serve: Serve) -> None:
    first = serve()

    async def call() -> None:
        async with EntroQJSON(first.url, "me") as client:
            await inserted(client, value=1)
            task = await claimed(client)
            await asyncio.to_thread(first.stop)
            port = int(first.url.rsplit(":", 1)[1])
            await asyncio.to_thread(serve, port=port)
            assert await client.tasks("a") == [task]
            await done(client, M.deleting(task))

    asyncio.run(call())
