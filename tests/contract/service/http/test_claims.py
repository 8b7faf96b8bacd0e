"""Claims over HTTP, as any client may send them."""

from __future__ import annotations

import pytest

from tests.contract.service.http.requests import inserted, now_ms
from tests.contract.service.http.running import NEW, OLD, Json, Running


def test_scenario_01_an_empty_queue_gives_nothing(service: Running) -> None:
    assert service.answer("/claim", {"claimantId": "me", "queues": ["a"]}) == {"task": None}
    assert service.answer("/queues")["queues"] == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"queues": []},
        {"claimantId": ""},
        {"durationMs": "-1"},
        {"durationMs": "soon"},
        {"durationMs": 10**25},
        {"pollMs": "soon"},
        {"queues": "a"},
        {"queues": [1]},
        {"queues": [""]},
        {"queues": ["a\0"]},
    ],
)
@pytest.mark.parametrize("path", ["/claim", "/claim/wait"])
def test_scenario_25_claims_that_make_no_sense_are_refused(
    service: Running, path: str, wrong: Json
) -> None:
    inserted(service)
    right = {"claimantId": "me", "queues": ["a"], "durationMs": "1000"}
    service.refusal(400, path, {**right, **wrong})
    assert service.answer("/tasks", queue="a")["tasks"][0]["claims"] == 0


@pytest.mark.parametrize(("headers", "seconds"), [(NEW, 45), (OLD, 30)])
def test_scenario_26_a_claim_without_a_duration_has_the_default_lease(
    service: Running, headers: dict[str, str], seconds: int
) -> None:
    inserted(service)
    body = {"claimantId": "me", "queues": ["a"], "durationMs": "0"}
    task = service.answer("/claim", body, headers=headers)["task"]
    assert int(task["atMs"]) - int(task["modifiedMs"]) == seconds * 1000
    query = {"claimant": "me", "namespace": "n", "key": "k"}
    before = now_ms(service)
    [claimed] = service.answer("/docs/claim", {"claimQuery": query}, headers=headers)["sets"]
    assert int(claimed["atMs"]) - before >= seconds * 1000


@pytest.mark.parametrize(
    "wrong",
    [
        {"sets": []},
        {"sets": [{"set": {"namespace": "n", "key": "k"}}] * 2},
        {"sets": [{"set": {"namespace": "n"}}]},
        {"sets": [{"set": {"key": "k"}}]},
        {"sets": [{"set": {"namespace": "n", "key": "k", "id": "x"}}]},
        {"sets": [{}]},
        {"claimant": ""},
        {"durationMs": -1},
        {"taskToMatch": {"id": "x", "version": 1, "queue": "a"}},
        {"durationMs": 0, "taskToMatch": {"id": "x", "version": 1}},
        {"durationMs": 0, "taskToMatch": {}},
        {"namespace": "n", "key": "k"},
    ],
)
def test_scenario_75_claims_of_docs_that_make_no_sense_are_refused(
    service: Running, wrong: Json
) -> None:
    right = {
        "claimant": "me",
        "sets": [{"set": {"namespace": "n", "key": "k"}}],
        "durationMs": 1000,
    }
    service.refusal(400, "/docs/claim", {"claimQuery": {**right, **wrong}})
    assert service.answer("/namespaces/stats")["namespaces"] == []
