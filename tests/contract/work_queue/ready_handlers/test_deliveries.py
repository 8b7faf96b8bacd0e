"""Values are posted by HTTP, and the answer decides."""

from __future__ import annotations

import json
import threading
import urllib.parse
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from stickybus import Insert, Job, WorkQueue
from stickybus.task_handlers import post_to
from tests import requirements as needs
from tests.contract.service.authorities import authorities
from tests.contract.work_queue.ready_handlers.running import run, values
from work_queue.workers.ready import deliveries, results

__all__ = ["authorities"]


class Receiver(ThreadingHTTPServer):
    """Answers with what it is told to, and keeps what it got."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Receiving)
        self.answers = list[tuple[int, dict[str, str], bytes]]()
        self.got = list[tuple[str, str, bytes]]()
        self.pauses_seconds = 0.0
        """After each byte of an answer."""
        self.stopping = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/tasks"


class _Receiving(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        kind, key = self.headers["Content-Type"], self.headers["Idempotency-Key"]
        self.server.got.append((key, kind, body))
        code, headers, answer = self.server.answers.pop(0)
        self.send_response(code)
        for name, value in {**headers, "Content-Length": str(len(answer))}.items():
            self.send_header(name, value)
        self.end_headers()
        with suppress(ConnectionError):  # who asked may have gone
            if not self.server.pauses_seconds:
                self.wfile.write(answer)
                return
            for byte in answer:
                self.wfile.write(bytes([byte]))
                self.server.stopping.wait(self.server.pauses_seconds)

    def log_message(self, *_facts: object) -> None:
        """Say nothing."""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.stopping.set()
        server.shutdown()
        thread.join()


@needs.any_database
def test_a_value_is_posted_and_the_answer_is_the_result(
    work: WorkQueue, receiver: Receiver, database_name: str
) -> None:
    task = work.insert("in", {"to": "ann"})
    receiver.answers += [(200, {"Content-Type": "application/json"}, b'{"ok": true}')]

    run(work, post_to(receiver.url, results="out"))

    [(key, kind, body)] = receiver.got
    assert (key, kind, json.loads(body)) == (task.id, "application/json", {"to": "ann"})
    assert values(work) == [{"ok": True}]


@needs.any_database
@pytest.mark.parametrize("value", [None, 0, False, "", {}])
def test_an_empty_value_is_json_too(
    work: WorkQueue, receiver: Receiver, database_name: str, value: object
) -> None:
    work.insert("in", value)
    receiver.answers += [(204, {}, b"")]

    run(work, post_to(receiver.url))

    [(_, kind, body)] = receiver.got
    assert (kind, body) == ("application/json", json.dumps(value).encode())


@needs.any_database
def test_any_id_goes_as_a_key(work: WorkQueue, receiver: Receiver, database_name: str) -> None:
    """Such as is no value of a header; and no two ids have one key."""
    ids = ["plain/id~1", "rechnung-ä", "rechnung-%C3%A4", "two\nlines", " spaces ", "s p"]
    for task_id in ids:
        work.insert("in", id=task_id)
        receiver.answers += [(204, {}, b"")]

    run(work, post_to(receiver.url))

    assert work.queues() == {}
    keys = [key for key, _, _ in receiver.got]
    assert sorted(map(urllib.parse.unquote, keys)) == sorted(ids)
    assert {"plain/id~1", "rechnung-%C3%A4", "rechnung-%25C3%25A4", "two%0Alines"} < set(keys)


@needs.any_database
def test_a_content_type_of_the_caller_stays(
    work: WorkQueue, receiver: Receiver, database_name: str
) -> None:
    work.insert("in", 1)
    receiver.answers += [(204, {}, b"")]

    run(work, post_to(receiver.url, headers={"content-type": "application/cloudevents+json"}))

    assert [kind for _, kind, _ in receiver.got] == ["application/cloudevents+json"]


@needs.any_database
@pytest.mark.parametrize(
    ("code", "answer"),
    [(204, b""), (200, b""), (200, b"{"), (200, b"NaN"), (200, b"[" * 31 + b"]" * 31)],
)
def test_an_answer_that_is_no_json_ends_the_task_too(
    work: WorkQueue, receiver: Receiver, database_name: str, code: int, answer: bytes
) -> None:
    work.insert("in")
    receiver.answers += [(code, {"Content-Type": "application/json"}, answer)] * 2

    run(work, post_to(receiver.url, results="out"))

    assert len(receiver.got) == 1
    assert values(work) == [answer.decode()]
    assert work.queues() == {"out": 1}


@needs.any_database
@pytest.mark.parametrize("code", [500, 503, 429])
def test_an_answer_that_may_change_is_asked_for_again(
    work: WorkQueue, receiver: Receiver, database_name: str, code: int
) -> None:
    task = work.insert("in", b"raw")
    receiver.answers += [(code, {}, b""), (204, {}, b"")]

    run(work, post_to(receiver.url))

    assert [(key, body) for key, _, body in receiver.got] == [(task.id, b"raw")] * 2
    assert work.queues() == {}


@needs.any_database
@pytest.mark.parametrize("code", [404, 422, 301])
def test_an_answer_that_stays_gives_the_task_up(
    work: WorkQueue, receiver: Receiver, database_name: str, code: int
) -> None:
    work.insert("in")
    receiver.answers += [(code, {}, b"")]

    run(work, post_to(receiver.url))

    [failed] = work.tasks("in/err")
    assert f"answered {code}" in failed.err


@needs.any_database
def test_a_receiver_says_how_long_it_needs(
    work: WorkQueue, receiver: Receiver, database_name: str
) -> None:
    work.insert("in")
    receiver.answers += [(503, {"Retry-After": "3600"}, b"")]

    run(work, post_to(receiver.url))

    [later] = work.tasks("in")
    assert 3_500 < (later.at - later.modified).total_seconds() <= 3_600


@needs.any_database
@pytest.mark.parametrize("answer", [b"x" * 101, b"\n" * 60])
def test_an_answer_that_no_task_can_hold_gives_the_task_up(
    work: WorkQueue,
    receiver: Receiver,
    database_name: str,
    monkeypatch: pytest.MonkeyPatch,
    answer: bytes,
) -> None:
    """As JSON, each line break has two bytes."""
    monkeypatch.setattr(results, "LONGEST_BYTES", 100)
    work.insert("in")
    receiver.answers += [(200, {}, answer)]

    run(work, post_to(receiver.url, results="out"))

    assert len(receiver.got) == 1
    [failed] = work.tasks("in/err")
    assert "answered 200 with more than a task can hold, which is 100 bytes" in failed.err


@needs.any_database
def test_an_answer_that_comes_too_slowly_is_asked_for_again(
    work: WorkQueue, receiver: Receiver, database_name: str
) -> None:
    work.insert("in")
    receiver.answers += [(200, {}, b"x" * 1_000)]
    receiver.pauses_seconds = 0.1

    def done_with_the_first(job: Job) -> Insert | None:
        try:
            return post(job)
        finally:
            receiver.answers, receiver.pauses_seconds = [(200, {}, b"right")], 0.0

    post = post_to(receiver.url, results="out", timeout_seconds=0.5)
    run(work, done_with_the_first)

    assert len(receiver.got) == 2
    assert values(work) == ["right"]


@needs.any_database
@pytest.mark.parametrize(("length", "pauses"), [(deliveries.KEPT_BYTES + 1, 0.0), (1_000, 0.1)])
def test_the_rest_of_an_answer_that_nobody_wants_is_left(
    work: WorkQueue, receiver: Receiver, database_name: str, length: int, pauses: float
) -> None:
    for _ in range(2):
        work.insert("in")
        receiver.answers += [(200, {}, b"x" * length)]
    receiver.pauses_seconds = pauses

    run(work, post_to(receiver.url, timeout_seconds=0.5))

    assert len(receiver.got) == 2
    assert work.queues() == {}


@needs.any_database
def test_an_answer_that_nobody_wants_is_not_decoded(
    work: WorkQueue, receiver: Receiver, database_name: str
) -> None:
    work.insert("in")
    receiver.answers += [(200, {"Content-Encoding": "gzip"}, b"no gzip")]

    run(work, post_to(receiver.url))

    assert len(receiver.got) == 1
    assert work.queues() == {}


@needs.any_database
@pytest.mark.parametrize("charset", ["hex", "idna", "utf-7", "none"])
def test_an_answer_in_a_strange_character_set_is_a_result_too(
    work: WorkQueue, receiver: Receiver, database_name: str, charset: str
) -> None:
    work.insert("in")
    answer = "+2AA-." if charset == "utf-7" else "f\xfc.r"
    receiver.answers += [(200, {"Content-Type": f"text/plain; charset={charset}"}, answer.encode())]

    run(work, post_to(receiver.url, results="out"))

    assert len(receiver.got) == 1
    assert values(work) == [answer]
