"""Each part of a call needs its right: the caller of a policy file has it, or is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests import requirements as needs
from tests.contract.harness import BOUND_SECONDS, eventually
from tests.contract.service.http.rights import ALL, EVERYTHING, bearer, digest, written
from tests.contract.service.http.running import NEW, OLD, Json, Running, types_of
from work_queue.rights import Need
from work_queue.service.caller import Caller
from work_queue.service.calls import Calls

pytestmark = needs.any_database


def task(id_: str = "free", queue: str = "q/1") -> Json:
    return {"id": id_, "version": 0, "queue": queue}


DOC = {"namespace": "n/1", "id": "doc", "version": 0}
SET = {"namespace": "n/1", "key": "k", "version": 0}
CLAIM = {"claimantId": "ann", "queues": ["q/1"], "durationMs": "1000"}
SETS = {"claimant": "ann", "sets": [{"set": {"namespace": "n/1", "key": "k"}}]}
LEASE: Json = {"byMs": 0}


def modify(**parts: Any) -> tuple[str, Json]:
    return "/modify", {"claimantId": "ann", **parts}


Needed = list[tuple[str, str, str]]
"""Actions, what they are about, and its name."""
PARTS: list[tuple[str, Any, Json, Needed]] = [
    ("/claim", CLAIM, {}, [("CLAIM", "queue", "q/1")]),
    ("/claim/wait", CLAIM, {}, [("CLAIM", "queue", "q/1")]),
    ("/docs/claim", {"claimQuery": SETS}, {}, [("CLAIM", "namespace", "n/1")]),
    (*modify(inserts=[{"queue": "q/1"}]), {}, [("INSERT", "queue", "q/1")]),
    (*modify(deletes=[task()]), {}, [("DELETE", "queue", "q/1")]),
    (*modify(depends=[task()]), {}, [("DEPEND", "queue", "q/1")]),
    (
        *modify(changes=[{"oldId": task(), "newData": {"queue": "q/1"}}]),
        {},
        [("CHANGE", "queue", "q/1")],
    ),
    (
        *modify(changes=[{"oldId": task(), "newData": {"queue": "q/3"}}]),
        {},
        [("CHANGE", "queue", "q/1"), ("INSERT", "queue", "q/3")],
    ),
    (
        *modify(changes=[{"oldId": task(), "newData": LEASE, "mode": "CHANGE_LEASE"}]),
        {},
        [("CHANGE", "queue", "q/1")],
    ),
    (
        *modify(docInserts=[{"namespace": "n/1", "key": "new"}]),
        {},
        [("INSERT", "namespace", "n/1")],
    ),
    (
        *modify(docChanges=[{"oldId": DOC, "newData": {"content": 1}}]),
        {},
        [("CHANGE", "namespace", "n/1")],
    ),
    (
        *modify(docChanges=[{"oldId": SET, "newData": LEASE, "mode": "CHANGE_LEASE"}]),
        {},
        [("CHANGE", "namespace", "n/1")],
    ),
    (*modify(docDeletes=[DOC]), {}, [("DELETE", "namespace", "n/1")]),
    (*modify(docDepends=[DOC]), {}, [("DEPEND", "namespace", "n/1")]),
    (*modify(docDepends=[SET]), {}, [("DEPEND", "namespace", "n/1")]),
    ("/tasks", None, {"queue": "q/1"}, [("READ", "queue", "q/1")]),
    (
        "/tasks",
        None,
        {"taskId": ["free", "other"]},
        [("READ", "queue", "q/1"), ("READ", "queue", "q/2")],
    ),
    ("/tasks/stream", None, {"queue": "q/1"}, [("READ", "queue", "q/1")]),
    ("/docs", None, {"query.namespace": "n/1"}, [("READ", "namespace", "n/1")]),
    ("/queues", None, {"matchExact": "q/1"}, [("READ", "queue", "q/1")]),
    ("/queues/stats", None, {"matchPrefix": "q/"}, [("READ", "queue prefix", "q/")]),
    ("/queues", None, {}, [("READ", "queue prefix", "")]),
    ("/namespaces/stats", None, {"matchExact": "n/1"}, [("READ", "namespace", "n/1")]),
    ("/namespaces/stats", None, {}, [("READ", "namespace prefix", "")]),
]


def right(action: str, kind: str, name: str) -> Json:
    about, _, prefix = kind.partition(" ")
    return {"actions": [action], f"{about}_prefixes" if prefix else f"{about}s": [name]}


@pytest.mark.parametrize("part", PARTS)
def test_every_part_of_every_call_needs_its_right(
    guarded: Running, policy: Path, part: tuple[str, Any, Json, Needed]
) -> None:
    path, body, query, needed = part
    before = state(guarded)
    refusal = guarded.refusal(403, path, body, headers=bearer("ann"), **query)
    assert refusal["code"] == 7
    told = [f"{action} of {kind} {name!r}" for action, kind, name in needed]
    assert [detail["msg"] for detail in refusal["details"]] == told
    for detail, (action, kind, name) in zip(refusal["details"], needed, strict=True):
        assert detail["actions"] == [action]
        assert detail["prefix" if "prefix" in kind else "exact"] == name
    for missing in needed:
        rights = [right(*one) for one in needed if one != missing]
        rights += [{**EVERYTHING, "actions": [one for one in ALL if one != missing[0]]}]
        written(policy, *rights)
        guarded.refusal(403, path, body, headers=bearer("ann"), **query)
    assert state(guarded) == before
    written(policy, *(right(*one) for one in needed))
    response = guarded.call(path, body, headers=bearer("ann"), **query)
    assert response.status_code == 200, response.text


def state(service: Running) -> Any:
    tasks = service.work.tasks("q/1") + service.work.tasks("q/2")
    return tasks, service.work.docs("n/1"), service.work.queues()


def test_who_matches_a_task_depends_on_it(guarded: Running, policy: Path) -> None:
    guarded.work.modify(guarded.work.tasks(ids=["free"])[0].renew(60), claimant="ann")
    query = {**SETS, "taskToMatch": {"id": "free", "version": 1, "queue": "q/1"}}
    written(policy, right("CLAIM", "namespace", "n/1"))
    body = {"claimQuery": query}
    refusal = guarded.refusal(403, "/docs/claim", body, headers=bearer("ann"))
    assert refusal["details"][0]["msg"] == "DEPEND of queue 'q/1'"
    written(policy, right("CLAIM", "namespace", "n/1"), right("DEPEND", "queue", "q/1"))
    guarded.answer("/docs/claim", body, headers=bearer("ann"))


@pytest.mark.parametrize("claimant", ["bob", "ann2", ""])
def test_who_acts_as_somebody_else_needs_a_right(
    guarded: Running, policy: Path, claimant: str
) -> None:
    written(policy, EVERYTHING)
    for path, body in (
        ("/claim", {**CLAIM, "claimantId": claimant}),
        ("/modify", {"claimantId": claimant, "deletes": [task()]}),
        ("/docs/claim", {"claimQuery": {**SETS, "claimant": claimant}}),
    ):
        guarded.refusal(403, path, body, headers=bearer("ann"))


def test_a_caller_acts_as_its_own_name_and_as_those_it_was_given(
    guarded: Running, policy: Path
) -> None:
    written(policy, EVERYTHING, claimants=["bob"], claimant_prefixes=["team/"])
    for claimant in ("ann", "ann#worker-7", "bob", "team/x"):
        body = {"claimantId": claimant, "inserts": [{"queue": "q/1"}]}
        guarded.answer("/modify", body, headers=bearer("ann"))


@pytest.mark.parametrize(
    "headers",
    [
        NEW,
        OLD,
        bearer("nobody"),
        bearer(digest("ann")),
        {**NEW, "authorization": "ann"},
        {**NEW, "authorization": "Basic ann"},
    ],
)
@pytest.mark.parametrize("path", ["/time", "/queues", "/claim"])
def test_callers_who_are_not_known_are_refused(
    guarded: Running, path: str, headers: dict[str, str]
) -> None:
    body = CLAIM if path == "/claim" else None
    response = guarded.call(path, body, headers=headers)
    assert response.status_code == 401
    assert response.headers["www-authenticate"] == "Bearer"
    assert response.json()["code"] == 16


def test_a_caller_without_rights_may_ask_for_the_time(guarded: Running) -> None:
    guarded.answer("/time", headers=bearer("ann"))


def test_metrics_are_for_who_may_read_all_queues_and_health_for_all(guarded: Running) -> None:
    assert guarded.client.get(f"{guarded.url}/metrics").status_code == 401
    for token, status in (("ann", 403), ("root", 200)):
        response = guarded.client.get(f"{guarded.url}/metrics", headers=bearer(token))
        assert response.status_code == status
    assert guarded.client.get(f"{guarded.url}/health").status_code == 200


def test_every_token_of_a_caller_is_good(guarded: Running) -> None:
    guarded.answer("/queues", headers=bearer("older"))
    guarded.answer("/queues", headers=bearer("root"))


@pytest.mark.parametrize("part", ["deletes", "depends", "changes"])
def test_old_callers_that_name_no_queue_need_the_right_for_the_tasks_own(
    guarded: Running, policy: Path, part: str
) -> None:
    named = {"id": "free", "version": 0}
    item = {"oldId": named, "newData": {}} if part == "changes" else named
    body = {"claimantId": "ann", part: [item]}
    headers = bearer("ann", OLD)
    written(policy, {**EVERYTHING, "queue_prefixes": ["q/2"]})
    refusal = guarded.refusal(403, "/modify", body, headers=headers)
    assert [detail["exact"] for detail in refusal["details"]] == ["q/1"]
    written(policy, {**EVERYTHING, "queue_prefixes": ["q/1"]})
    guarded.answer("/modify", body, headers=headers)


def test_a_task_that_moves_after_its_queue_was_looked_up_is_at_fault(
    guarded: Running, policy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(policy, {**EVERYTHING, "queue_prefixes": ["q/1"]})
    modify_async = guarded.work.modify_async

    async def moved_before(*actions: Any, **options: Any) -> Any:
        monkeypatch.undo()
        # It comes back to its version, and to another queue.
        guarded.work.modify(guarded.work.tasks(ids=["free"])[0].delete())
        guarded.work.insert("q/2", id="free")
        return await modify_async(*actions, **options)

    monkeypatch.setattr(guarded.work, "modify_async", moved_before)
    body = {"claimantId": "ann", "deletes": [{"id": "free", "version": 0}]}
    refusal = guarded.refusal(404, "/modify", body, headers=bearer("ann", OLD))
    assert refusal["details"][1]["id"] == {"id": "free", "version": 0, "queue": ""}
    assert len(guarded.work.tasks("q/2")) == 2


def test_an_unknown_task_is_a_fault_and_no_lack_of_rights(guarded: Running, policy: Path) -> None:
    written(policy, {**EVERYTHING, "queue_prefixes": ["q/1"]})
    body = {"claimantId": "ann", "deletes": [{"id": "nothing", "version": 0}]}
    refusal = guarded.refusal(404, "/modify", body, headers=bearer("ann", OLD))
    assert types_of(refusal) == ["DELETE"]
    assert refusal["details"][1]["id"] == {"id": "nothing", "version": 0, "queue": ""}


def test_a_caller_whose_rights_are_withdrawn_while_its_claim_waits_gets_no_task(
    guarded: Running, policy: Path
) -> None:
    written(policy, EVERYTHING)
    body = {"claimantId": "ann", "queues": ["q/3"]}
    with ThreadPoolExecutor(1) as pool:
        claim = pool.submit(guarded.refusal, 403, "/claim/wait", body, headers=bearer("ann"))
        eventually(lambda: guarded.waiting)
        written(policy)
        guarded.work.insert("q/3")
        refusal = claim.result(BOUND_SECONDS)
    assert [detail["exact"] for detail in refusal["details"]] == ["q/3"]
    [task] = guarded.work.tasks("q/3")
    assert (task.claimant, task.claims) == ("", 0)
    assert guarded.work.try_claim("q/3") is not None


class _AsksLong:
    """An authoriser that answers no question but the first."""

    def __init__(self) -> None:
        self.asked, self._again = 0, asyncio.Event()

    async def allow(self, caller: Caller, needs: Sequence[Need]) -> None:
        """See `Authoriser`."""
        del caller, needs
        self.asked += 1
        if self.asked > 1:
            self._again.set()
            await asyncio.Event().wait()

    async def until_again(self) -> None:
        await self._again.wait()

    async def close(self) -> None:
        """See `Authoriser`."""


def test_a_caller_that_goes_while_its_rights_are_asked_for_again_gets_no_task(
    service: Running,
) -> None:
    async def run() -> None:
        authoriser = _AsksLong()
        claiming = asyncio.ensure_future(
            Calls(service.work, authoriser).claim(
                Caller(), ["a"], claimant="ann", lease_seconds=None, timeout_seconds=None
            )
        )
        await authoriser.until_again()
        claiming.cancel()
        with pytest.raises(asyncio.CancelledError):
            await claiming

    service.work.insert("a")
    asyncio.run(run())
    [task] = service.work.tasks("a")
    assert (task.claimant, task.claims) == ("", 0)
