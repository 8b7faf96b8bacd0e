"""Docs and doc sets: written, read, held and depended on."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from queue_core.errors import InvalidRequestError
from queue_core.runtime.manual_clock import ManualClock
from sql.statements.work.docs import WorkDocs
from tests.contract.work_queue.claiming import claimed, faults
from tests.contract.work_queue.docs import held, new
from work_queue.document import Doc, DocClaim
from work_queue.faults import DependencyError, Fault, FaultKind
from work_queue.modification import ChangeDoc, DeleteDoc, DependDoc, DependSet, InsertDoc, RenewSet
from work_queue.refs import DocRef, SetRef, TaskRef
from work_queue.values import UNREAD
from work_queue.work_queue import WorkQueue


def added(work: WorkQueue, *inserts: InsertDoc) -> list[Doc]:
    return [*work.modify(*inserts).inserted_docs]


def test_scenario_54_versions_of_tasks_and_docs_begin_at_0(work: WorkQueue) -> None:
    task = work.insert("a")
    [doc] = added(work, new())
    assert (task.version, doc.version) == (0, 0)
    modified = work.modify(task.change(), doc.change(1))
    assert (modified.changed[0].version, modified.changed_docs[0].version) == (1, 1)


def test_scenario_55_a_doc_is_changed_and_deleted(work: WorkQueue) -> None:
    [doc] = added(work, new(content=1))
    [changed] = work.modify(doc.change(2)).changed_docs
    assert (changed.content, changed.version, changed.claimant) == (2, 1, "")
    assert faults(work, doc.change(3)) == [Fault(FaultKind.CHANGE, doc.ref)]
    work.modify(changed.delete())
    assert work.docs("n") == []
    assert faults(work, changed.delete()) == [Fault(FaultKind.DELETE, changed.ref)]


def test_scenario_56_tasks_and_docs_change_together_or_not_at_all(work: WorkQueue) -> None:
    task = work.insert("a")
    [doc] = added(work, new(content=1))
    modified = work.modify(task.change(queue="b"), doc.change(2))
    [moved], [changed] = modified.changed, modified.changed_docs
    assert [f.kind for f in faults(work, moved.change(queue="c"), doc.change(3))] == ["CHANGE"]
    assert [f.kind for f in faults(work, task.delete(), changed.change(3))] == ["DELETE"]
    assert work.tasks("b") == [moved]
    assert work.docs("n") == [changed]


def test_scenario_57_docs_are_read_by_range_key_and_ids(work: WorkQueue) -> None:
    docs = added(
        work, *(new(key=key, content=letter) for key, letter in zip("1234", "abcd", strict=True))
    )
    assert [doc.content for doc in work.docs("n", first_key="2", end_key="4")] == ["b", "c"]
    assert [doc.content for doc in work.docs("n", key="2")] == ["b"]
    ids = [doc.id for doc in reversed(docs)]
    assert [doc.id for doc in work.docs("n", ids=[*ids, "no"], limit=2)] == ids
    assert [doc.content for doc in work.docs("n", limit=2)] == ["a", "b"]
    assert [doc.content for doc in work.docs("n", limit=1, with_contents=False)] == [UNREAD]


def test_scenario_58_keys_are_in_the_order_of_bytes(work: WorkQueue) -> None:
    added(work, *(new(key=key) for key in ("shard0", "shard/1", "shard/0", "Shard/2", "shard/é")))
    found = [doc.key for doc in work.docs("n", first_key="shard/", end_key="shard0")]
    assert found == ["shard/0", "shard/1", "shard/é"]


def test_scenario_59_a_doc_is_found_in_its_own_namespace_only(work: WorkQueue) -> None:
    [doc] = added(work, new())
    ref = DocRef("m", doc.id, 0)
    for action, kind in (
        (DeleteDoc(ref), "DELETE"),
        (DependDoc(ref), "DEPEND"),
        (ChangeDoc(ref), "CHANGE"),
    ):
        assert faults(work, action) == [Fault(FaultKind(kind), ref)]
    assert work.docs("n") == [doc]


def test_scenario_60_a_doc_keeps_its_date_of_creation(work: WorkQueue, clock: ManualClock) -> None:
    [doc] = added(work, new())
    assert doc.created == doc.modified == clock.now()
    clock.advance(seconds=5)
    [changed] = work.modify(doc.change(1)).changed_docs
    assert (changed.created, changed.modified) == (doc.created, clock.now())


def test_scenario_61_an_id_of_a_doc_is_taken(work: WorkQueue) -> None:
    [doc] = added(work, new(content=1, id="one"))
    found = faults(work, new(key="other", id="one"), new(key="good"))
    assert found == [Fault(FaultKind.INSERT, DocRef("n", "one", 0))]
    assert work.docs("n") == [doc]
    assert added(work, InsertDoc(namespace="m", key="k", id="one"))[0].id == "one"


@pytest.mark.served_everywhere
@pytest.mark.parametrize("key", ["k", "other"])
def test_a_taken_id_is_told_with_its_version(work: WorkQueue, key: str) -> None:
    [doc] = work.modify(added(work, new(id="one"))[0].change(2)).changed_docs
    assert faults(work, new(key=key, secondary="s", id="one")) == [Fault(FaultKind.INSERT, doc.ref)]


@pytest.mark.database_only
def test_an_id_that_is_taken_meanwhile_is_told_with_its_version(
    work: WorkQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    [doc] = work.modify(added(work, new(id="one"))[0].change(2)).changed_docs
    present, hidden = WorkDocs.present, [2]

    def late(docs: WorkDocs, connection: Any, ids: Any) -> Any:
        hidden[0] -= 1
        return [] if hidden[0] >= 0 else present(docs, connection, ids)

    monkeypatch.setattr(WorkDocs, "present", late)
    assert faults(work, new(key="other", id="one")) == [Fault(FaultKind.INSERT, doc.ref)]


@pytest.mark.served_everywhere
def test_scenario_62_a_set_has_one_version(work: WorkQueue) -> None:
    one, other = added(work, new(secondary="1"), new(secondary="2"))
    work.modify(one.change(1))
    assert {doc.version for doc in work.docs("n")} == {1}
    assert faults(work, other.delete()) == [Fault(FaultKind.DELETE, other.ref)]


def test_scenario_63_a_version_read_before_a_claim_is_stale(work: WorkQueue) -> None:
    [doc] = added(work, new())
    held(work)
    assert faults(work, doc.change(1), claimant="other") == [Fault(FaultKind.CHANGE, doc.ref)]


@pytest.mark.served_everywhere
def test_scenario_64_a_held_set_refuses_all_but_dependencies(work: WorkQueue) -> None:
    added(work, new())
    docs = held(work)
    [doc] = docs.docs
    for action in (doc.change(1), doc.delete()):
        assert faults(work, action, claimant="other") == [Fault(FaultKind.CLAIM, doc.ref)]
    found = faults(work, new(secondary="2"), claimant="other")
    assert found == [Fault(FaultKind.CLAIM, docs.ref)]
    with pytest.raises(DependencyError) as refused:
        held(work, claimant="other")
    assert refused.value.of(FaultKind.CLAIM) == (docs.ref,)
    work.modify(doc.depend(), claimant="other")
    work.modify(docs.depend(), claimant="other")


def test_scenario_65_a_write_of_the_holder_keeps_the_set_or_frees_it(work: WorkQueue) -> None:
    added(work, new())
    [doc] = held(work).docs
    [kept] = work.modify(doc.change(1, delay=30)).changed_docs
    assert (kept.claimant, kept.at - kept.modified) == ("me", timedelta(seconds=30))
    [freed] = work.modify(kept.change(2)).changed_docs
    assert freed.claimant == ""
    held(work, claimant="other")


def test_scenario_66_an_unknown_key_can_be_claimed(work: WorkQueue) -> None:
    docs = held(work)
    assert (docs.docs, docs.version) == ((), 1)
    assert [f.kind for f in faults(work, new(), claimant="other")] == ["CLAIM"]
    [renewed] = work.modify(docs.renew(60)).changed_sets
    assert (renewed.version, renewed.claimant) == (2, "me")
    [doc] = added(work, new())
    assert (doc.version, doc.claimant) == (3, "")


def test_scenario_67_a_modification_raises_a_version_once(work: WorkQueue) -> None:
    [first] = added(work, new(secondary="1"))
    [second] = added(work, new(secondary="2"))
    assert second.version == 1
    modified = work.modify(DocRefs(first, 1).change(0), new(secondary="3"), new(secondary="4"))
    assert {doc.version for doc in (*modified.inserted_docs, *modified.changed_docs)} == {2}


class DocRefs:
    """A doc at another version than it was read at."""

    def __init__(self, doc: Doc, version: int) -> None:
        self.ref = DocRef(doc.namespace, doc.id, version)

    def change(self, content: object) -> ChangeDoc:
        return ChangeDoc(self.ref, content)


def test_scenario_68_a_modification_touches_own_and_free_sets_only(work: WorkQueue) -> None:
    added(work, new("mine"), new("others"), new("free"))
    [mine], [others] = held(work, "mine").docs, held(work, "others", "other").docs
    assert faults(work, mine.change(1), others.change(1)) == [Fault(FaultKind.CLAIM, others.ref)]
    assert work.docs("n", key="mine")[0].claimant == "me"
    [free] = work.docs("n", key="free")
    modified = work.modify(mine.change(1), free.change(1))
    assert [doc.version for doc in modified.changed_docs] == [2, 1]


def test_scenario_69_a_change_keeps_the_keys(work: WorkQueue) -> None:
    [doc] = added(work, new("k", "s"))
    [changed] = work.modify(doc.change(1)).changed_docs
    assert (changed.key, changed.secondary_key, changed.created) == ("k", "s", doc.created)


@pytest.mark.served_everywhere
def test_scenario_71_several_sets_are_claimed_in_the_order_asked(work: WorkQueue) -> None:
    added(work, new("b"), new("a"))
    sets = work.claim_docs(
        DocClaim("n", "b"), DocClaim("n", "a", omit_docs=True), DocClaim("n", "empty")
    )
    assert [(docs.key, len(docs.docs)) for docs in sets] == [("b", 1), ("a", 0), ("empty", 0)]
    assert {docs.claimant for docs in sets} == {"me"}
    assert {doc.claimant for doc in work.docs("n")} == {"me"}


def test_scenario_72_one_held_set_refuses_a_whole_claim(work: WorkQueue) -> None:
    docs = held(work, "b", "other")
    with pytest.raises(DependencyError) as refused:
        work.claim_docs(DocClaim("n", "a"), DocClaim("n", "b"))
    assert refused.value.faults == (Fault(FaultKind.CLAIM, docs.ref),)
    assert held(work, "a", "third").version == 1


@pytest.mark.served_everywhere
def test_scenario_73_sets_are_held_as_long_as_a_task(work: WorkQueue) -> None:
    work.insert("a")
    task = claimed(work, lease_seconds=17)
    sets = work.claim_docs(DocClaim("n", "a"), DocClaim("n", "b"), until=task.ref)
    assert {docs.at for docs in sets} == {task.at}


def test_scenario_74_a_task_that_moved_on_holds_no_sets(
    work: WorkQueue, clock: ManualClock
) -> None:
    work.insert("a")
    task = claimed(work)
    [renewed] = work.modify(task.renew(20)).changed
    for stale in (task.ref, TaskRef("no", 0, "a"), TaskRef(renewed.id, renewed.version, "b")):
        with pytest.raises(DependencyError) as refused:
            work.claim_docs(DocClaim("n", "k"), until=stale)
        assert refused.value.faults == (Fault(FaultKind.DEPEND, stale),)
    clock.advance(seconds=20)
    with pytest.raises(DependencyError):
        work.claim_docs(DocClaim("n", "k"), until=renewed.ref)
    assert held(work, claimant="other").version == 1


def test_scenario_76_a_set_is_depended_on_by_its_key(work: WorkQueue) -> None:
    added(work, new())
    work.modify(DependSet(SetRef("n", "k", 0)))
    for stale in (SetRef("n", "k", 1), SetRef("n", "absent", 0)):
        assert faults(work, DependSet(stale)) == [Fault(FaultKind.DEPEND, stale)]
    added(work, new(secondary="2"))
    assert faults(work, DependSet(SetRef("n", "k", 0)))
    work.modify(DependSet(SetRef("n", "k", 1)))


def test_scenario_77_a_dependency_holds_nothing(work: WorkQueue) -> None:
    [doc] = added(work, new())
    work.modify(doc.depend())
    work.modify(doc.change(1), claimant="other")


@pytest.mark.served_everywhere
def test_scenario_78_a_secondary_key_is_unique_in_its_set(work: WorkQueue) -> None:
    one, empty = added(work, new(secondary="s", id="one"), new(secondary="", id="empty"))
    assert faults(work, new(secondary="s")) == [Fault(FaultKind.INSERT, one.ref)]
    assert faults(work, new(secondary="")) == [Fault(FaultKind.INSERT, empty.ref)]
    with pytest.raises(InvalidRequestError):
        work.modify(new(secondary="t"), new(secondary="t"))
    assert len(work.docs("n")) == 2
    added(work, new("other", "s"))
    modified = work.modify(one.delete(), new(secondary="s", content=7))
    assert modified.inserted_docs[0].content == 7


def test_scenario_79_version_0_stands_for_that_of_the_set_named_beside(work: WorkQueue) -> None:
    added(work, new(id="one"))
    docs = held(work)
    alone = DocRef("n", "one", 0)
    assert faults(work, ChangeDoc(alone, 1)) == [Fault(FaultKind.CHANGE, alone)]
    wrong = DocRef("n", "one", 7)
    assert faults(work, ChangeDoc(wrong, 1), docs.renew(5)) == [Fault(FaultKind.CHANGE, wrong)]
    modified = work.modify(ChangeDoc(alone, 1), docs.renew(30))
    assert modified.changed_docs[0].version == modified.changed_sets[0].version == 2
    work.modify(ChangeDoc(alone, 2), DependSet(SetRef("n", "k", 2)))


def test_scenario_80_an_insert_with_a_delay_holds_the_set(work: WorkQueue) -> None:
    work.modify(new(delay=30))
    with pytest.raises(DependencyError):
        held(work, claimant="other")
    assert held(work).version == 1


def test_scenario_83_a_lease_of_docs_runs_out(work: WorkQueue, clock: ManualClock) -> None:
    added(work, new(secondary="1"), new(secondary="2"))
    held(work, lease_seconds=0.5)
    with pytest.raises(DependencyError):
        held(work, claimant="other")
    clock.advance(seconds=0.5)
    assert len(held(work, claimant="other").docs) == 2


def test_a_set_outlives_its_docs(work: WorkQueue) -> None:
    [doc] = added(work, new())
    work.modify(doc.delete())
    assert held(work).version == 2
    assert faults(work, RenewSet(SetRef("n", "no", 0), 5)) == [
        Fault(FaultKind.CHANGE, SetRef("n", "no", 0))
    ]
