"""Tasks as a stream of lines."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

from queue_core.errors import DatabaseUnreachableError
from tests.contract.harness import BOUND_SECONDS
from tests.contract.service.http.running import NEW, Json, Running
from tests.contract.service.streams import (
    PAGES,
    TASKS,
    VALUE,
    counted_reads,
    ended_streams,
    fill,
)
from work_queue.requests import TaskQuery
from work_queue.service.caller import Caller
from work_queue.service.calls import Calls
from work_queue.task import Task

STREAM = "/tasks/stream"


@contextmanager
def streamed(service: Running, **query: str | list[str]) -> Iterator[Iterator[Json]]:
    """The lines of a stream, as they come."""
    url = f"{service.url}/api/v0{STREAM}"
    with service.client.stream("GET", url, params=query, headers=NEW) as response:
        assert response.status_code == 200
        assert response.headers["content-type"] == "application/x-ndjson"
        yield (json.loads(line) for line in response.iter_lines())


def test_a_stream_has_each_task_in_a_line_and_is_read_in_pages(service: Running) -> None:
    ids = fill(service.work)
    with counted_reads(service.work) as reads, streamed(service, queue="a") as lines:
        found = [line["result"]["tasks"] for line in lines]
    assert [task["id"] for [task] in found] == ids
    assert len(reads) == PAGES


def test_a_stream_holds_few_tasks_at_a_time_if_they_are_large(
    service: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("work_queue.service.calls.PAGE_BYTES", 1_000)
    values = [*["x" * 298] * 20, *["x" * 2_000] * 3, *[None] * 30]
    for value in values:
        service.work.insert("a", value)

    async def sizes(query: TaskQuery) -> list[int]:
        return [len(page) async for page in Calls(service.work).pages(Caller(), query)]

    assert asyncio.run(sizes(TaskQuery("a"))) == [10, 3, 3, 3, 3, 1, 1, 2, 4, 8, 15]
    assert asyncio.run(sizes(TaskQuery("a", with_values=False))) == [10, 20, 23]


def test_a_stream_has_what_a_list_has(service: Running) -> None:
    service.modify(inserts=[{"queue": "a", "id": id_, "value": [1, id_]} for id_ in "123"])
    for query in (
        {"queue": "a"},
        {"queue": "a", "limit": "2"},
        {"queue": "a", "omitValues": "true"},
        {"queue": "a", "claimantId": "ann"},
        {"taskId": ["3", "1", "unknown"]},
        {"queue": "none"},
    ):
        with streamed(service, **query) as lines:
            found = [task for line in lines for task in line["result"]["tasks"]]
        assert found == service.answer("/tasks", **query)["tasks"]


def test_a_stream_that_can_t_be_read_is_refused(service: Running) -> None:
    assert service.refusal(400, STREAM)["code"] == 3
    assert service.refusal(400, STREAM, queue="a", unknown="1")["code"] == 3


def test_a_stream_that_fails_says_so_in_its_last_line(
    service: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(service.work)
    tasks, calls = Calls.tasks, list[TaskQuery]()

    async def fails(self: Calls, caller: Caller, query: TaskQuery) -> list[Task]:
        calls.append(query)
        if len(calls) == 3:
            raise DatabaseUnreachableError("the database is away")
        return await tasks(self, caller, query)

    monkeypatch.setattr(Calls, "tasks", fails)
    with streamed(service, queue="a") as lines:
        *before, last = lines
    assert len(before) == 30
    assert last["error"] == {"code": 14, "message": "the database is away", "details": []}


def test_a_stream_whose_caller_vanishes_ends(
    service: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(service.work, VALUE)
    ended = ended_streams(monkeypatch)
    host, port = service.url.removeprefix("http://").split(":")
    with counted_reads(service.work) as reads:
        with socket.socket() as caller:
            caller.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 10_000)
            caller.settimeout(BOUND_SECONDS)
            caller.connect((host, int(port)))
            caller.sendall(b"GET /api/v0/tasks/stream?queue=a HTTP/1.1\r\nhost: service\r\n\r\n")
            assert caller.recv(100).startswith(b"HTTP/1.1 200")
            assert not ended.is_set()
        assert ended.wait(BOUND_SECONDS)
        assert len(reads) < PAGES


def test_a_stream_ends_when_the_service_stops(service: Running) -> None:
    fill(service.work, VALUE)
    with streamed(service, queue="a") as lines:
        next(lines)
        service.calls.stop()
        found = list(lines)
    assert found[-1]["error"]["code"] == 14
    assert len(found) < TASKS


def test_a_stream_takes_no_body(service: Running) -> None:
    assert (
        httpx.post(f"{service.url}/api/v0{STREAM}", json={}, timeout=BOUND_SECONDS).status_code
        == 405
    )
