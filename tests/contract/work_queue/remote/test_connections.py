"""Work queues at a service's address: the connections of HTTP, and whose answers they carry."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest
from sqlalchemy import URL

from queue_core.errors import CommitUnknownError, ConfigurationError, DatabaseUnreachableError
from tests.contract.harness import BOUND_SECONDS, eventually
from tests.contract.interrupted.interrupts import Interrupt, InterruptedHereError, Places
from tests.contract.work_queue.backends import waiting
from tests.contract.work_queue.remote.programs import run_program
from work_queue.remote import http_connection
from work_queue.remote.blocking_calls import BlockingCalls
from work_queue.remote.http_connections import HttpConnections
from work_queue.remote.line import Line
from work_queue.service.native.answers import Answer, Answers
from work_queue.wire import calls as wire
from work_queue.work_queue import WorkQueue

pytestmark = pytest.mark.remote


class ToldServer:
    """Sends what it is told to for each request: for the place of its connection, and its own."""

    def __init__(self, answer: Callable[[int, int], bytes]) -> None:
        self._answer = answer
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self.opened = self.closed = self.requests = 0
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listening.accept()
                self.opened += 1
                threading.Thread(target=self._serve, args=(near, self.opened), daemon=True).start()

    def _serve(self, near: socket.socket, connection: int) -> None:
        with suppress(OSError), near, near.makefile("rb") as lines:
            while length := self._length(lines):
                lines.read(length)
                self.requests += 1
                near.sendall(self._answer(connection, self.requests))
        self.closed += 1

    @staticmethod
    def _length(lines: Any) -> int:
        length = 0
        while (line := lines.readline()).strip():
            name, _, value = line.partition(b":")
            length = int(value) if name.lower() == b"content-length" else length
        return length

    def has_closed(self, connections: int) -> bool:
        return self.closed == connections

    def close(self) -> None:
        self._listening.close()


Serve = Callable[[Callable[[int, int], bytes]], ToldServer]


@pytest.fixture
def serve() -> Iterator[Serve]:
    made = list[ToldServer]()

    def begin(answer: Callable[[int, int], bytes]) -> ToldServer:
        made.append(ToldServer(answer))
        return made[-1]

    yield begin
    for server in made:
        server.close()


def an_answer(body: bytes) -> bytes:
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {wire.CONTENT_TYPE}\r\nContent-Length: {len(body)}"
    return f"{head}\r\n\r\n".encode() + body


def a_time(year: int) -> bytes:
    return an_answer(wire.TIME.answer(datetime(year, 1, 1, tzinfo=UTC)))


def test_a_connection_is_kept_and_dropped_when_it_has_idled(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve(lambda connection, _request: a_time(2000 + connection))
    monkeypatch.setattr(http_connection, "IDLE_SECONDS", 3600.0)
    with WorkQueue(server.address) as work:
        assert [work.time().year for _ in range(3)] == [2001] * 3
        monkeypatch.setattr(http_connection, "IDLE_SECONDS", 0.0)
        assert [work.time().year for _ in range(3)] == [2002, 2003, 2004]
        eventually(lambda: server.closed == 4, "none idles on")


def test_connections_of_a_burst_do_not_idle_for_ever(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once = threading.Barrier(10)

    def answer(_connection: int, request: int) -> bytes:
        if 1 < request <= 11:
            at_once.wait(BOUND_SECONDS)
        return a_time(2001)

    server = serve(answer)
    monkeypatch.setattr(http_connection, "IDLE_SECONDS", 3600.0)
    with WorkQueue(server.address) as work, ThreadPoolExecutor(10) as pool:
        for call in [pool.submit(work.time) for _ in range(10)]:
            call.result(BOUND_SECONDS)
        assert (server.opened, server.closed) == (10, 0)
        monkeypatch.setattr(http_connection, "IDLE_SECONDS", 0.0)
        work.time()
        eventually(lambda: server.closed == 11, "the next call closes all")


def test_an_answer_that_comes_after_another_is_no_other_calls(serve: Serve) -> None:
    """What some proxies say ahead of an answer ends no call."""

    def answer(connection: int, request: int) -> bytes:
        if request == 2:
            return b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
        return a_time(2000 + connection)

    server = serve(answer)
    with WorkQueue(server.address) as work:
        with pytest.raises(CommitUnknownError, match="status 103"):
            work.insert("a")
        assert work.time().year == 2002


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(b"garbage\r\n\r\n", id="no HTTP"),
        pytest.param(an_answer(b'{"result":' + b"[" * 100_000), id="too deep"),
        pytest.param(an_answer(b"\xff"), id="no JSON"),
        pytest.param(b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 200 + b"\r\n", id="many headers"),
        pytest.param(b"HTTP/1.1 200 OK\r\n" + b"A" * 100_000 + b"\r\n", id="a long header"),
        pytest.param(an_answer(b"x").replace(b"\n\r", b"\nContent-Encoding: gzip\r\n\r"), id="zip"),
        pytest.param(b"HTTP/1.1 502 Bad\r\nContent-Length: 0\r\n\r\n", id="a proxy's"),
    ],
)
def test_what_is_no_answer_leaves_the_fate_of_the_call_open(serve: Serve, said: bytes) -> None:
    """The connection closes after it if it may hold the rest."""

    def answer(_connection: int, request: int) -> bytes:
        return said if request in {2, 4} else a_time(2001)

    server = serve(answer)
    with WorkQueue(server.address) as work:
        with pytest.raises(CommitUnknownError, match="may have taken effect"):
            work.insert("a")
        assert work.time().year == 2001
        with pytest.raises(DatabaseUnreachableError, match="gave no answer"):
            work.time()
    assert server.requests == 4


def test_a_close_that_is_interrupted_can_be_done_again(serve: Serve) -> None:
    server = serve(lambda _connection, _request: a_time(2001))
    among = [one.__code__ for one in (Line.close, BlockingCalls.end, HttpConnections.close)]
    counted = Interrupt(Places.LINES, among=among)
    counted.during(WorkQueue(server.address).close)
    kept = list[WorkQueue]()  # what nobody holds closes by itself
    for place in range(counted.passed):
        kept.append(WorkQueue(server.address))
        interrupt = Interrupt(Places.LINES, place, among)
        with suppress(InterruptedHereError):
            interrupt.during(kept[-1].close)
        kept[-1].close()
        eventually(partial(server.has_closed, place + 2), interrupt.where)


def test_an_address_that_is_none_is_no_fault_of_a_proxy() -> None:
    with pytest.raises(ConfigurationError, match="address can't be used"):
        WorkQueue("http://no host")


@pytest.mark.parametrize("place", ["http"], indirect=True)
def test_the_close_of_a_forked_child_leaves_its_parents_claims_alone(
    work: WorkQueue, database_url: URL, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They wait on connections that the child has, too: what it sent there would mix in."""
    answer, asked = Answers.answer, list[str]()

    async def seen(self: Answers, name: str, *arguments: Any) -> Answer:
        asked.append(name)
        return await answer(self, name, *arguments)

    process = run_program(
        work,
        database_url,
        """
import threading

threading.Thread(target=work.claim, args=("a",), daemon=True).start()
sys.stdin.readline()
if child := os.fork():
    os.waitpid(child, 0)
else:
    work.time()
    work.close()
    os._exit(0)
""",
    )
    eventually(lambda: waiting(work))
    monkeypatch.setattr(Answers, "answer", seen)
    process.communicate("fork\n", timeout=BOUND_SECONDS)
    assert process.returncode == 0
    assert asked == ["time"]
