"""Requests over HTTP of old and new callers."""

from __future__ import annotations

import pytest

from tests import requirements as needs
from tests.contract.service.http.requests import HOUR_MS, YEAR_MS, inserted, now_ms
from tests.contract.service.http.running import OLD, Json, Running, task_id, types_of

pytestmark = needs.any_database


@pytest.mark.parametrize("protocol", ["3", "0", "two", "1,2", ""])
def test_protocols_that_are_not_served_are_refused(service: Running, protocol: str) -> None:
    refusal = service.refusal(501, "/time", headers={"entroq-protocol": protocol})
    assert refusal["code"] == 12


def test_scenario_93_old_callers_name_dates(service: Running) -> None:
    now = now_ms(service)
    dates = {
        "now": 0,
        "zero": -62_135_596_800_000,
        "old": now - 2 * YEAR_MS,
        "past": now - HOUR_MS,
        "late": now + HOUR_MS,
    }
    body = {
        "claimantId": "me",
        "inserts": [{"queue": "a", "id": id_, "atMs": str(ms)} for id_, ms in dates.items()],
    }
    found = service.answer("/modify", body, headers=OLD)["inserted"]
    at = {task["id"]: int(task["atMs"]) for task in found}
    for id_ in ("now", "zero", "old"):
        assert now <= at[id_] < now + 60_000
    for id_ in ("past", "late"):
        assert abs(at[id_] - dates[id_]) < 5_000


def test_scenario_05_a_change_to_a_date_of_long_ago_makes_a_task_ready(service: Running) -> None:
    task = inserted(service, byMs=HOUR_MS)
    old = now_ms(service) - 2 * YEAR_MS
    change = {"oldId": task_id(task), "newData": {"queue": "a", "atMs": old}}
    service.answer("/modify", {"claimantId": "me", "changes": [change]}, headers=OLD)
    assert service.claim("a") is not None


@pytest.mark.parametrize("protocol", [1, 2])
@pytest.mark.parametrize("ms", [253_402_300_799_000, 10**400])
def test_a_refused_time_is_named_as_it_was_sent(service: Running, protocol: int, ms: int) -> None:
    headers, name = (OLD, "atMs") if protocol == 1 else ({}, "byMs")
    place = {"namespace": "n", "key": "k"}
    bodies = [{"docInserts": [{**place, name: ms}]}]
    if protocol == 2 or ms == 10**400:
        bodies.append({"inserts": [{"queue": "a", name: ms}]})
    for body in bodies:
        refusal = service.refusal(400, "/modify", {"claimantId": "me", **body}, headers=headers)
        assert refusal["message"].startswith(f"{name}={ms}"[:80])
    claim = {"claimantId": "me", "queues": ["a"], "durationMs": ms}
    assert service.refusal(400, "/claim", claim, headers=headers)["message"].startswith(
        "durationMs"
    )


def test_scenario_93_old_callers_name_tasks_by_their_id_alone(service: Running) -> None:
    task = inserted(service)
    gone = {"id": task["id"], "version": 0}
    refusal = service.refusal(
        404, "/modify", {"claimantId": "me", "deletes": [{**gone, "version": 4}]}, headers=OLD
    )
    assert (refusal["code"], types_of(refusal)) == (5, ["DELETE"])
    service.answer("/modify", {"claimantId": "me", "deletes": [gone]}, headers=OLD)
    assert service.answer("/queues")["queues"] == []


def test_scenario_93_old_callers_claim_one_set_of_docs(service: Running) -> None:
    service.modify(docInserts=[{"namespace": "n", "key": "k", "id": "x", "content": 1}])
    query = {"namespace": "n", "claimant": "old", "key": "k", "durationMs": "60000"}
    [doc] = service.answer("/docs/claim", {"claimQuery": query}, headers=OLD)["docs"]
    assert (doc["id"], doc["version"], doc["claimant"]) == ("x", 1, "old")
    query["claimant"] = "other"
    refusal = service.refusal(404, "/docs/claim", {"claimQuery": query}, headers=OLD)
    assert types_of(refusal) == ["CLAIM"]


@pytest.mark.parametrize(
    "query",
    [
        {"sets": [{"set": {"namespace": "n", "key": "k"}}]},
        {"namespace": "n", "key": "k", "taskToMatch": {"id": "x", "version": 1, "queue": "a"}},
    ],
)
def test_scenario_31_sets_of_docs_need_protocol_2(service: Running, query: Json) -> None:
    body = {"claimQuery": {"claimant": "me", **query}}
    service.refusal(400, "/docs/claim", body, headers=OLD)


@pytest.mark.parametrize("insert", [{"byMs": 1}, {"byMs": "-1"}])
def test_scenario_93_old_callers_name_no_durations(service: Running, insert: Json) -> None:
    body = {"claimantId": "me", "inserts": [{"queue": "a", **insert}]}
    service.refusal(400, "/modify", body, headers=OLD)


def test_scenario_93_an_old_caller_may_modify_nothing(service: Running) -> None:
    empty: Json = {"inserted": [], "changed": [], "insertedDocs": [], "changedDocs": []}
    assert service.answer("/modify", {"claimantId": "me"}, headers=OLD) == empty
    service.refusal(400, "/modify", {"claimantId": "me"})
