"""Docs over api.EntroQ."""

from __future__ import annotations

from typing import Any

import grpc

from tests.contract.service.grpc.harness import Stubs, details, refused
from work_queue.document import DocClaim
from work_queue.work_queue import WorkQueue

HOUR_MS = 3_600_000


def modify(entroq: Any, stubs: Stubs, claimant: str = "ann", **parts: Any) -> Any:
    """The answer to a modification."""
    return entroq.Modify(stubs.api.ModifyRequest(claimant_id=claimant, **parts))


def doc(key: str, secondary: str = "", **fields: Any) -> dict[str, Any]:
    """A new doc, whose content is its secondary key."""
    content = {"string_value": secondary}
    return {
        "namespace": "shop",
        "key": key,
        "secondary_key": secondary,
        "content": content,
        **fields,
    }


def listed(entroq: Any, stubs: Stubs, **query: Any) -> Any:
    """The docs of a query."""
    request = stubs.api.DocsRequest(query={"namespace": "shop", **query})
    return entroq.Docs(request).docs


def claim(entroq: Any, stubs: Stubs, key: str, claimant: str = "ann", ms: int = HOUR_MS) -> Any:
    """The docs of a set that is claimed."""
    query = {"namespace": "shop", "claimant": claimant, "key": key, "duration_ms": ms}
    return entroq.ClaimDocs(stubs.api.ClaimDocsRequest(claim_query=query)).docs


def test_scenario_55_a_doc_is_inserted_changed_and_deleted(entroq: Any, stubs: Stubs) -> None:
    [new] = modify(entroq, stubs, doc_inserts=[doc("a", "x", id="one")]).inserted_docs
    assert (new.id, new.version, new.claimant, new.content.string_value) == ("one", 0, "", "x")
    assert (new.key, new.secondary_key) == ("a", "x")
    name = {"namespace": "shop", "id": "one"}
    change = {"old_id": name, "new_data": {"key": "kept as it is", "content": {"number_value": 2}}}
    [changed] = modify(entroq, stubs, doc_changes=[change]).changed_docs
    assert (changed.version, changed.key, changed.content.number_value) == (1, "a", 2)
    assert changed.created_ms == new.created_ms
    assert list(listed(entroq, stubs)) == [changed]
    error = refused(grpc.StatusCode.NOT_FOUND, modify, entroq, stubs, doc_changes=[change])
    [fault] = details(error, stubs, stubs.api.ModifyDep)[1:]
    assert fault.type == stubs.api.ActionType.Value("CHANGE")
    assert (fault.doc_id.namespace, fault.doc_id.id, fault.HasField("id")) == ("shop", "one", False)
    modify(entroq, stubs, doc_deletes=[{**name, "version": 1}])
    assert not listed(entroq, stubs)


def test_scenario_56_tasks_and_docs_are_written_together_or_not(
    entroq: Any, stubs: Stubs, work: WorkQueue
) -> None:
    both: dict[str, Any] = {"inserts": [{"queue": "a"}], "doc_inserts": [doc("a", id="one")]}
    modify(entroq, stubs, **both)
    error = refused(grpc.StatusCode.NOT_FOUND, modify, entroq, stubs, **both)
    [fault] = details(error, stubs, stubs.api.ModifyDep)[1:]
    assert (fault.type, fault.doc_id.id) == (stubs.api.ActionType.Value("INSERT"), "one")
    assert work.queues() == {"a": 1}


def test_scenario_57_docs_are_listed(entroq: Any, stubs: Stubs) -> None:
    modify(entroq, stubs, doc_inserts=[doc(name, name, id=f"id of {name}") for name in "dbca"])
    for query, expected in (
        ({"key_start": "b", "key_end": "d"}, "bc"),
        ({"key_start": "c"}, "cd"),
        ({"limit": 2}, "ab"),
        ({"ids": ["id of d", "nothing", "id of a"], "limit": 1}, "da"),
    ):
        assert "".join(found.key for found in listed(entroq, stubs, **query)) == expected
    [bare, *_] = listed(entroq, stubs, omit_values=True)
    assert not bare.HasField("content")
    request = stubs.api.DocsRequest()
    refused(grpc.StatusCode.INVALID_ARGUMENT, entroq.Docs, request)


