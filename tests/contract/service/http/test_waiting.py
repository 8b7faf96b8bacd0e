"""Claims that wait over HTTP, callers that vanish, and services that stop.

Polls are an hour: where nothing else wakes a claim, the test fails by its bound.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Event

import httpx
import msgspec
import pytest
from sqlalchemy import URL
from starlette.types import Message

from queue_core.claiming.hint_listener import HintListener
from tests import requirements as needs
from tests.contract.harness import BOUND_SECONDS, eventually
from tests.contract.service.http.conftest import Serve
from tests.contract.service.http.running import NEW, Json, Running, task_id, waiting_claim
from tests.contract.work_queue.backends import backend_of
from work_queue.requests import ClaimRequest
from work_queue.service.http.app import Application
from work_queue.service.http.server import KEEPALIVE
from work_queue.storage.claims import Looked
from work_queue.work_queue import WorkQueue

CONNECTIONS = Path("/proc/net/tcp")
LOCAL, STATE, TIMER = 1, 3, 5
"""Columns there."""
OPEN, PROBES = "01", "02"
HOUR = 3600.0
WAIT = "/claim/wait"


@pytest.fixture
def service(serve: Serve) -> Running:
    return serve(poll_seconds=HOUR)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(12) as made:
        yield made


def waits(
    pool: ThreadPoolExecutor, service: Running, *queues: str, of: Running | None = None
) -> Future[httpx.Response]:
    """A claim that waits, and has looked."""
    running = of or service
    before = running.waiting
    claim = pool.submit(running.call, WAIT, waiting_claim(*queues))
    eventually(lambda: running.waiting > before)
    return claim


def vanishing(service: Running, *queues: str) -> socket.socket:
    """A caller with a claim that waits, which knows nothing but its socket."""
    before = service.waiting
    sent = msgspec.json.encode(waiting_claim(*queues))
    host, port = service.url.removeprefix("http://").split(":")
    caller = socket.create_connection((host, int(port)))
    caller.sendall(
        b"POST /api/v0/claim/wait HTTP/1.1\r\nhost: service\r\nentroq-protocol: 2\r\n"
        b"content-length: %d\r\n\r\n%s" % (len(sent), sent)
    )
    eventually(lambda: service.waiting > before)
    return caller


def test_scenario_11_an_insert_wakes_a_claim(service: Running, pool: ThreadPoolExecutor) -> None:
    claim = waits(pool, service, "a", "b")
    assert (
        "stickybus_work_claims_waiting 1.0"
        in httpx.get(f"{service.url}/metrics", timeout=BOUND_SECONDS).text
    )
    [task] = service.modify(inserts=[{"queue": "b", "value": 1}])["inserted"]
    found = claim.result(BOUND_SECONDS).json()["task"]
    assert (found["id"], found["value"], found["version"]) == (task["id"], 1, 1)


def test_scenario_86_an_arrival_wakes_a_claim(service: Running, pool: ThreadPoolExecutor) -> None:
    claim = waits(pool, service, "a")
    service.modify(inserts=[{"queue": "a", "byMs": 300}])
    assert claim.result(BOUND_SECONDS).json()["task"]["claims"] == 1


def test_scenario_87_a_poll_finds_what_nobody_told_of(
    serve: Serve, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HintListener, "start", lambda _listener: None)  # it hears of nothing
    service = serve(poll_seconds=0.2)
    claim = waits(pool, service, "a")
    [task] = serve().modify(inserts=[{"queue": "a"}])["inserted"]
    assert claim.result(BOUND_SECONDS).json()["task"]["id"] == task["id"]


def test_scenario_42_each_insert_wakes_one_claim(
    service: Running, pool: ThreadPoolExecutor
) -> None:
    claims = [waits(pool, service, "a") for _ in range(10)]
    service.modify(inserts=[{"queue": "a"}] * 10)
    tasks = [claim.result(BOUND_SECONDS).json()["task"] for claim in claims]
    assert len({task["id"] for task in tasks}) == 10
    assert {task["claims"] for task in tasks} == {1}


def test_scenario_88_who_vanishes_while_waiting_gets_nothing(service: Running) -> None:
    vanishing(service, "a").close()
    eventually(lambda: not service.waiting)
    service.modify(inserts=[{"queue": "a"}])
    eventually(lambda: claims(service) == [0])


def test_scenario_88_who_is_reset_while_waiting_gets_nothing(service: Running) -> None:
    caller = vanishing(service, "a")
    # A reset instead of an orderly end.
    caller.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    caller.close()
    eventually(lambda: not service.waiting)
    service.modify(inserts=[{"queue": "a"}])
    eventually(lambda: claims(service) == [0])


@pytest.mark.skipif(not CONNECTIONS.exists(), reason="the kernel does not tell its timers")
def test_a_caller_whose_network_is_gone_is_missed(service: Running) -> None:
    port = f":{int(service.url.rsplit(':', 1)[1]):04X}"
    with vanishing(service, "a"):
        lines = [line.split() for line in CONNECTIONS.read_text().splitlines()]
        [timer] = [
            line[TIMER] for line in lines if line[LOCAL].endswith(port) and line[STATE] == OPEN
        ]
    kind, _, ticks = timer.partition(":")
    assert kind == PROBES
    assert int(ticks, 16) / os.sysconf("SC_CLK_TCK") <= KEEPALIVE["TCP_KEEPIDLE"] <= 30


def claims(service: Running) -> list[int]:
    """How often each task was claimed: a look that was under way may give one back."""
    return [task["claims"] for task in service.answer("/tasks", queue="a")["tasks"]]


def slow_looks(service: Running, monkeypatch: pytest.MonkeyPatch) -> tuple[Event, Event]:
    """Claims take their task, set the first event, and go on with the second."""
    claims = backend_of(service.work).claims
    look, taken, go_on = claims.look, Event(), Event()

    def slowly(request: ClaimRequest) -> Looked:
        found: Looked = look(request)
        if found.taken:
            taken.set()
            go_on.wait(BOUND_SECONDS)
        return found

    monkeypatch.setattr(claims, "look", slowly)
    return taken, go_on


def test_scenario_88_what_was_taken_for_who_vanished_is_given_back(
    service: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken, go_on = slow_looks(service, monkeypatch)
    caller = vanishing(service, "a")
    task = service.work.insert("a")
    assert taken.wait(BOUND_SECONDS)
    caller.close()
    eventually(lambda: not service.waiting and not service.calls.claiming)
    go_on.set()
    [free] = eventually(lambda: [one for one in service.work.tasks("a") if not one.claims])
    assert (free.id, free.claimant) == (task.id, "")


def vanished_answer(service: Running, path: str, body: Json) -> Message:
    """How a call begins to be answered whose caller vanishes while it is done."""
    sent, seen = msgspec.json.encode(body), list[Message]()
    heard: Iterator[Message] = iter(
        [
            {"type": "http.request", "body": sent, "more_body": False},
            {},  # nothing is heard while the claim waits
            {"type": "http.disconnect"},
        ]
    )

    async def receive() -> Message:
        message = next(heard)
        if not message:
            await asyncio.Event().wait()
        return message

    async def send(message: Message) -> None:
        seen.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": f"/api/v0{path}",
        "headers": [],
        "query_string": b"",
    }
    app = Application(service.calls, 1000).starlette()
    asyncio.run(app(scope, receive, send))
    return seen[0]


def test_scenario_88_what_came_as_the_caller_vanished_is_given_back(service: Running) -> None:
    task = service.work.insert("a")
    assert vanished_answer(service, "/claim", waiting_claim("a"))["status"] == 499
    [free] = service.work.tasks("a")
    assert (free.id, free.claimant) == (task.id, "")


def test_scenario_88_doc_sets_for_who_vanished_are_released(service: Running) -> None:
    named = {"namespace": "n", "key": "k"}
    query = {"claimant": "me", "sets": [{"set": named}]}
    old = {**named, "claimant": "me", "durationMs": "60000"}
    assert vanished_answer(service, "/docs/claim", {"claimQuery": old})["status"] == 499
    query["claimant"] = "another"
    [free] = service.answer("/docs/claim", {"claimQuery": query})["sets"]
    assert free["version"] == 3  # it was claimed, released, and is claimed now


def test_what_was_taken_as_a_service_stops_is_answered_or_given_back(
    service: Running,
    database_url: URL,
    pool: ThreadPoolExecutor,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken, go_on = slow_looks(service, monkeypatch)
    claim = waits(pool, service, "a")
    service.work.insert("a")
    assert taken.wait(BOUND_SECONDS)
    stop = pool.submit(service.stop)
    assert claim.result(BOUND_SECONDS).status_code == 503
    stop.result(BOUND_SECONDS)
    closing = pool.submit(service.work.close)
    with pytest.raises(TimeoutError):  # it waits for what has to be given back
        closing.result(0.2)
    go_on.set()
    closing.result(BOUND_SECONDS)
    with WorkQueue(database_url) as work:
        [free] = eventually(lambda: [one for one in work.tasks("a") if not one.claims])
    assert free.claimant == ""


def test_a_client_that_gives_up_gets_nothing(service: Running, pool: ThreadPoolExecutor) -> None:
    with pytest.raises(httpx.ReadTimeout), httpx.Client(timeout=0.3) as client:
        client.post(f"{service.url}/api/v0{WAIT}", json=waiting_claim("a"), headers=NEW)
    eventually(lambda: not service.waiting)
    service.modify(inserts=[{"queue": "a"}])
    eventually(lambda: claims(service) == [0])


def test_a_service_that_stops_ends_claims_and_holds_nothing(
    service: Running, pool: ThreadPoolExecutor
) -> None:
    claims = [waits(pool, service, "a") for _ in range(5)]
    service.stop()
    for claim in claims:
        response = claim.result(BOUND_SECONDS)
        assert response.status_code == 503
        assert response.json()["code"] == 14
    service.work.insert("a")
    [task] = service.work.tasks("a")
    assert task.claims == 0
    with pytest.raises(httpx.ConnectError):
        service.call("/time")


def test_scenario_89_a_service_that_starts_again_has_all_there_was(serve: Serve) -> None:
    first = serve()
    first.modify(inserts=[{"queue": "a", "value": 1}, {"queue": "a", "value": 2}])
    held = first.claim("a")
    assert held is not None
    tasks = first.answer("/tasks", queue="a")
    queues = first.answer("/queues/stats")
    first.stop()
    second = serve()
    assert second.answer("/tasks", queue="a") == tasks
    assert second.answer("/queues/stats") == queues
    second.modify(deletes=[task_id(held)])


@needs.heard_commits
def test_two_services_on_one_database_wake_each_other(
    serve: Serve, pool: ThreadPoolExecutor
) -> None:
    first, second = serve(poll_seconds=HOUR), serve(poll_seconds=HOUR)
    claim = waits(pool, first, "a")
    [task] = second.modify(inserts=[{"queue": "a"}])["inserted"]
    assert claim.result(BOUND_SECONDS).json()["task"]["id"] == task["id"]


def test_two_services_on_one_database_share_tasks(serve: Serve, pool: ThreadPoolExecutor) -> None:
    services = [serve(), serve()]
    services[0].modify(inserts=[{"queue": "a"}] * 40)

    def drain(service: Running) -> list[str]:
        found = list[str]()
        while (task := service.claim("a")) is not None:
            service.modify(deletes=[task_id(task)])
            found.append(task["id"])
        return found

    done = [drained.result(60) for drained in [pool.submit(drain, one) for one in services * 2]]
    ids = [id_ for one in done for id_ in one]
    assert len(ids) == len(set(ids)) == 40
    for service in services:
        assert service.answer("/queues")["queues"] == []
