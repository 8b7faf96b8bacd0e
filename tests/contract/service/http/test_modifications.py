"""Modifications over HTTP, as any client may send them."""

from __future__ import annotations

import pytest

from tests.contract.service.http.requests import HOUR_MS, inserted
from tests.contract.service.http.running import OLD, Json, Running, task_id, types_of
from work_queue.modification import InsertDoc


@pytest.mark.parametrize(
    "part",
    [
        {},
        {"changes": [{"newData": {"byMs": 1}, "mode": "CHANGE_LEASE"}]},
        {"changes": [{"oldId": {"version": 0}, "newData": {"byMs": 1}, "mode": "CHANGE_LEASE"}]},
        {
            "docChanges": [
                {"oldId": {"namespace": "n"}, "newData": {"byMs": 1}, "mode": "CHANGE_LEASE"}
            ]
        },
    ],
)
def test_scenario_24_an_arrival_of_nothing_is_refused(service: Running, part: Json) -> None:
    service.refusal(400, "/modify", {"claimantId": "me", **part})


def test_scenario_24_a_task_that_is_named_twice_is_refused(service: Running) -> None:
    task = inserted(service)
    lease = {"oldId": task_id(task), "newData": {"byMs": 1000}, "mode": "CHANGE_LEASE"}
    body = {"claimantId": "me", "changes": [lease, lease]}
    service.refusal(400, "/modify", body)
    assert service.answer("/tasks", queue="a")["tasks"] == [task]


