"""Requests over HTTP, as any client may send them."""

from __future__ import annotations

import time

import pytest

from tests.contract.service.http.conftest import Serve
from tests.contract.service.http.running import NEW, OLD, Json, Running, task_id, types_of
from work_queue.modification import InsertDoc

HOUR_MS = 3_600_000
YEAR_MS = 365 * 86_400_000


def inserted(service: Running, queue: str = "a", **data: object) -> Json:
    task: Json = service.modify(inserts=[{"queue": queue, **data}])["inserted"][0]
    return task


def now_ms(service: Running) -> int:
    return int(service.answer("/time")["timeMs"])


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


def test_fields_that_are_null_or_unknown_are_left_alone(service: Running) -> None:
    task = inserted(service, id=None, byMs=None, err=None, colour="red")
    assert task["version"] == 0


# -- claims ---------------------------------------------------------------------------------------


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


# -- listings -------------------------------------------------------------------------------------


def test_scenario_08_tasks_are_listed_by_ids_in_the_order_asked(service: Running) -> None:
    for id_, queue in [("1", "a"), ("2", "a"), ("3", "b"), ("4", "b")]:
        inserted(service, queue, id=id_)
    tasks = service.answer("/tasks", taskId=["4", "1", "nothing"])["tasks"]
    assert [task["id"] for task in tasks] == ["4", "1"]
    tasks = service.answer("/tasks", queue="a", taskId=["4", "1"])["tasks"]
    assert [task["id"] for task in tasks] == ["1"]


def test_scenario_12_listings_have_limits(service: Running) -> None:
    service.modify(inserts=[{"queue": "a", "value": 1}] * 10)
    for limit, count in [(4, 4), (50, 10), (0, 10), (-1, 10)]:
        assert len(service.answer("/tasks", queue="a", limit=limit)["tasks"]) == count
    values = service.answer("/tasks", queue="a", omitValues="true", limit=1)["tasks"]
    assert values[0]["value"] is None


def test_scenario_14_tasks_are_listed_for_a_claimant(service: Running) -> None:
    inserted(service, value="available")
    inserted(service, value="nobody's", byMs=HOUR_MS)
    service.modify("other", inserts=[{"queue": "a", "value": "other's", "byMs": HOUR_MS}])
    found = service.answer("/tasks", queue="a", claimantId="other")["tasks"]
    assert {task["value"] for task in found} == {"available", "other's"}


def test_scenario_13_limits_count_what_matches(service: Running) -> None:
    service.modify("other", inserts=[{"queue": "a", "byMs": HOUR_MS}] * 10)
    service.modify("me", inserts=[{"queue": "a", "byMs": 2 * HOUR_MS}] * 5)
    for limit, count in ((3, 3), (50, 5)):
        found = service.answer("/tasks", queue="a", claimantId="me", limit=limit)["tasks"]
        assert [task["claimantId"] for task in found] == ["me"] * count


@pytest.mark.parametrize(
    ("path", "query"),
    [
        ("/tasks", {}),
        ("/tasks", {"limit": "5"}),
        ("/docs", {}),
        ("/docs", {"query.keyExact": "k"}),
    ],
)
def test_scenario_27_listings_of_nothing_named_are_refused(
    service: Running, path: str, query: dict[str, str]
) -> None:
    service.refusal(400, path, **query)


def test_scenario_27_an_unknown_id_is_no_fault(service: Running) -> None:
    assert service.answer("/tasks", taskId="nothing") == {"tasks": []}


@pytest.mark.parametrize(
    ("path", "query"),
    [
        ("/tasks", {"queue": "a", "color": "red"}),
        ("/tasks", {"queue": ["a", "b"]}),
        ("/tasks", {"queue": "a", "limit": "many"}),
        ("/tasks", {"queue": "a", "omitValues": "maybe"}),
        ("/docs", {"namespace": "n"}),
        ("/queues", {"prefix": "a"}),
        ("/queues/stats", {"limit": "1.5"}),
        ("/namespaces/stats", {"matchprefix": "a"}),
        ("/time", {"zone": "utc"}),
    ],
)
def test_parameters_that_make_no_sense_are_refused(
    service: Running, path: str, query: dict[str, object]
) -> None:
    service.refusal(400, path, **query)


def test_scenario_40_queues_have_full_statistics(service: Running) -> None:
    for path in ("/queues", "/queues/stats"):
        assert service.answer(path)["queues"] == []
    inserted(service)
    inserted(service, byMs=HOUR_MS)
    inserted(service)
    service.claim("a")
    for path in ("/queues", "/queues/stats"):
        assert service.answer(path)["queues"] == [
            {
                "name": "a",
                "numTasks": 3,
                "numClaimed": 1,
                "numAvailable": 1,
                "numFuture": 1,
                "maxClaims": 1,
            }
        ]


def test_scenario_37_prefixes_and_names_are_alternatives(service: Running) -> None:
    for queue in ("a/1", "a/2", "b", "c%"):
        inserted(service, queue)

    def names(**query: object) -> list[str]:
        found = service.answer("/queues/stats", **query)["queues"]
        return sorted(queue["name"] for queue in found)

    assert names(matchPrefix="a/") == ["a/1", "a/2"]
    assert names(matchPrefix=["a/", "c"], matchExact=["b", "bogus"]) == ["a/1", "a/2", "b", "c%"]
    assert names(matchPrefix="%") == []
    assert len(names(limit=2)) == 2


def test_scenario_57_docs_are_read_by_ids_key_or_range(service: Running) -> None:
    docs = [
        {"namespace": "n", "key": key, "id": id_, "content": id_}
        for key, id_ in [("1", "a"), ("2", "b"), ("3", "c"), ("4", "d")]
    ]
    service.modify(docInserts=docs)

    def contents(**query: object) -> list[str]:
        named = {f"query.{name}": value for name, value in query.items()}
        found = service.answer("/docs", **{"query.namespace": "n", **named})["docs"]
        return [doc["content"] for doc in found]

    assert contents(keyStart="2", keyEnd="4") == ["b", "c"]
    assert contents(keyExact="2") == ["b"]
    assert contents(ids=["d", "a"], limit=1) == ["d", "a"]
    assert contents(limit=3) == ["a", "b", "c"]
    assert contents(omitValues="true", limit=1) == [None]


# -- modifications --------------------------------------------------------------------------------


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


# -- protocols ------------------------------------------------------------------------------------


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
