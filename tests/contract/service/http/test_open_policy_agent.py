"""An Open Policy Agent is asked for the rights of a call, and denies what it does not allow."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests import requirements as needs
from tests.contract.harness import BOUND_SECONDS
from tests.contract.service.http.agents import Agent, agent_at
from tests.contract.service.http.conftest import Serve
from tests.contract.service.http.rights import bearer
from tests.contract.service.http.running import Json, Running
from work_queue.modification import Insert
from work_queue.service.authorisers.opa import OpenPolicyAgent
from work_queue.service.caller import Caller
from work_queue.values import UNREAD


@pytest.fixture
def agent() -> Agent:
    return Agent()


@pytest.fixture
def asking(serve: Serve, agent: Agent) -> Iterator[Running]:
    with agent_at(agent) as url:
        yield serve(authoriser=OpenPolicyAgent(url + "/", timeout_seconds=BOUND_SECONDS))


MOVE: Json = {
    "claimantId": "ann#1",
    "changes": [
        {"oldId": {"id": "x", "version": 0, "queue": "a"}, "newData": {"queue": "b"}},
    ],
    "depends": [{"id": "y", "version": 0, "queue": "a"}],
    "docDeletes": [{"namespace": "n", "id": "x"}],
}


@needs.any_database
def test_an_agent_is_asked_for_all_that_a_call_needs(asking: Running, agent: Agent) -> None:
    asking.refusal(409, "/modify", MOVE, headers=bearer("secret"))
    asking.answer("/queues", matchPrefix="a/", headers=bearer("secret"))
    assert agent.path == "/v1/data/entroq/authz"
    authz = {"type": "Bearer", "credentials": "secret"}
    assert agent.asked == [
        {
            "input": {
                "authz": authz,
                "claimant_id": "ann#1",
                "queues": [
                    {"exact": "a", "actions": ["CHANGE", "READ"]},
                    {"exact": "b", "actions": ["INSERT"]},
                ],
                "namespaces": [{"exact": "n", "actions": ["DELETE"]}],
            }
        },
        {
            "input": {
                "authz": authz,
                "claimant_id": "",
                "queues": [{"prefix": "a/", "actions": ["READ"]}],
                "namespaces": [],
            }
        },
    ]


@needs.any_database
def test_what_an_agent_denies_is_told(asking: Running, agent: Agent) -> None:
    result = {
        "allow": False,
        "failed": [{"exact": "b", "actions": ["INSERT"]}],
        "failed_namespaces": [],
        "errors": ["User: ann"],
    }
    agent.body = json.dumps({"result": result}).encode()
    refusal = asking.refusal(403, "/modify", MOVE, headers=bearer("secret"))
    assert [detail["msg"] for detail in refusal["details"]] == ["INSERT of queue 'b'"]
    assert "User: ann" in refusal["message"]
    assert "secret" not in str(refusal)


@needs.any_database
def test_what_an_agent_does_not_clearly_allow_is_denied(asking: Running, agent: Agent) -> None:
    agent.body = b'{"result": {}}'
    asking.refusal(403, "/queues", headers=bearer("secret"))


@needs.any_database
@pytest.mark.parametrize(
    ("status", "body"),
    [
        (500, b""),
        (200, b""),
        (200, b"{}"),
        (200, b'{"result": {"allow": "yes"}}'),
        (200, b"[]"),
    ],
)
def test_without_a_decision_a_call_is_refused_for_now(
    asking: Running, agent: Agent, status: int, body: bytes
) -> None:
    agent.status, agent.body = status, body
    refusal = asking.refusal(503, "/queues", headers=bearer("secret"))
    assert refusal["code"] == 14
    assert "no decision" in refusal["message"]


@needs.any_database
def test_callers_without_a_token_are_not_known_to_an_agent(asking: Running, agent: Agent) -> None:
    asking.refusal(401, "/queues")
    assert agent.asked == []


@needs.any_database
def test_a_modification_is_told_even_if_the_agent_stops_meanwhile(
    asking: Running, agent: Agent
) -> None:
    """Which of the tasks that were there already its caller may read, nobody knows then."""
    asking.work.insert("b", "a secret", id="theirs")
    modify_async = asking.work.modify_async

    async def stops(*actions: Any, **options: Any) -> Any:
        agent.status = 500
        return await modify_async(*actions, **options)

    insert = Insert(queue="a", id="theirs", skip_existing=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asking.work, "modify_async", stops)
        modified = asyncio.run(asking.calls.modify(Caller("secret"), [insert], claimant="ann"))
    assert [task.value for task in modified.existing] == [UNREAD]


def test_who_calls_has_the_name_of_its_certificate(agent: Agent) -> None:
    async def allowed(caller: Caller) -> str | None:
        asked = OpenPolicyAgent(url, timeout_seconds=BOUND_SECONDS)
        try:
            return await asked.allow(caller, [])
        finally:
            await asked.close()

    with agent_at(agent) as url:
        assert asyncio.run(allowed(Caller(subject="ann.example"))) == "ann.example"
        assert asyncio.run(allowed(Caller(token="secret"))) is None
