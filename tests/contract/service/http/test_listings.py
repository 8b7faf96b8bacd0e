"""Listings over HTTP, as any client may ask for them."""

from __future__ import annotations

import pytest

from tests.contract.service.http.requests import HOUR_MS, inserted
from tests.contract.service.http.running import Running


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
