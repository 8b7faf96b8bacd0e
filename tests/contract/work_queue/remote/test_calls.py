"""Work queues at a service's address: what is served, refused and shared."""

from __future__ import annotations

import asyncio
import queue
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from traceback import format_exception
from types import FrameType
from typing import Any

import pytest
from sqlalchemy import URL, create_engine

from queue_core.errors import (
    ConfigurationError,
    InvalidConnectionError,
    LifecycleError,
    PayloadTooLargeError,
)
from queue_core.runtime.manual_clock import ManualClock
from tests.contract.harness import BOUND_SECONDS, eventually
from tests.contract.work_queue.backends import SERVED
from tests.contract.work_queue.remote.programs import run_program
from tests.contract.work_queue.services import Services
from work_queue.remote.background import THREAD
from work_queue.remote.tls import Tls
from work_queue.service.calls import Calls
from work_queue.service.native.answers import Answers
from work_queue.service.native.grpc import services
from work_queue.service.native.http import routes
from work_queue.task import Task
from work_queue.wire import calls as wire
from work_queue.work_queue import WorkQueue
from work_queue.workers.worker import Worker

pytestmark = pytest.mark.parametrize("place", ["http", "grpc"], indirect=True)


def test_both_wires_serve_every_call(work: WorkQueue, place: str) -> None:
    answers = Answers(Calls(SERVED[work]))
    served = {
        "http": lambda: {route.path for route in routes(answers, max_request_bytes=1)},
        "grpc": lambda: {f"/{wire.SERVICE}/{name}" for name in services(answers)[wire.SERVICE]},
    }
    path_of = {"http": lambda name: f"{wire.PATH}/{name}", "grpc": wire.method_of}
    names = [call.name for call in vars(wire).values() if isinstance(call, wire.Call)]
    assert len(names) == 19
    assert served[place]() == {path_of[place](name) for name in names}


def test_a_connection_is_refused(work: WorkQueue) -> None:
    engine = create_engine("sqlite://")
    with engine.connect() as connection:
        for call in (
            lambda: work.insert("a", connection=connection),
            lambda: work.tasks("a", connection=connection),
            lambda: work.docs("n", connection=connection),
        ):
            with pytest.raises(InvalidConnectionError, match="takes no connection="):
                call()
    with pytest.raises(ConfigurationError, match="engine"):
        Worker(work, print, "a", engine=engine)
    engine.dispose()
    assert work.queues() == {}


@pytest.mark.parametrize(
    ("rest", "options"),
    [
        ("user:secret@host", {}),
        ("host?token=secret", {}),
        ("host#secret", {}),
        ("", {}),
        (":1", {}),
        ("host:secret", {}),
        ("host", {"clock": ManualClock()}),
        ("host", {"poll_seconds": 1}),
        ("host", {"tls": Tls()}),
        ("host", {"token": "secret\n"}),
        ("host", {"max_value_bytes": 0}),
    ],
)
def test_what_is_not_allowed(place: str, rest: str, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        WorkQueue(f"{place}://{rest}", **options)
    assert "secret" not in "".join(format_exception(caught.value))


def test_a_database_takes_no_token(place: str, database_url: URL) -> None:
    for options in ({"token": "secret"}, {"tls": Tls()}):
        with pytest.raises(ConfigurationError, match="an option of a service"):
            WorkQueue(database_url, **options)


def test_what_is_missing_is_told(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, ours = {
        "http": ("urllib3", ("http_connection", "http_connections")),
        "grpc": ("grpc", ("grpc_transport", "grpc_channel")),
    }[place]
    monkeypatch.setitem(sys.modules, module, None)
    for name in ours:
        monkeypatch.delitem(sys.modules, f"work_queue.remote.{name}", raising=False)
    with pytest.raises(ConfigurationError, match=r"pip install 'stickybus\[client\]'"):
        WorkQueue(f"{place}://127.0.0.1:1")


def test_a_request_has_a_longest_size(place: str, services: Services, database_url: URL) -> None:
    with (
        WorkQueue(database_url) as served,
        WorkQueue(getattr(services, place)(served, max_request_bytes=2_000)) as work,
    ):
        with pytest.raises(PayloadTooLargeError, match="Nothing was written"):
            work.insert("a", "x" * 2_000)
        assert work.queues() == {}


def test_it_serves_threads_and_event_loops(work: WorkQueue) -> None:
    async def insert(number: int) -> Task:
        return await work.insert_async("a", number)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: asyncio.run(insert(number)), range(20)))
    assert sorted(task.value for task in work.tasks("a")) == list(range(20))


def test_a_signals_handler_may_call_in_the_middle_of_a_call(work: WorkQueue) -> None:
    """A lock that this thread had there would keep it for ever."""
    nested = 0

    def at_line(_frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal nested
        if event == "line":
            work.time()
            nested += 1
        return at_line

    def enter(frame: FrameType, _event: str, _argument: Any) -> Any:
        file = frame.f_code.co_filename
        return at_line if file == queue.__file__ or "/work_queue/remote/" in file else None

    def run() -> None:
        sys.settrace(enter)
        work.insert("a")

    calling = threading.Thread(target=run, daemon=True)
    calling.start()
    calling.join(BOUND_SECONDS)
    assert not calling.is_alive()
    assert nested > 10
    assert work.queues() == {"a": 1}


def test_a_child_of_a_fork_has_connections_of_its_own(work: WorkQueue, database_url: URL) -> None:
    process = run_program(
        work,
        database_url,
        """
work.insert("a", "parent")
if child := os.fork():
    os.waitpid(child, 0)
    work.insert("a", "parent again")
else:
    work.insert("a", "child")
    os._exit(0)
work.close()
""",
    )
    process.communicate(timeout=BOUND_SECONDS)
    assert process.returncode == 0
    assert [task.value for task in work.tasks("a")] == ["parent", "child", "parent again"]


def test_a_fork_while_other_threads_are_in_its_locks_leaves_the_child_none(
    work: WorkQueue, database_url: URL
) -> None:
    process = run_program(
        work,
        database_url,
        """
import asyncio, threading

line, held = work._backend._line, threading.Barrier(3)

def hold(one):
    with one._lock:
        held.wait()
        os.read(0, 1)

asyncio.run(work.try_claim_async("a"))
for one in (line._blocking, line._background):
    threading.Thread(target=hold, args=(one,), daemon=True).start()
held.wait()
if child := os.fork():
    os._exit(os.waitpid(child, 0)[1])
work.insert("a", "child")
assert asyncio.run(work.try_claim_async("a"))
work.close()
os._exit(0)
""",
    )
    try:
        assert process.wait(BOUND_SECONDS) == 0
    finally:
        process.kill()
        process.communicate()


def test_after_its_close_every_call_is_refused(work: WorkQueue) -> None:
    work.close()
    work.close()
    for call in (
        work.time,
        lambda: work.insert("a"),
        lambda: work.claim("a"),
        lambda: asyncio.run(work.claim_async("a")),
    ):
        with pytest.raises(LifecycleError, match="closed"):
            call()
    eventually(lambda: all(one.name != THREAD for one in threading.enumerate()))