def test_scenario_64_a_claimed_set_is_its_claimants(entroq: Any, stubs: Stubs) -> None:
    modify(entroq, stubs, doc_inserts=[doc("a", "y"), doc("a", "x")])
    mine = claim(entroq, stubs, "a")
    assert [(one.secondary_key, one.version, one.claimant) for one in mine] == [
        ("x", 1, "ann"),
        ("y", 1, "ann"),
    ]
    now = entroq.Time(stubs.api.TimeRequest()).time_ms
    assert abs(mine[0].at_ms - now - HOUR_MS) < 60_000
    error = refused(grpc.StatusCode.NOT_FOUND, claim, entroq, stubs, "a", claimant="bob")
    assert error.details() == "claim docs dependency error"
    [fault] = details(error, stubs, stubs.api.ModifyDep)[1:]
    assert fault.type == stubs.api.ActionType.Value("CLAIM")
    assert fault.doc_id.namespace == "shop"
    assert "'a'" in fault.msg
    name = {"namespace": "shop", "id": mine[0].id, "version": 1}
    content = {"content": {"bool_value": True}}
    kept = {"old_id": name, "new_data": {**content, "at_ms": now + HOUR_MS}}
    refused(grpc.StatusCode.NOT_FOUND, modify, entroq, stubs, claimant="bob", doc_changes=[kept])
    modify(entroq, stubs, claimant="bob", doc_depends=[name])
    [held] = modify(entroq, stubs, doc_changes=[kept]).changed_docs
    assert (held.version, held.claimant) == (2, "ann")
    assert abs(held.at_ms - now - HOUR_MS) < 60_000
    freed = {"old_id": {**name, "version": 2}, "new_data": content}
    [free] = modify(entroq, stubs, doc_changes=[freed]).changed_docs
    assert (free.version, free.claimant) == (3, "")
    assert [one.version for one in claim(entroq, stubs, "a", claimant="bob")] == [4, 4]


def test_a_set_without_docs_is_claimed(entroq: Any, stubs: Stubs, work: WorkQueue) -> None:
    assert not claim(entroq, stubs, "none", ms=0)
    [held] = work.claim_docs(DocClaim("shop", "none"), claimant="ann")
    assert held.version == 2


def test_scenario_41_namespaces_are_counted(entroq: Any, stubs: Stubs) -> None:
    others = [doc("a", namespace=namespace) for namespace in ("shop/2", "SHOP")]
    modify(entroq, stubs, doc_inserts=[doc("a", "x"), doc("a", "y"), doc("b"), *others])
    claim(entroq, stubs, "a")
    call, query = entroq.NamespaceStats, stubs.api.NamespacesRequest
    expected = stubs.api.NamespaceStat(name="shop", num_docs=3, num_claimed=2)
    assert list(call(query(match_exact=["shop"])).namespaces) == [expected]
    assert [one.name for one in call(query(match_prefix=["shop"])).namespaces] == ["shop", "shop/2"]
    assert len(call(query()).namespaces) == 3
    assert len(call(query(limit=1)).namespaces) == 1


def test_docs_that_can_never_be_written(entroq: Any, stubs: Stubs, work: WorkQueue) -> None:
    name = {"namespace": "shop", "id": "one"}
    moved = {"old_id": name, "new_data": {"namespace": "elsewhere"}}
    for parts in (
        {"doc_inserts": [doc("a"), doc("")]},
        {"doc_inserts": [doc("a"), doc("b", namespace="")]},
        {"doc_inserts": [doc("a"), doc("a")]},
        {"doc_inserts": [doc("a")], "doc_changes": [moved]},
        {"doc_inserts": [doc("a")], "doc_changes": [{"old_id": name}]},
        {"doc_inserts": [doc("a")], "doc_deletes": [{"namespace": "shop"}]},
        {"doc_inserts": [doc("a", at_ms=2**62)]},
    ):
        refused(grpc.StatusCode.INVALID_ARGUMENT, modify, entroq, stubs, **parts)
    for key, claimant, ms in (("", "ann", 0), ("a", "", 0), ("a", "ann", -1)):
        refused(grpc.StatusCode.INVALID_ARGUMENT, claim, entroq, stubs, key, claimant, ms)
    assert work.namespace_stats() == []
