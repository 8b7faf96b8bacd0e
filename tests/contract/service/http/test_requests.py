"""Requests over HTTP, as any client may send them, and what every answer has."""

from __future__ import annotations

import time

import pytest

from tests import requirements as needs
from tests.contract.service.http.conftest import Serve
from tests.contract.service.http.requests import HOUR_MS, inserted
from tests.contract.service.http.running import Json, Running, task_id

pytestmark = needs.any_database


# -- what every answer has ------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/time", "/tasks", "/nothing", "/modify"])
def test_every_answer_names_the_protocols(service: Running, path: str) -> None:
    response = service.call(path)
    assert response.headers["entroq-protocol"] == "1,2"
    assert response.headers["entroq-version"].startswith("stickybus ")


def test_a_task_has_all_of_its_fields(service: Running) -> None:
    task = inserted(service, value={"to": "ann"}, attempt=2, err="why")
    assert task == {
        "queue": "a",
        "id": task["id"],
        "version": 0,
        "atMs": task["createdMs"],
        "claimantId": "",
        "value": {"to": "ann"},
        "createdMs": task["createdMs"],
        "modifiedMs": task["createdMs"],
        "claims": 0,
        "attempt": 2,
        "err": "why",
    }
    assert abs(int(task["createdMs"]) - time.time() * 1000) < 60_000


@pytest.mark.parametrize("value", [0, "", False, [], {}, None, 2**70, -(2**64), 1.5, "ü\u2028\0"])
def test_values_survive(service: Running, value: object) -> None:
    task = inserted(service, value=value)
    [read] = service.answer("/tasks", queue="a")["tasks"]
    assert read == task
    assert read["value"] == value
    assert type(read["value"]) is type(value)


def test_bytes_are_marked_and_survive(service: Running) -> None:
    stored = service.work.insert("a", b"\xff\0")
    [read] = service.answer("/tasks", queue="a")["tasks"]
    assert read["value"] == {"$bytes": "/wA="}
    data = {"queue": "b", "value": read["value"]}
    service.modify(changes=[{"oldId": task_id(read), "newData": data}])
    [changed] = service.work.tasks("b")
    assert (changed.id, changed.value) == (stored.id, b"\xff\0")


def test_numbers_may_come_as_texts(service: Running) -> None:
    task = inserted(service, byMs=str(HOUR_MS), attempt="3")
    assert task["attempt"] == 3
    assert int(task["atMs"]) - int(task["createdMs"]) == HOUR_MS
    gone = {"id": task["id"], "version": "0", "queue": "a"}
    service.modify(deletes=[gone])
    assert service.answer("/tasks", queue="a")["tasks"] == []


@pytest.mark.parametrize("hour", [b"3600000.0", b"3.6e6", b'"3600000.00"', b'"36E+5"', b'"3.6e6"'])
def test_whole_numbers_may_have_fractions_and_exponents(service: Running, hour: bytes) -> None:
    body = b'{"claimantId": "me", "inserts": [{"queue": "a", "byMs": %s}]}' % hour
    [task] = service.answer("/modify", body)["inserted"]
    assert int(task["atMs"]) - int(task["createdMs"]) == HOUR_MS


@pytest.mark.parametrize(
    "number",
    [
        *(b"0.5", b"1e300", b"true", b"[]", b'"0.5"', b'"1e300"', b'"1e-3"', b'"1e9999"'),
        *(b'"1_0"', b'" 1"', b'"NaN"', b'"1."', b'""', b'"\\u0661"', b'"%s"' % (b"9" * 20)),
    ],
)
def test_what_is_no_whole_number_is_refused(service: Running, number: bytes) -> None:
    body = b'{"claimantId": "me", "inserts": [{"queue": "a", "byMs": %s}]}' % number
    service.refusal(400, "/modify", body)
    assert service.answer("/queues")["queues"] == []


