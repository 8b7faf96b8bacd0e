"""The wire: what goes into it comes out of it, and nothing else does."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from queue_core.errors import (
    CommitUnknownError,
    InvalidRequestError,
    PayloadError,
    PayloadTooLargeError,
    StickybusError,
)
from work_queue import modification as actions
from work_queue.counts import NamespaceStats, WorkStats
from work_queue.document import Doc, DocClaim, DocSet
from work_queue.faults import DependencyError, Fault, FaultKind, refusal
from work_queue.modified import Modified
from work_queue.refs import DocRef, SetRef, TaskRef
from work_queue.requests import ClaimRequest, DocClaimRequest, DocQuery, NameQuery, TaskQuery
from work_queue.rights import Kind, Need, Right, denial
from work_queue.task import Task
from work_queue.values import UNREAD
from work_queue.wire import calls as wire
from work_queue.wire.failures import RAISED

texts = some.text(some.characters(exclude_categories=["Cs"]))
numbers = some.integers(0, 2**31 - 1)
seconds = some.floats(-(10**9), 10**9)
dates = some.datetimes(timezones=some.just(UTC)).map(lambda date: date.replace(fold=0))
json_values = some.recursive(
    some.none()
    | some.booleans()
    | some.integers()
    | some.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: some.lists(inner) | some.dictionaries(texts, inner),
    max_leaves=8,
)
values = json_values | some.binary()
read = values | some.just(UNREAD)


def of(kind: Any, **fields: Any) -> Any:
    return some.builds(kind, **fields)


task_refs = of(TaskRef, id=texts, version=numbers, queue=texts)
doc_refs = of(DocRef, namespace=texts, id=texts, version=numbers)
set_refs = of(SetRef, namespace=texts, key=texts, version=numbers)
delays = some.none() | seconds | some.timedeltas(timedelta(days=-9), timedelta(days=9))
contents: dict[str, Any] = {"value": values, "delay": delays, "attempt": numbers, "err": texts}
all_actions = some.one_of(
    of(actions.Insert, queue=texts, at=some.none() | dates, id=some.none() | texts, **contents),
    of(actions.Change, task=task_refs, queue=some.none() | texts, **contents | {"value": read}),
    of(actions.Delete, task=task_refs),
    of(actions.Depend, task=task_refs),
    of(
        actions.Renew,
        task=task_refs,
        seconds=seconds,
        undo_claim=some.booleans(),
        with_value=some.booleans(),
    ),
    of(actions.InsertDoc, namespace=texts, key=texts, content=values, id=some.none() | texts),
    of(actions.ChangeDoc, doc=doc_refs, content=values, delay=seconds),
    of(actions.DeleteDoc, doc=doc_refs),
    of(actions.DependDoc, doc=doc_refs),
    of(actions.DependSet, docs=set_refs),
    of(actions.RenewSet, docs=set_refs, seconds=seconds),
)
tasks = of(
    Task,
    **dict.fromkeys(("id", "queue", "claimant", "err"), texts),
    **dict.fromkeys(("at", "created", "modified"), dates),
    **dict.fromkeys(("version", "claims", "attempt"), numbers),
    value=read,
)
docs = of(
    Doc,
    **dict.fromkeys(("namespace", "id", "claimant", "key", "secondary_key"), texts),
    **dict.fromkeys(("at", "created", "modified"), dates),
    version=numbers,
    content=read,
)
sets = of(
    DocSet,
    **dict.fromkeys(("namespace", "key", "claimant"), texts),
    version=numbers,
    at=dates,
    docs=some.lists(docs, max_size=2).map(tuple),
)


def several(items: Any) -> Any:
    return some.lists(items, max_size=3).map(tuple)


claims = of(
    ClaimRequest, claimant=texts, queues=several(texts), lease_seconds=seconds, limit=numbers
)
REQUESTS: list[tuple[wire.Call[Any, Any], Any]] = [
    (wire.CLAIM, of(wire.Claim, request=claims, timeout_seconds=seconds, ticket=texts)),
    (wire.LEAVE, of(wire.Leave, ticket=texts)),
    (wire.MODIFY, of(wire.Modify, claimant=texts, actions=several(all_actions))),
    (
        wire.CLAIM_DOCS,
        of(
            DocClaimRequest,
            claimant=texts,
            claims=several(of(DocClaim, namespace=texts, key=texts, omit_docs=some.booleans())),
            lease_seconds=seconds,
            until=some.none() | task_refs,
        ),
    ),
    (
        wire.TASKS,
        of(
            TaskQuery,
            queue=some.none() | texts,
            ids=some.none() | several(texts),
            claimant=some.none() | texts,
            limit=some.none() | numbers,
            with_values=some.booleans(),
        ),
    ),
    (
        wire.DOCS,
        of(
            DocQuery,
            namespace=texts,
            ids=some.none() | several(texts),
            key=some.none() | texts,
            first_key=texts,
            end_key=texts,
            limit=some.none() | numbers,
            with_contents=some.booleans(),
        ),
    ),
    (
        wire.QUEUE_STATS,
        of(NameQuery, prefixes=several(texts), names=several(texts), limit=some.none() | numbers),
    ),
    (wire.TIME, of(wire.Time)),
]
RESULTS: list[tuple[wire.Call[Any, Any], Any]] = [
    (wire.CLAIM, some.lists(tasks, max_size=3)),
    (wire.CLAIM_DOCS, some.lists(sets, max_size=2)),
    (
        wire.MODIFY,
        of(
            Modified,
            inserted=several(tasks),
            changed=several(tasks),
            inserted_docs=several(docs),
            changed_docs=several(docs),
            changed_sets=several(sets),
        ),
    ),
    (wire.TASKS, some.lists(tasks, max_size=3)),
    (wire.DOCS, some.lists(docs, max_size=3)),
    (
        wire.QUEUE_STATS,
        some.lists(
            of(
                WorkStats,
                queue=texts,
                **dict.fromkeys(("tasks", "claimed", "available", "future", "max_claims"), numbers),
            ),
            max_size=3,
        ),
    ),
    (
        wire.NAMESPACE_STATS,
        some.lists(of(NamespaceStats, namespace=texts, docs=numbers, claimed=numbers), max_size=3),
    ),
    (wire.TIME, dates),
]


def same(one: Any, other: Any) -> bool:
    """Equal, and of the same kinds: 1 is no 1.0, and no True."""
    return one == other and repr(one) == repr(other)


@pytest.mark.parametrize(("call", "requests"), REQUESTS, ids=lambda case: getattr(case, "name", ""))
@given(data=some.data())
def test_a_request_arrives_as_it_was_sent(call: Any, requests: Any, data: Any) -> None:
    request = data.draw(requests)
    assert same(call.asked(call.ask(request, 10**9)), request)


@pytest.mark.parametrize(("call", "results"), RESULTS, ids=lambda case: getattr(case, "name", ""))
@given(data=some.data())
def test_a_result_arrives_as_it_was_sent(call: Any, results: Any, data: Any) -> None:
    result = data.draw(results)
    assert same(call.answered(call.answer(result)), result)


def test_a_date_of_another_zone_is_the_same_moment() -> None:
    date = datetime(2026, 1, 2, 3, 4, 5, 678901, timezone(timedelta(hours=5, minutes=30)))
    sent = wire.Modify("me", (actions.Insert(queue="a", at=date),))
    [arrived] = wire.MODIFY.asked(wire.MODIFY.ask(sent, 10**9)).actions
    assert isinstance(arrived, actions.Insert)
    assert arrived.at == date


@pytest.mark.parametrize("kind", RAISED)
def test_an_error_arrives_as_it_was_raised(kind: type[StickybusError]) -> None:
    error = kind("what happened")
    vars(error).update(key="queue", size_bytes=7)
    with pytest.raises(StickybusError) as caught:
        wire.TIME.answered(wire.refuse(error))
    assert type(caught.value) is kind
    assert str(caught.value) == "what happened"
    assert vars(caught.value) | {"faults": (), "needs": ()} == vars(error) | {
        "faults": (),
        "needs": (),
    }


def test_faults_and_needs_arrive() -> None:
    faults = (
        Fault(FaultKind.CLAIM, TaskRef("1", 2, "q")),
        Fault(FaultKind.CHANGE, DocRef("n", "i", 3)),
        Fault(FaultKind.INSERT, SetRef("n", "k", 4)),
    )
    with pytest.raises(DependencyError) as refused:
        wire.MODIFY.answered(wire.refuse(refusal("modify", faults)))
    assert refused.value.faults == faults
    missing = (Need(Right.READ, Kind.QUEUE, "a", prefix=True),)
    denied = denial("ann", missing)
    with pytest.raises(type(denied)) as caught:
        wire.MODIFY.answered(wire.refuse(denied))
    assert caught.value.needs == missing


def test_an_error_of_a_later_version_is_one_of_ours() -> None:
    with pytest.raises(StickybusError, match="new") as caught:
        wire.TIME.answered(b'{"error":{"kind":"NewError","message":"new"}}')
    assert type(caught.value) is StickybusError


def _modify(action: dict[str, Any]) -> dict[str, Any]:
    return {"version": 1, "request": {"claimant": "me", "actions": [action]}}


INSERT = {"type": "Insert", "queue": "a"}


@pytest.mark.parametrize(
    "request_",
    [
        {},
        [],
        {"request": {}},
        {"version": 1, "request": {}},
        {"version": 1, "request": {"claimant": "me", "actions": {}}},
        {"version": 1, "request": {"claimant": "me", "actions": [], "force": True}},
        _modify({}),
        _modify({"queue": "a"}),
        _modify({"type": "Explode", "queue": "a"}),
        _modify(INSERT | {"priority": 1}),
        _modify(INSERT | {"queue": 1}),
        _modify(INSERT | {"attempt": "1"}),
        _modify(INSERT | {"at": "yesterday"}),
        _modify(INSERT | {"value": 1}),
        _modify(INSERT | {"value": {"json": 1, "bytes": "AA=="}}),
        _modify(INSERT | {"value": {"bytes": "?"}}),
        _modify(INSERT | {"value": {"text": "x"}}),
        _modify(
            {
                "type": "Delete",
                "task": {"type": "DocRef", "namespace": "n", "id": "1", "version": 1},
            }
        ),
    ],
)
def test_what_is_no_request_is_refused(request_: Any) -> None:
    with pytest.raises(InvalidRequestError, match="Nothing was written"):
        wire.MODIFY.asked(json.dumps(request_).encode())


@given(some.binary())
def test_what_is_no_json_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidRequestError):
        wire.MODIFY.asked(data)


def test_another_version_is_refused_clearly() -> None:
    body = wire.TIME.ask(wire.Time(), 10).replace(b'"version":1', b'"version":2')
    with pytest.raises(InvalidRequestError, match=r"version 2 .* version 1"):
        wire.TIME.asked(body)


def test_a_value_that_cant_be_stored_is_not_sent() -> None:
    for value in (object(), float("nan"), UNREAD, {1: 2}):
        with pytest.raises(PayloadError, match="Insert: the value"):
            wire.MODIFY.ask(wire.Modify("me", (actions.Insert(queue="a", value=value),)), 10**9)
    with pytest.raises(PayloadTooLargeError):
        wire.MODIFY.ask(wire.Modify("me", (actions.Insert(queue="a", value="x" * 9),)), 10)


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"<html>", b'{"result":7}'])
def test_what_is_no_answer_is_told_apart(data: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 -- as msgspec says it
        wire.TASKS.answered(data)


def test_an_answer_may_say_more_than_its_reader_knows() -> None:
    stats = WorkStats("a", 1, 0, 1, 0, 0)
    body = wire.QUEUE_STATS.answer([stats]).replace(b'"queue"', b'"new":{"more":1},"queue"')
    assert wire.QUEUE_STATS.answered(body) == [stats]
    body = wire.refuse(CommitUnknownError("?")).replace(b'"kind"', b'"new":1,"kind"')
    with pytest.raises(CommitUnknownError):
        wire.TIME.answered(body)


def test_a_commit_that_is_unknown_is_so_at_the_client() -> None:
    with pytest.raises(CommitUnknownError):
        wire.MODIFY.answered(wire.refuse(CommitUnknownError("COMMIT gave no answer")))
