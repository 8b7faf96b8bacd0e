"""Each way to break an invariant is found by the checker, and what is allowed is not."""

from __future__ import annotations

from typing import Any

import pytest

from queue_core.model.states import State
from tests.checker import (
    Evidence,
    Invariant,
    LeaseEnded,
    Limits,
    Posted,
    Ran,
    Standing,
    duplicate_runs,
    judge,
)


def post(key: int = 1, **changed: Any) -> Posted:
    return Posted(
        **{"key": key, "node": "a", "at": 0.0, "sticky": True, "committed": True, **changed}
    )


def run(record_id: int = 1, **changed: Any) -> Ran:
    known = {
        "key": 1,
        "claim_count": 1,
        "node": "a",
        "incarnation": 1,
        "started": 1.0,
        "ended": 2.0,
    }
    return Ran(record_id=record_id, **{**known, **changed})


def row(record_id: int = 1, state: State = State.PROCESSED, **changed: Any) -> Standing:
    known: dict[str, Any] = {
        "key": 1,
        "origin_id": None,
        "replay_of": None,
        "processing_owner": "a",
        "claim_count": 1,
        "error_count": 0,
        "redispatch_count": 0,
        "crash_count": 0,
    }
    return Standing(record_id=record_id, state=state, **{**known, **changed})


def evidence(**changed: Any) -> Evidence:
    return Evidence(**{"posted": [post()], "ran": [run()], "history": [row()], **changed})


REAPED = row(state=State.REAPED)
COPY = row(2, origin_id=1, redispatch_count=1, processing_owner="b")
HEIR = run(2, node="b", started=6.0, ended=7.0)
DEAD = LeaseEnded(node="a", incarnation=1, at=5.0)

ALLOWED = {
    "one run": evidence(),
    "an unknown commit that was none": evidence(posted=[post(committed=None)], ran=[], history=[]),
    "an unknown commit that was one": evidence(posted=[post(committed=None)]),
    "a rollback": evidence(posted=[post(committed=False)], ran=[], history=[]),
    "a removal": evidence(ran=[], history=[row(state=State.REMOVED)]),
    "an heir": evidence(ran=[run(ended=None), HEIR], history=[REAPED, COPY], leases_ended=[DEAD]),
    "a zombie that goes on": evidence(
        ran=[run(ended=9.0), HEIR], history=[REAPED, COPY], leases_ended=[DEAD]
    ),
    "a retry": evidence(
        ran=[run(failed=True), run(claim_count=2, started=3.0, ended=4.0, error_count=1)],
        history=[row(error_count=1, claim_count=2)],
    ),
    "a replay": evidence(
        ran=[run(failed=True), run(2, node="b", started=1.5, ended=3.0)],
        history=[row(state=State.FAILED, last_error="RuntimeError"), row(2, replay_of=1)],
    ),
    "what any node may run": evidence(posted=[post(sticky=False)], ran=[run(node="b")]),
}

