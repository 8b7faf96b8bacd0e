"""Tasks over api.EntroQ: what callers of the first protocol get."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
import pytest

from tests.contract.service.grpc.harness import PATIENCE_SECONDS, Stubs, details, refused
from work_queue.modification import Insert
from work_queue.service.rpc import answers
from work_queue.work_queue import WorkQueue

YEAR_MS = 366 * 86_400_000


def insert(entroq: Any, stubs: Stubs, *tasks: dict[str, Any], claimant: str = "ann") -> Any:
    """The tasks that are inserted."""
    request = stubs.api.ModifyRequest(claimant_id=claimant, inserts=tasks)
    return entroq.Modify(request).inserted


def claim(entroq: Any, stubs: Stubs, *queues: str, claimant: str = "ann", ms: int = 60_000) -> Any:
    """The task that is claimed."""
    request = stubs.api.ClaimRequest(claimant_id=claimant, queues=queues, duration_ms=ms)
    answer = entroq.TryClaim(request)
    return answer.task if answer.HasField("task") else None


def test_scenario_01_an_empty_queue_gives_nothing(entroq: Any, stubs: Stubs) -> None:
    assert claim(entroq, stubs, "a") is None
    assert not entroq.Queues(stubs.api.QueuesRequest()).queues


def test_scenario_02_a_claim_waits_until_a_task_arrives(entroq: Any, stubs: Stubs) -> None:
    now = entroq.Time(stubs.api.TimeRequest()).time_ms
    _, later = insert(
        entroq,
        stubs,
        {"queue": "a", "value": {"string_value": "ready"}},
        {"queue": "a", "value": {"string_value": "late"}, "at_ms": now + YEAR_MS},
    )
    request = stubs.api.ClaimRequest(claimant_id="ann", queues=["a"], poll_ms=1_000)
    task = entroq.Claim(request, timeout=PATIENCE_SECONDS).task
    assert (task.value.string_value, task.version, task.claims, task.claimant_id) == (
        *("ready", 1, 1, "ann"),
    )
    assert claim(entroq, stubs, "a") is None
    arrival = entroq.Time(stubs.api.TimeRequest()).time_ms + 500
    sooner = {"queue": "a", "at_ms": arrival, "value": later.value}
    change = {"old_id": {"id": later.id, "queue": "a"}, "new_data": sooner}
    entroq.Modify(stubs.api.ModifyRequest(claimant_id="ann", changes=[change]))
    late = entroq.Claim(request, timeout=PATIENCE_SECONDS).task
    assert late.value.string_value == "late"
    assert late.modified_ms >= arrival


def test_a_task_arrives_as_it_was_given(entroq: Any, stubs: Stubs, work: WorkQueue) -> None:
    [new] = insert(
        entroq,
        stubs,
        {
            "queue": "a",
            "id": "one",
            "attempt": 3,
            "err": "was bad",
            "value": {
                "struct_value": {
                    "number": 7,
                    "half": 0.5,
                    "none": None,
                    "list": [True],
                    "empty": {},
                }
            },
        },
    )
    [task] = work.tasks("a")
    assert task.value == {"number": 7, "half": 0.5, "none": None, "list": [True], "empty": {}}
    assert isinstance(task.value["number"], int)
    assert (task.id, task.attempt, task.err) == ("one", 3, "was bad")
    assert (new.id, new.version, new.claims, new.attempt, new.err) == ("one", 0, 0, 3, "was bad")
    assert new.created_ms == new.modified_ms == new.at_ms
    [read] = entroq.Tasks(stubs.api.TasksRequest(queue="a")).tasks
    assert read == new


@pytest.mark.parametrize("at_ms", [0, -62_135_596_800_000, 1_000])
def test_scenario_05_an_arrival_long_ago_is_now(entroq: Any, stubs: Stubs, at_ms: int) -> None:
    now = entroq.Time(stubs.api.TimeRequest()).time_ms
    [task] = insert(entroq, stubs, {"queue": "a", "at_ms": at_ms})
    assert task.at_ms >= now
    change = {"old_id": {"id": task.id, "queue": "a"}, "new_data": {"at_ms": now - 2 * YEAR_MS}}
    [changed] = entroq.Modify(stubs.api.ModifyRequest(claimant_id="ann", changes=[change])).changed
    assert changed.at_ms == changed.modified_ms
    assert claim(entroq, stubs, "a").id == task.id


def test_arrivals_that_are_not_long_ago_are_kept(entroq: Any, stubs: Stubs) -> None:
    now = entroq.Time(stubs.api.TimeRequest()).time_ms
    past, future = now - 3_600_000, now + 3_600_000
    tasks = insert(entroq, stubs, {"queue": "a", "at_ms": past}, {"queue": "a", "at_ms": future})
    assert [task.at_ms for task in tasks] == [past, future]


def test_scenario_93_a_change_with_an_arrival_renews(entroq: Any, stubs: Stubs) -> None:
    insert(entroq, stubs, {"queue": "a", "value": {"number_value": 1}})
    task = claim(entroq, stubs, "a")
    change = {
        "old_id": {"id": task.id, "version": task.version},
        "new_data": {"queue": "b", "at_ms": task.at_ms + 60_000, "value": task.value},
    }
    [renewed] = entroq.Modify(stubs.api.ModifyRequest(claimant_id="ann", changes=[change])).changed
    assert (renewed.queue, renewed.version, renewed.at_ms) == ("b", 2, task.at_ms + 60_000)
    assert (renewed.claimant_id, renewed.claims, renewed.value.number_value) == ("ann", 1, 1)


def test_a_lease_that_is_not_given_is_thirty_seconds(entroq: Any, stubs: Stubs) -> None:
    insert(entroq, stubs, {"queue": "a"})
    task = claim(entroq, stubs, "a", ms=0)
    assert task.at_ms - task.modified_ms == 30_000


def test_a_modification_without_actions_does_nothing(entroq: Any, stubs: Stubs) -> None:
    assert entroq.Modify(stubs.api.ModifyRequest()) == stubs.api.ModifyResponse()


def test_scenario_33_all_that_is_at_fault_is_told(
    entroq: Any, stubs: Stubs, work: WorkQueue
) -> None:
    work.modify(
        *(Insert(queue="a", id=name) for name in ("taken", "stale", "held", "kept")),
    )
    work.modify(*(work.tasks(ids=["held"])[0].renew(60),), claimant="bob")
    request = stubs.api.ModifyRequest(
        claimant_id="ann",
        inserts=[{"queue": "b", "id": "taken"}, {"queue": "b", "id": "good"}],
        changes=[{"old_id": {"id": "stale", "version": 7}, "new_data": {"queue": "a"}}],
        deletes=[{"id": "missing", "queue": "a"}, {"id": "held", "version": 1}],
        depends=[{"id": "kept", "queue": "elsewhere"}],
    )
    error = refused(grpc.StatusCode.NOT_FOUND, entroq.Modify, request)
    assert error.details() == "modification dependency error"
    detail, *items = details(error, stubs, stubs.api.ModifyDep)
    kinds = stubs.api.ActionType
    assert detail.type == kinds.Value("DETAIL")
    assert "Nothing was written" in detail.msg
    assert {(kinds.Name(item.type), item.id.id, item.id.version) for item in items} == {
        ("INSERT", "taken", 0),
        ("CHANGE", "stale", 7),
        ("DELETE", "missing", 0),
        ("CLAIM", "held", 1),
        ("DEPEND", "kept", 0),
    }
    assert not any(item.HasField("doc_id") for item in items)
    assert {task.id for task in work.tasks("a")} == {"taken", "stale", "held", "kept"}
    assert work.tasks("b") == []


def test_callers_of_the_second_protocol_are_told_by_another_code(entroq: Any, stubs: Stubs) -> None:
    request = stubs.api.ModifyRequest(claimant_id="ann", deletes=[{"id": "gone"}])
    second = [("entroq-protocol", "2")]
    error = refused(grpc.StatusCode.ABORTED, entroq.Modify, request, metadata=second)
    assert len(details(error, stubs, stubs.api.ModifyDep)) == 2
    third = [("entroq-protocol", "3")]
    refused(grpc.StatusCode.UNIMPLEMENTED, entroq.Modify, request, metadata=third)


@pytest.mark.parametrize(
    ("part", "of_at"),
    [
        ("inserts", lambda at: {"queue": "a", **at}),
        ("changes", lambda at: {"old_id": {"id": "b", "queue": "a"}, "new_data": at}),
        ("doc_inserts", lambda at: {"namespace": "n", "key": "k", **at}),
    ],
)
def test_callers_of_the_second_protocol_name_no_arrival(
    entroq: Any, stubs: Stubs, work: WorkQueue, part: str, of_at: Callable[[Any], Any]
) -> None:
    work.insert("a", id="b")
    second = [("entroq-protocol", "2")]
    later = entroq.Time(stubs.api.TimeRequest()).time_ms + YEAR_MS
    dated = stubs.api.ModifyRequest(claimant_id="ann", **{part: [of_at({"at_ms": later})]})
    refused(grpc.StatusCode.INVALID_ARGUMENT, entroq.Modify, dated, metadata=second)
    assert [task.version for task in work.tasks("a")] == [0]
    entroq.Modify(
        stubs.api.ModifyRequest(claimant_id="ann", **{part: [of_at({})]}), metadata=second
    )


def test_an_error_with_very_many_faults_reaches_its_caller(entroq: Any, stubs: Stubs) -> None:
    request = stubs.api.ModifyRequest(
        claimant_id="ann", deletes=[{"id": f"no task {number:040}"} for number in range(1000)]
    )
    error = refused(grpc.StatusCode.NOT_FOUND, entroq.Modify, request)
    assert len(details(error, stubs, stubs.api.ModifyDep)) > 50


@pytest.mark.parametrize(
    "request_of",
    [
        pytest.param(lambda api: api.ModifyRequest(inserts=[{"queue": "a"}]), id="no claimant"),
        pytest.param(lambda api: api.ModifyRequest(claimant_id="ann", inserts=[{}]), id="no queue"),
        pytest.param(
            lambda api: api.ModifyRequest(claimant_id="a" * 65, inserts=[{"queue": "a"}]),
            id="a long claimant",
        ),
        pytest.param(
            lambda api: api.ModifyRequest(
                claimant_id="ann", inserts=[{"queue": "a", "at_ms": 2**62}]
            ),
            id="no date",
        ),
        pytest.param(
            lambda api: api.ModifyRequest(
                claimant_id="ann",
                inserts=[{"queue": "a", "value": {"number_value": float("nan")}}],
            ),
            id="no number",
        ),
        pytest.param(
            lambda api: api.ModifyRequest(
                claimant_id="ann", inserts=[{"queue": "a"}], changes=[{"new_data": {}}]
            ),
            id="a change of nothing",
        ),
        pytest.param(
            lambda api: api.ModifyRequest(
                claimant_id="ann", inserts=[{"queue": "a"}], changes=[{"old_id": {"id": "b"}}]
            ),
            id="a change to nothing",
        ),
        pytest.param(
            lambda api: api.ModifyRequest(
                claimant_id="ann", inserts=[{"queue": "a"}], deletes=[{"id": ""}]
            ),
            id="a delete of nothing",
        ),
        pytest.param(
            lambda api: api.ModifyRequest(
                claimant_id="ann", inserts=[{"queue": "a"}], deletes=[{"id": "b"}, {"id": "b"}]
            ),
            id="one task twice",
        ),
        pytest.param(
            lambda api: api.ModifyRequest(
                claimant_id="ann", inserts=[{"queue": "a"}], deletes=[{"id": "b", "version": -1}]
            ),
            id="a negative version",
        ),
    ],
)
def test_what_can_never_be_done_is_an_invalid_argument(
    entroq: Any, stubs: Stubs, work: WorkQueue, request_of: Callable[[Any], Any]
) -> None:
    refused(grpc.StatusCode.INVALID_ARGUMENT, entroq.Modify, request_of(stubs.api))
    assert work.queues() == {}


@pytest.mark.parametrize(
    "fields",
    [
        {"claimant_id": "ann"},
        {"queues": ["a"]},
        {"claimant_id": "ann", "queues": ["a"], "duration_ms": -1},
        {"claimant_id": "ann", "queues": [""]},
    ],
)
def test_scenario_25_claims_that_can_never_be_done(
    entroq: Any, stubs: Stubs, fields: dict[str, Any]
) -> None:
    request = stubs.api.ClaimRequest(**fields)
    refused(grpc.StatusCode.INVALID_ARGUMENT, entroq.TryClaim, request)
    refused(grpc.StatusCode.INVALID_ARGUMENT, entroq.Claim, request)


def test_scenario_08_tasks_are_listed(entroq: Any, stubs: Stubs) -> None:
    names = ["d", "b", "a", "c"]
    insert(
        entroq,
        stubs,
        *({"queue": f"of {name}", "id": name, "value": {"string_value": name}} for name in names),
    )
    for ids in (["c", "a"], names, ["b", "unknown"]):
        request = stubs.api.TasksRequest(task_id=ids)
        found = [name for name in ids if name != "unknown"]
        assert [task.id for task in entroq.Tasks(request).tasks] == found
        streamed = list(entroq.StreamTasks(request))
        assert [len(answer.tasks) for answer in streamed] == [1] * len(found)
        assert [answer.tasks[0].id for answer in streamed] == found
    [bare] = entroq.Tasks(stubs.api.TasksRequest(queue="of a", omit_values=True)).tasks
    [full] = entroq.Tasks(stubs.api.TasksRequest(queue="of a", task_id=["a", "b"])).tasks
    assert not bare.HasField("value")
    assert full.value.string_value == "a"
    bare.value.CopyFrom(full.value)
    assert bare == full
    refused(grpc.StatusCode.INVALID_ARGUMENT, entroq.Tasks, stubs.api.TasksRequest())
    refused(grpc.StatusCode.INVALID_ARGUMENT, list, entroq.StreamTasks(stubs.api.TasksRequest()))


def test_scenario_13_tasks_are_listed_for_a_claimant(entroq: Any, stubs: Stubs) -> None:
    insert(entroq, stubs, *({"queue": "a"} for _ in range(6)))
    for claimant in ("bob", "bob", "ann", "ann"):
        claim(entroq, stubs, "a", claimant=claimant)
    for limit, count in ((0, 4), (3, 3), (50, 4)):
        request = stubs.api.TasksRequest(queue="a", claimant_id="ann", limit=limit)
        found = entroq.Tasks(request).tasks
        assert len(found) == count
        assert {task.claimant_id for task in found} <= {"ann", ""}


def test_scenario_40_queues_are_counted(entroq: Any, stubs: Stubs) -> None:
    now = entroq.Time(stubs.api.TimeRequest()).time_ms
    insert(
        entroq,
        stubs,
        {"queue": "a/1", "at_ms": now + 3_600_000},
        {"queue": "a/1"},
        {"queue": "a/1"},
        {"queue": "A/1"},
        {"queue": "a_1"},
    )
    claim(entroq, stubs, "a/1")
    expected = stubs.api.QueueStats(
        name="a/1", num_tasks=3, num_claimed=1, num_available=1, num_future=1, max_claims=1
    )
    for call in (entroq.Queues, entroq.QueueStats):
        assert list(call(stubs.api.QueuesRequest(match_prefix=["a/"])).queues) == [expected]
        assert list(call(stubs.api.QueuesRequest(match_exact=["a/1", "b"])).queues) == [expected]
        assert len(call(stubs.api.QueuesRequest()).queues) == 3
        assert len(call(stubs.api.QueuesRequest(limit=2)).queues) == 2


def test_integers_and_bytes_that_a_value_does_not_hold(
    entroq: Any, stubs: Stubs, work: WorkQueue
) -> None:
    exact, large, raw = 2**53, 2**53 + 1, b"\x00\xff"
    stored = {"exact": exact, "large": [large, -large], "raw": raw}
    ids = {name: work.insert("a", value).id for name, value in stored.items()}
    read = {task.id: task.value for task in entroq.Tasks(stubs.api.TasksRequest(queue="a")).tasks}
    assert read[ids["exact"]].number_value == exact
    large_ones = read[ids["large"]].list_value.values
    assert [value.string_value for value in large_ones] == [str(large), str(-large)]
    insert(entroq, stubs, {"queue": "b", "value": read[ids["raw"]]})
    assert work.tasks("b")[0].value == raw
    assert {task.id: task.value for task in work.tasks("a")} == {
        ids[name]: value for name, value in stored.items()
    }


def test_what_is_claimed_for_an_answer_that_fails_is_given_back(
    entroq: Any, stubs: Stubs, work: WorkQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a secret")

    monkeypatch.setattr(answers, "claimed", fail)
    work.insert("a")
    error = refused(grpc.StatusCode.INTERNAL, claim, entroq, stubs, "a")
    assert "secret" not in error.details()
    assert work.try_claim("a") is not None


def test_scenario_11_an_insert_elsewhere_wakes_a_claim(
    entroq: Any, stubs: Stubs, work: WorkQueue
) -> None:
    request = stubs.api.ClaimRequest(claimant_id="ann", queues=["a"], poll_ms=60_000)
    waiting = entroq.Claim.future(request, timeout=PATIENCE_SECONDS)
    work.insert("a", "now")
    assert waiting.result().task.value.string_value == "now"


def test_a_claim_that_its_caller_limits_ends_in_time(
    entroq: Any, stubs: Stubs, work: WorkQueue
) -> None:
    request = stubs.api.ClaimRequest(claimant_id="ann", queues=["a"])
    refused(grpc.StatusCode.DEADLINE_EXCEEDED, entroq.Claim, request, timeout=0.2)
    assert insert(entroq, stubs, {"queue": "a"})[0].version == 0
    # A look that was under way may have taken it, and gives it back.
    assert work.claim("a", timeout_seconds=PATIENCE_SECONDS).claims == 1
