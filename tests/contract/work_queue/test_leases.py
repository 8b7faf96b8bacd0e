"""Leases of tasks: held, renewed, released and run out."""

from __future__ import annotations

from datetime import timedelta

import pytest

from queue_core.runtime.manual_clock import ManualClock
from tests.contract.work_queue.claiming import HOUR, claimed, faults
from work_queue.document import DocClaim
from work_queue.faults import Fault, FaultKind
from work_queue.modification import Insert, InsertDoc, Renew
from work_queue.refs import SetRef
from work_queue.work_queue import WorkQueue


def test_scenario_15_a_lease_may_be_an_hour(work: WorkQueue) -> None:
    work.insert("a")
    assert claimed(work, lease_seconds=HOUR).lease == timedelta(hours=1)


def test_scenario_17_the_claimant_is_who_holds_it(work: WorkQueue, clock: ManualClock) -> None:
    assert work.insert("a").claimant == ""
    [task] = work.tasks("a")
    [later] = work.modify(Insert(queue="b", delay=1)).inserted
    assert later.claimant == "me"
    [delayed] = work.modify(task.change(delay=1), claimant="other").changed
    assert delayed.claimant == "other"
    [released] = work.modify(delayed.release(), claimant="other").changed
    assert released.claimant == ""
    held = claimed(work, lease_seconds=1)
    clock.advance(seconds=2)
    assert work.tasks("a")[0].claimant == held.claimant == "me"


@pytest.mark.served_everywhere
def test_scenario_18_a_renewal_moves_the_arrival_alone(work: WorkQueue) -> None:
    work.insert("a", {"big": 2**80}, attempt=3, err="bad")
    held = claimed(work)
    [renewed] = work.modify(held.renew(90)).changed
    assert renewed.lease == timedelta(seconds=90)
    assert (renewed.version, renewed.claims, renewed.attempt) == (2, 1, 3)
    assert (renewed.value, renewed.err, renewed.claimant) == ({"big": 2**80}, "bad", "me")
    assert [fault.kind for fault in faults(work, held.depend())] == ["DEPEND"]
    assert [fault.kind for fault in faults(work, held.delete())] == ["DELETE"]
    work.modify(renewed.delete())


def test_scenario_19_a_release_lets_others_claim(work: WorkQueue) -> None:
    work.insert("a")
    held = claimed(work)
    [docs] = work.claim_docs(DocClaim("n", "k"))
    modified = work.modify(held.release(), docs.release())
    assert modified.changed[0].claimant == modified.changed_sets[0].claimant == ""
    assert claimed(work, claimant="other").claims == 2
    assert work.claim_docs(DocClaim("n", "k"), claimant="other")[0].version == 3


def test_a_claim_that_nobody_has_seen_counts_no_more(work: WorkQueue) -> None:
    work.insert("a")
    work.modify(claimed(work).release())
    [undone] = work.modify(Renew(claimed(work).ref, 0.0, undo_claim=True)).changed
    assert (undone.claims, undone.claimant, undone.version) == (1, "", 4)
    assert claimed(work).claims == 2


def test_scenario_20_one_modification_renews_and_releases(work: WorkQueue) -> None:
    work.insert("a")
    held = claimed(work)
    [docs] = work.claim_docs(DocClaim("n", "k"))
    modified = work.modify(held.renew(60), docs.release())
    assert modified.changed[0].claimant == "me"
    assert modified.changed_sets[0].claimant == ""


def test_scenario_21_an_arrival_goes_along_with_an_insert(work: WorkQueue) -> None:
    work.insert("a")
    modified = work.modify(claimed(work).renew(60), Insert(queue="b"))
    assert modified.changed[0].version == 2
    assert work.queues() == {"a": 1, "b": 1}


def test_scenario_22_a_stale_arrival_refuses_all(work: WorkQueue) -> None:
    work.insert("a")
    held = claimed(work)
    [docs] = work.claim_docs(DocClaim("n", "k"))
    [newer] = work.modify(docs.renew(5)).changed_sets
    found = faults(work, held.renew(60), docs.renew(60))
    assert found == [Fault(FaultKind.CHANGE, SetRef("n", "k", newer.version))]
    assert work.tasks("a") == [held]
    [task] = work.modify(held.renew(60)).changed
    assert faults(work, held.renew(5), newer.renew(5)) == [Fault(FaultKind.CHANGE, held.ref)]
    assert work.tasks("a") == [task]


def test_scenario_23_another_claimants_lease_is_refused(work: WorkQueue) -> None:
    work.insert("a")
    held = claimed(work)
    [docs] = work.claim_docs(DocClaim("n", "k"))
    assert faults(work, held.renew(5), claimant="other") == [Fault(FaultKind.CLAIM, held.ref)]
    assert faults(work, held.change(), claimant="other") == [Fault(FaultKind.CLAIM, held.ref)]
    assert faults(work, docs.renew(5), claimant="other") == [Fault(FaultKind.CLAIM, docs.ref)]


def test_scenario_26_a_lease_of_0_is_the_default(work: WorkQueue) -> None:
    work.insert("a")
    assert claimed(work, lease_seconds=0).lease == timedelta(seconds=45)
    [docs] = work.claim_docs(DocClaim("n", "k"), lease_seconds=0)
    assert (docs.at - work.tasks("a")[0].modified) == timedelta(seconds=45)


@pytest.mark.served_everywhere
def test_scenario_35_after_a_lease_has_run_out_the_next_holder_commits(
    work: WorkQueue, clock: ManualClock
) -> None:
    work.insert("a")
    first = claimed(work, lease_seconds=1)
    clock.advance(seconds=1)
    second = claimed(work, claimant="other")
    assert faults(work, first.delete()) == [Fault(FaultKind.DELETE, first.ref)]
    work.modify(second.delete(), claimant="other")


def test_scenario_36_a_lease_that_ran_out_still_commits_if_nobody_took_the_task(
    work: WorkQueue, clock: ManualClock
) -> None:
    work.insert("a")
    held = claimed(work, lease_seconds=1)
    clock.advance(seconds=10)
    work.modify(held.delete())
    assert work.queues() == {}


def test_a_dependency_may_be_held_by_another(work: WorkQueue) -> None:
    work.insert("a")
    held = claimed(work, claimant="other")
    [docs] = work.claim_docs(DocClaim("n", "k"), claimant="other")
    work.modify(held.depend(), docs.depend(), InsertDoc(namespace="n", key="free"))
