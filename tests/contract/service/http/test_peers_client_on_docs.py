"""The scenarios of docs that EntroQ's own client can play, each by its number."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from entroq import DependencyError, DocClaim, DocData, DocID, TaskData
from entroq.json import EntroQJSON

from tests.contract.service.http.peers import by_peers, done, refused
from tests.contract.service.http.peers_calls import HOUR_S, M, claimed, doc_of, inserted, soon


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
    [held] = (await me.claim_docs("n", "k")).sets
    with pytest.raises(DependencyError):
        await other.claim_docs("n", "k")
    await done(me, M.arriving(held, 0.1))
    await asyncio.sleep(0.15)
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