BROKEN = {
    "committed, and nowhere": (Invariant.NO_LOSS, evidence(ran=[], history=[])),
    "a chain that breaks off": (Invariant.NO_LOSS, evidence(history=[REAPED])),
    "recorded as done, never run": (Invariant.NO_LOSS, evidence(ran=[])),
    "recorded as done by a run that failed": (Invariant.NO_LOSS, evidence(ran=[run(failed=True)])),
    "rolled back, and run": (
        Invariant.NO_PHANTOM,
        evidence(posted=[post(committed=False)], history=[]),
    ),
    "rolled back, and recorded": (
        Invariant.NO_PHANTOM,
        evidence(posted=[post(committed=False)], ran=[]),
    ),
    "never posted": (Invariant.NO_PHANTOM, evidence(posted=[])),
    "two terminal rows": (
        Invariant.RECORDED_ONCE,
        evidence(history=[row(), row(2, State.FAILED, origin_id=1, last_error="x")]),
    ),
    "in main and in history": (
        Invariant.RECORDED_ONCE,
        evidence(main=[row(state=State.AVAILABLE)]),
    ),
    "one id twice in history": (Invariant.RECORDED_ONCE, evidence(history=[row(), row()])),
    "two copies of one reaped": (
        Invariant.RECORDED_ONCE,
        evidence(
            main=[
                row(number, State.AVAILABLE, origin_id=1, redispatch_count=1) for number in (2, 3)
            ],
            history=[REAPED],
        ),
    ),
    "two chains of one post": (Invariant.RECORDED_ONCE, evidence(history=[row(), row(2)])),
    "two nodes at once": (
        Invariant.ONE_RUNNER,
        evidence(ran=[run(ended=6.5), HEIR], history=[REAPED, COPY]),
    ),
    "one node twice at once": (
        Invariant.ONE_RUNNER,
        evidence(ran=[run(), run(claim_count=2, started=1.5, ended=3.0)]),
    ),
    "a zombie that starts beside its heir": (
        Invariant.ONE_RUNNER,
        evidence(
            ran=[HEIR, run(started=6.5, ended=8.0)], history=[REAPED, COPY], leases_ended=[DEAD]
        ),
    ),
    "another node, its own alive": (Invariant.STICKY, evidence(ran=[run(node="b")])),
    "another node, its own dead before the post": (
        Invariant.STICKY,
        evidence(
            posted=[post(at=6.0)], ran=[run(node="b", started=7.0, ended=8.0)], leases_ended=[DEAD]
        ),
    ),
    "never ended": (
        Invariant.NEVER_SILENT,
        evidence(history=[], main=[row(state=State.IN_PROCESSING)]),
    ),
    "failed without a reason": (
        Invariant.NEVER_SILENT,
        evidence(ran=[run(failed=True)], history=[row(state=State.FAILED, last_error=" ")]),
    ),
    "retried too often": (
        Invariant.BOUNDED,
        evidence(history=[row(error_count=5)], limits=Limits(max_failure_retries=3)),
    ),
    "retried more often than two subscribers may be": (
        Invariant.BOUNDED,
        evidence(history=[row(error_count=9)], limits=Limits(max_failure_retries=3, subscribers=2)),
    ),
    "redispatched too often": (
        Invariant.BOUNDED,
        evidence(history=[row(crash_count=7)], limits=Limits(max_redispatches=5)),
    ),
    "failures forgotten": (
        Invariant.BOUNDED,
        evidence(
            ran=[run(failed=True, error_count=2), run(claim_count=2, started=3.0, error_count=0)]
        ),
    ),
    "too many in flight": (
        Invariant.BOUNDED,
        evidence(most_in_flight={"a": 11}, limits=Limits(in_flight=10)),
    ),
}


@pytest.mark.parametrize("case", ALLOWED)
def test_what_is_allowed_is_no_violation(case: str) -> None:
    assert judge(ALLOWED[case]) == []


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_invariant_is_found_and_named(case: str) -> None:
    invariant, found = BROKEN[case]
    assert invariant in {violation.invariant for violation in judge(found)}


def test_a_violation_names_its_entries_and_says_what_happened() -> None:
    [violation] = judge(evidence(ran=[run(node="b")]))
    assert str(violation) == "sticky: key 1 of a, which was alive, ran on b (entries 1)"


def test_a_row_of_the_database_is_read_as_it_stands() -> None:
    columns: dict[str, Any] = {
        "record_id": 7,
        "search_key1": 1,
        "origin_id": 3,
        "replay_of": None,
        "processing_owner": "a",
        "processing_state": "FAILED",
        "claim_count": 2,
        "error_count": 1,
        "redispatch_count": 1,
        "crash_count": 0,
        "last_error": "x",
        "lane": "a",
    }
    standing = Standing.of(columns)
    assert (standing.key, standing.chain, standing.state) == (1, 3, State.FAILED)


def test_runs_that_repeat_a_success_are_counted() -> None:
    ran = [run(ended=None), run(claim_count=2), run(claim_count=3), run(claim_count=4, failed=True)]
    assert duplicate_runs(evidence(ran=ran)) == 1