def test_fields_may_have_the_names_of_messages(service: Running) -> None:
    value = {"old_id": {"at_ms": [1]}}
    data = {"queue": "a", "by_ms": HOUR_MS, "value": value}
    [task] = service.answer("/modify", {"claimant_id": "ann", "inserts": [data]})["inserted"]
    assert int(task["atMs"]) - int(task["createdMs"]) == HOUR_MS
    assert task["value"] == value
    change = {"old_id": task_id(task), "new_data": {"queue": "a", "value": value}, "mode": 0}
    [task] = service.answer("/modify", {"claimant_id": "ann", "changes": [change]})["changed"]
    assert (task["claimantId"], task["value"]) == ("", value)
    claim = {"claimant_id": "bob", "queues": ["a"], "duration_ms": HOUR_MS}
    claimed = service.answer("/claim", claim)["task"]
    assert claimed["claimantId"] == "bob"
    assert int(claimed["atMs"]) - int(claimed["modifiedMs"]) == HOUR_MS
    doc = {"namespace": "n", "key": "k", "secondary_key": "s", "content": value}
    [doc] = service.answer("/modify", {"claimant_id": "me", "doc_inserts": [doc]})["insertedDocs"]
    assert (doc["secondaryKey"], doc["content"]) == ("s", value)
    sets = [{"set": {"namespace": "n", "key": "k"}, "omit_members": True}]
    found = service.answer("/docs/claim", {"claim_query": {"claimant": "me", "sets": sets}})
    assert (len(found["docs"]), len(found["sets"])) == (0, 1)


@pytest.mark.parametrize("twice", [{"byMs": 0, "by_ms": 0}, {"by_ms": 1, "byMs": None}])
def test_a_field_with_both_of_its_names_is_refused(service: Running, twice: Json) -> None:
    refusal = service.refusal(400, "/modify", {"claimantId": "me", "inserts": [twice]})
    assert "byMs is given twice" in refusal["message"]


def test_modes_have_names(service: Running) -> None:
    task = inserted(service)
    change = {"oldId": task_id(task), "newData": {"queue": "a"}, "mode": 2}
    refusal = service.refusal(400, "/modify", {"claimantId": "me", "changes": [change]})
    assert "CHANGE_LEASE" in refusal["message"]


def test_fields_that_are_null_or_unknown_are_left_alone(service: Running) -> None:
    task = inserted(service, id=None, byMs=None, err=None, colour="red")
    assert task["version"] == 0


# -- what can't be read ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b"null",
        b'"text"',
        b"\xff",
        b'{"claimantId": "\xff"}',
        b'{"claimantId": "\\ud800"}',
        b'{"claimantId": 1}',
        b'{"inserts": {}}',
        b'{"claimantId": "me", "inserts": [{"queue": "a", "value": NaN}]}',
        b'{"claimantId": "me", "inserts": [{"queue": "a", "value": 1e999}]}',
        b'{"claimantId": "me", "inserts": [{"queue": "a", "value": ' + b"[" * 100_000,
    ],
)
def test_bodies_that_make_no_sense_are_refused(service: Running, body: bytes) -> None:
    service.refusal(400, "/modify", body)
    assert service.answer("/queues")["queues"] == []


def test_a_request_that_is_too_long_is_refused(serve: Serve) -> None:
    service = serve(max_request_bytes=1000)
    body = {"claimantId": "me", "inserts": [{"queue": "a", "value": "x" * 1000}]}
    assert service.refusal(413, "/modify", body)["code"] == 8
    assert service.answer("/queues")["queues"] == []
    body["inserts"] = [{"queue": "a"}]
    service.answer("/modify", body)


@pytest.mark.parametrize(
    ("method", "path", "status"), [("GET", "/nothing", 404), ("DELETE", "/api/v0/tasks", 405)]
)
def test_paths_and_methods_that_are_not_there(
    service: Running, method: str, path: str, status: int
) -> None:
    response = service.client.request(method, service.url + path)
    assert response.status_code == status
    assert set(response.json()) == {"code", "message", "details"}