@pytest.mark.parametrize("letter", ["x", "ü"])
def test_scenario_28_limits_are_in_bytes(service: Running, letter: str) -> None:
    size = len(letter.encode())

    def text(limit: int, *, over: bool) -> str:
        return letter * (limit // size) + "x" * over

    def modify(status: int, claimant: str = "me", **parts: object) -> None:
        response = service.call("/modify", {"claimantId": claimant, **parts})
        assert response.status_code == status, response.text

    for over, status in ((False, 200), (True, 400)):
        key = text(256, over=over)
        modify(status, inserts=[{"queue": "a", "id": text(64, over=over)}])
        modify(status, text(64, over=over), inserts=[{"queue": "a"}])
        modify(status, docInserts=[{"namespace": text(1024, over=over), "key": "k"}])
        modify(status, docInserts=[{"namespace": "n", "key": key}])
        modify(status, docInserts=[{"namespace": "n", "key": "k", "secondaryKey": key}])
        modify(status, docInserts=[{"namespace": "m", "key": "k", "id": text(64, over=over)}])
        claim = {"claimantId": text(64, over=over), "queues": ["b"]}
        assert service.call("/claim", claim).status_code == status
    task = inserted(service)
    modify(200, "x" * 65, deletes=[task_id(task)])


@pytest.mark.parametrize(
    "part",
    [
        {"changes": [{"newData": {"queue": "a"}}]},
        {"changes": [{"oldId": {"id": "x", "version": 0, "queue": "a"}}]},
        {
            "changes": [
                {
                    "oldId": {"id": "x", "version": 0, "queue": "a"},
                    "newData": {},
                    "mode": "CHANGE_ALL",
                }
            ]
        },
        {"docChanges": [{"newData": {"namespace": "n"}}]},
        {"docChanges": [{"oldId": {"namespace": "n", "id": "x"}}]},
        {
            "docChanges": [
                {
                    "oldId": {"namespace": "n", "id": "x"},
                    "newData": {"namespace": "other"},
                }
            ]
        },
        {"docDeletes": [{"namespace": "n"}]},
        {"docDepends": [{"namespace": "n"}]},
        {"docDepends": [{"namespace": "n", "key": "k", "secondaryKey": "s"}]},
        {"docDepends": [{"namespace": "n", "key": "k", "id": "x"}]},
        {"deletes": [{"version": 0}]},
        {"deletes": [{"id": "x", "version": -1, "queue": "a"}]},
        {"deletes": [{"id": "x", "version": 2**31, "queue": "a"}]},
        {"deletes": [None]},
        {"inserts": [{}]},
        {"inserts": [{"queue": "a", "atMs": "1"}]},
        {"inserts": [{"queue": "a", "byMs": 10**18}]},
        {"inserts": [{"queue": "a", "value": {"$bytes": "?"}}]},
        {"inserts": [{"queue": "a", "err": "\0"}]},
        {"inserts": [{"queue": "a", "id": "x"}, {"queue": "b", "id": "x"}]},
    ],
)
def test_scenario_29_modifications_that_make_no_sense_are_refused(
    service: Running, part: Json
) -> None:
    good = {"queue": "good"}
    body = {"claimantId": "me", **part, "inserts": [*part.get("inserts", ()), good]}
    service.refusal(400, "/modify", body)
    assert service.answer("/queues")["queues"] == []


@pytest.mark.parametrize(
    "wrong",
    [{"value": 1}, {"value": 0}, {"queue": "b"}, {"err": "why"}, {"attempt": 1}, {"id": "x"}],
)
def test_scenario_30_a_lease_change_changes_nothing_else(service: Running, wrong: Json) -> None:
    task = inserted(service)
    lease = {
        "oldId": task_id(task),
        "newData": {"byMs": 1000, **wrong},
        "mode": "CHANGE_LEASE",
    }
    service.refusal(400, "/modify", {"claimantId": "me", "changes": [lease]})
    assert service.answer("/tasks", queue="a")["tasks"] == [task]


@pytest.mark.parametrize(
    ("old", "new", "mode"),
    [
        ({"key": "k"}, {"content": 1}, "CHANGE_LEASE"),
        ({"key": "k"}, {"key": "other"}, "CHANGE_LEASE"),
        ({"key": "k"}, {"secondaryKey": "s"}, "CHANGE_LEASE"),
        ({"id": "x"}, {}, "CHANGE_LEASE"),
        ({"id": "x"}, {}, "CHANGE_RESET_CLAIMS"),
    ],
)
def test_scenario_30_a_lease_change_of_docs_is_about_a_set(
    service: Running, old: Json, new: Json, mode: str
) -> None:
    service.modify(docInserts=[{"namespace": "n", "key": "k", "id": "x"}])
    change = {"oldId": {"namespace": "n", "version": 0, **old}, "newData": new, "mode": mode}
    service.refusal(400, "/modify", {"claimantId": "me", "docChanges": [change]})


@pytest.mark.parametrize("mode", ["CHANGE_LEASE", "CHANGE_RESET_CLAIMS"])
def test_scenario_31_modes_need_protocol_2(service: Running, mode: str) -> None:
    task = inserted(service)
    change = {"oldId": task_id(task), "newData": {}, "mode": mode}
    service.refusal(400, "/modify", {"claimantId": "me", "changes": [change]}, headers=OLD)
    change["mode"] = "CHANGE_DEFAULT"
    service.answer("/modify", {"claimantId": "me", "changes": [change]}, headers=OLD)


def test_scenario_32_claims_are_kept_or_start_anew(service: Running) -> None:
    inserted(service)
    task = service.claim("a")
    assert task is not None
    [kept] = service.modify(changes=[{"oldId": task_id(task), "newData": {}}])["changed"]
    reset = {"oldId": task_id(kept), "newData": {}, "mode": "CHANGE_RESET_CLAIMS"}
    [anew] = service.modify(changes=[reset])["changed"]
    assert (task["claims"], kept["claims"], anew["claims"]) == (1, 1, 0)
    assert (kept["queue"], anew["queue"]) == ("a", "a")


def test_scenario_33_all_that_is_at_fault_is_told_and_nothing_is_written(service: Running) -> None:
    taken, other, held = (inserted(service, id=id_) for id_ in ("taken", "other", "held"))
    [held] = service.modify(
        "holder",
        changes=[{"oldId": task_id(held), "newData": {"byMs": HOUR_MS}, "mode": "CHANGE_LEASE"}],
    )["changed"]
    before = service.answer("/tasks", queue="a")["tasks"]
    body = {
        "claimantId": "me",
        "inserts": [{"queue": "b", "id": "taken"}, {"queue": "b", "id": "good"}],
        "changes": [{"oldId": task_id(other, version=7), "newData": {}}],
        "deletes": [task_id(held), {"id": "missing", "version": 0, "queue": "a"}],
        "depends": [{"id": "stale", "version": 3, "queue": "a"}],
        "docDepends": [{"namespace": "n", "key": "k", "version": 1}],
    }
    refusal = service.refusal(409, "/modify", body)
    assert refusal["code"] == 10
    assert sorted(types_of(refusal)) == ["CHANGE", "CLAIM", "DELETE", "DEPEND", "DEPEND", "INSERT"]
    assert refusal["details"][0]["type"] == "DETAIL"
    named = {
        detail["type"]: detail.get("id") or detail["docId"] for detail in refusal["details"][1:]
    }
    assert named["INSERT"] == task_id(taken)
    assert named["CHANGE"] == task_id(other, version=7)
    assert named["CLAIM"] == task_id(held)
    assert named["DEPEND"] == {"namespace": "n", "key": "k", "version": 1}
    assert service.answer("/tasks", queue="a")["tasks"] == before
    assert service.answer("/tasks", queue="b")["tasks"] == []


def test_scenario_76_and_77_a_modification_depends_on_a_set(service: Running) -> None:
    def depend(version: int, key: str = "k") -> Json:
        return {
            "claimantId": "me",
            "inserts": [{"queue": "a"}],
            "docDepends": [{"namespace": "n", "key": key, "version": version}],
        }

    service.modify(docInserts=[{"namespace": "n", "key": "k"}])
    service.answer("/modify", depend(0))
    assert types_of(service.refusal(409, "/modify", depend(1))) == ["DEPEND"]
    assert types_of(service.refusal(409, "/modify", depend(0, "other"))) == ["DEPEND"]
    service.modify("other", docInserts=[{"namespace": "n", "key": "k", "secondaryKey": "s"}])
    service.refusal(409, "/modify", depend(0))
    service.answer("/modify", depend(1))
    assert len(service.answer("/tasks", queue="a")["tasks"]) == 2


@pytest.mark.parametrize(
    "part",
    [
        {"docDeletes": [{"namespace": "n", "key": "k"}]},
        {"docChanges": [{"oldId": {"namespace": "n", "key": "k"}, "newData": {"content": 1}}]},
    ],
)
def test_docs_are_not_changed_or_deleted_by_key(service: Running, part: Json) -> None:
    body = {"claimantId": "me", "inserts": [{"queue": "a"}], **part}
    assert service.refusal(501, "/modify", body)["code"] == 12
    assert service.answer("/queues")["queues"] == []


def test_changed_docs_and_sets_come_in_the_order_of_the_request(service: Running) -> None:
    service.work.modify(*(InsertDoc(namespace="n", key=key, id=key) for key in ("1", "2", "3")))
    lease = {
        "oldId": {"namespace": "n", "key": "2", "version": 0},
        "newData": {"byMs": HOUR_MS},
        "mode": "CHANGE_LEASE",
    }
    changes: list[Json] = [
        {"oldId": {"namespace": "n", "id": id_, "version": 0}, "newData": {"content": id_}}
        for id_ in ("3", "1")
    ]
    found = service.modify(docChanges=[changes[0], lease, changes[1]])["changedDocs"]
    assert [(doc["id"], doc["key"]) for doc in found] == [("3", "3"), ("", "2"), ("1", "1")]
    assert found[1]["claimant"] == "me"
