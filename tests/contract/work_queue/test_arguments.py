"""Calls that can never be done are refused with the reason, and write nothing."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta, timezone
from enum import StrEnum
from typing import Any

import pytest

from queue_core.errors import (
    ConfigurationError,
    InvalidPostError,
    InvalidRequestError,
    NaiveDateTimeError,
    PayloadNotSerialisableError,
    PayloadTooLargeError,
)
from tests import requirements as needs
from tests.contract.work_queue.claiming import claimed
from tests.contract.work_queue.conftest import MakeWork
from tests.contract.work_queue.docs import new
from work_queue.document import DocClaim
from work_queue.modification import (
    Change,
    ChangeDoc,
    Delete,
    Depend,
    DependSet,
    Insert,
    InsertDoc,
    Renew,
    RenewSet,
)
from work_queue.refs import DocRef, SetRef, TaskPlace, TaskRef
from work_queue.service.rpc.descriptors import API
from work_queue.service.rpc.values import read_value, write_value
from work_queue.values import MOST_DIGITS, MOST_LEVELS
from work_queue.work_queue import WorkQueue

REF, DOC, SET = TaskRef("t", 0), DocRef("n", "d", 0), SetRef("n", "k", 0)


def refused(work: WorkQueue, *actions: Any, **options: Any) -> None:
    with pytest.raises(InvalidRequestError, match=r"Nothing was written|Give|needs"):
        work.modify(*actions, **options)
    assert work.queues() == {}


@needs.any_database
def test_actions_in_a_list_and_two_about_one_task_are_refused_with_advice(work: WorkQueue) -> None:
    several: Any = [Insert(queue=f"a queue with a long name {number}") for number in range(9)]
    with pytest.raises(InvalidRequestError, match=r"….*each as an argument of its own: modify\(\*"):
        work.modify(several)
    with pytest.raises(InvalidRequestError, match="two actions are about the task 't'"):
        work.modify(Delete(REF), Depend(REF))


@needs.any_database
@pytest.mark.parametrize(
    "actions",
    [
        (),
        ("text",),
        (REF,),
        (Delete("t"),),  # type: ignore[arg-type]
        (Renew(REF, 5), Renew(TaskRef("t", 7), 5)),
        (Insert(queue="a", id="t"), Delete(REF)),
        (Change(REF, queue=""),),
        (Renew(REF, math.nan),),
        (Renew(REF, math.inf),),
        (Insert(queue="a", delay=1e12),),
        (Insert(queue="a", attempt=-1),),
        (Insert(queue="a", err="\0"),),
        (Insert(queue="a", skip_existing=True),),
        (Insert(queue="a\udc80"),),
        (Delete(TaskRef("t", -1)),),
        (Delete(TaskRef("", 0)),),
        (new(id="d"), ChangeDoc(DOC)),
        (new(key=""),),
        (InsertDoc(namespace="", key="k"),),
        (DependSet(SET), RenewSet(SET, 5)),
        (DependSet(SetRef("", "k", 0)),),
    ],
    ids=repr,
)
def test_scenarios_24_29_30_a_modification_that_can_never_be_done(
    work: WorkQueue, actions: tuple[Any, ...]
) -> None:
    refused(work, *actions)


@needs.any_database
def test_scenarios_25_27_75_claims_and_reads_that_can_never_be_done(work: WorkQueue) -> None:
    calls: list[Any] = [
        work.claim,
        lambda: work.try_claim("a", claimant=""),
        lambda: work.try_claim("a", lease_seconds=-1),
        lambda: work.claim_many("a", limit=0),
        lambda: work.claim("a", timeout_seconds="soon"),  # type: ignore[arg-type]
        lambda: work.claim("a", timeout_seconds=-1),
        lambda: work.claim_many("a", limit=1, timeout_seconds=-0.001),
        work.tasks,
        lambda: work.tasks("a", after="1"),  # type: ignore[arg-type]
        lambda: work.tasks("a", ids=["1"], after=TaskPlace(datetime.now(UTC), "1")),
        lambda: work.docs(""),
        work.claim_docs,
        lambda: work.claim_docs(DocClaim("n", "k"), DocClaim("n", "k")),
        lambda: work.claim_docs(DocClaim("", "k")),
        lambda: work.claim_docs(DocClaim("n", "")),
        lambda: work.claim_docs(DocClaim("n", "k"), lease_seconds=-1),
        lambda: work.claim_docs(DocClaim("n", "k"), lease_seconds=5, until=TaskRef("t", 0, "a")),
        lambda: work.claim_docs(DocClaim("n", "k"), until=TaskRef("t", 0)),
        lambda: work.queues(prefixes="a"),
    ]
    for call in calls:
        with pytest.raises(InvalidRequestError):
            call()
    assert work.tasks(ids=["unknown"]) == []


def test_scenario_28_limits_are_in_bytes(work: WorkQueue) -> None:
    two = "é"
    work.insert("a", id=two * 32)
    work.modify(InsertDoc(namespace=two * 512, key=two * 128, secondary_key=two * 128, id=two * 32))
    assert claimed(work, claimant=two * 32).id == two * 32
    assert len(work.docs(two * 512, key=two * 128)) == 1
    assert len(work.claim_docs(DocClaim(two * 512, two * 128), claimant=two * 32)) == 1
    for action in (
        Insert(queue="a", id=two * 33),
        Insert(queue="q" * 513),
        InsertDoc(namespace=two * 513, key="k"),
        new(key=two * 129),
        new(secondary=two * 129),
        new(id=two * 33),
    ):
        with pytest.raises(InvalidRequestError):
            work.modify(action)
    with pytest.raises(InvalidRequestError):
        work.modify(Insert(queue="a"), claimant=two * 33)
    task = work.insert("b")
    work.modify(Delete(task.ref), claimant=two * 33)
    work.modify(Depend(work.insert("𝄞" * 512).ref), claimant=two * 33)


def test_dates_are_within_the_calendar(work: WorkQueue) -> None:
    before = datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=5)))
    with pytest.raises(InvalidPostError, match="years 1 to 9999"):
        work.insert("a", at=before)


@needs.any_database
def test_dates_need_a_time_zone(work: WorkQueue) -> None:
    with pytest.raises(NaiveDateTimeError):
        work.insert("a", at=datetime(2026, 1, 1))  # noqa: DTZ001 -- that is the fault
    with pytest.raises(InvalidRequestError):
        work.insert("a", at=datetime.now().astimezone(), delay=1)
    assert work.insert("a", delay=timedelta(minutes=1)).at > work.insert("a").at


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        0,
        "",
        "text with ' and \\ and \U0001f600 and \x00",
        2**64 + 1,
        -(10**300),
        1.5,
        [],
        [1, [2, {"a": None}]],
        {"": {"é": [2**70]}},
        b"",
        b"\x00\xff not JSON",
    ],
    ids=repr,
)
def test_values_survive(work: WorkQueue, value: object) -> None:
    task = work.insert("a", value)
    [doc] = work.modify(new(content=value)).inserted_docs
    for found in (
        task.value,
        doc.content,
        work.tasks("a")[0].value,
        work.docs("n")[0].content,
        claimed(work).value,
    ):
        assert type(found) is type(value)
        assert found == value


@needs.any_database
@pytest.mark.parametrize(
    "value", [math.nan, {1: 2}, {"a": b"b"}, datetime.max.replace(tzinfo=UTC), {1, 2}], ids=repr
)
def test_a_value_that_would_not_survive_is_refused(work: WorkQueue, value: object) -> None:
    with pytest.raises(PayloadNotSerialisableError, match="Nothing was written"):
        work.insert("a", value)
    assert work.queues() == {}


def nested(levels: int, kind: type[list[Any] | dict[str, Any]]) -> Any:
    """A value of so many lists or objects, one inside another."""
    value: Any = 1
    for _ in range(levels):
        value = [value] if kind is list else {"a": value}
    return value


@needs.any_database
@pytest.mark.parametrize("kind", [list, dict])
def test_a_value_is_as_deep_as_grpcs_callers_can_read(work: WorkQueue, kind: Any) -> None:
    deepest, too_deep = nested(MOST_LEVELS, kind), nested(MOST_LEVELS + 1, kind)
    work.insert("a", deepest)
    task = work.claim("a")
    assert task.value == deepest
    message = API["ModifyRequest"]()
    write_value(deepest, message.changes.add().new_data.value)
    again = API["ModifyRequest"].FromString(message.SerializeToString())
    assert read_value(again.changes[0].new_data.value) == deepest
    for action in (
        Insert(queue="a", value=too_deep),
        task.change(value=too_deep),
        InsertDoc(namespace="n", key="k", content=too_deep),
    ):
        with pytest.raises(PayloadNotSerialisableError, match=f"more than {MOST_LEVELS} levels"):
            work.modify(action)
    assert work.queues() == {"a": 1}


@needs.any_database
@pytest.mark.parametrize("sign", [1, -1])
def test_an_integer_has_as_many_digits_as_can_be_read_again(work: WorkQueue, sign: int) -> None:
    beyond = sign * 10**MOST_DIGITS
    longest = beyond - sign
    assert work.insert("a", [longest]).value == claimed(work).value == [longest]
    for action in (
        Insert(queue="b", value={"n": beyond}),
        InsertDoc(namespace="n", key="k", content=beyond),
    ):
        with pytest.raises(PayloadNotSerialisableError, match=f"more than {MOST_DIGITS:,} digits"):
            work.modify(action)


@needs.any_database
@pytest.mark.timeout(30)
def test_a_value_that_holds_itself_is_refused(work: WorkQueue) -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(PayloadNotSerialisableError, match=f"more than {MOST_LEVELS} levels"):
        work.insert("a", value)


@needs.any_database
def test_a_value_has_a_longest_size(make_work: MakeWork) -> None:
    work = make_work(max_value_bytes=10)
    work.insert("a", "x" * 8)
    work.insert("a", b"x" * 10)
    for value in ("x" * 9, b"x" * 11):
        with pytest.raises(PayloadTooLargeError, match="max_value_bytes"):
            work.insert("a", value)


@needs.any_database
@pytest.mark.parametrize(
    "options", [{"poll_seconds": 0}, {"max_value_bytes": 0}, {"clock": 1}], ids=repr
)
def test_options_are_checked(make_work: MakeWork, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        make_work(**options)


class Marked(str):
    """A text as template engines have them."""

    __slots__ = ()


class Name(StrEnum):
    """Names as an application may have them."""

    TEXT = "a"


@needs.any_database
@pytest.mark.served_everywhere
@pytest.mark.parametrize("text", [Marked("a"), Name.TEXT], ids=["a kind of str", "an enum"])
def test_texts_of_other_kinds_are_texts(make_work: MakeWork, text: str) -> None:
    work = make_work(claimant=text)
    task = work.insert(text, 1, id=text, err=text)
    assert (task.queue, task.id, task.err) == ("a", "a", "a")
    assert len(work.tasks(text, ids=[text], claimant=text)) == 1
    assert [queue.tasks for queue in work.queue_stats(text)] == [1]
    work.modify(InsertDoc(namespace=text, key=text, secondary_key=text, id=text))
    assert len(work.docs(text, ids=[text])) == len(work.docs(text, key=text)) == 1
    [held] = work.claim_docs(DocClaim(text, text), claimant=text)
    work.modify(held.release())
    work.recur(text, text, every=60)
    assert [type(one.name) for one in work.recurring(text)] == [str]
    assert work.claim(text, claimant=text, timeout_seconds=5).claimant == "a"
    assert type(work.claimant) is str
