"""Work queues at a service's address: what is lost, refused, cut off, and shared."""

from __future__ import annotations

import asyncio
import importlib
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import URL, create_engine

from queue_core.errors import (
    CommitUnknownError,
    ConfigurationError,
    DatabaseUnreachableError,
    InvalidConnectionError,
    LifecycleError,
    PayloadTooLargeError,
)
from queue_core.runtime.manual_clock import ManualClock
from tests.contract.harness import BOUND_SECONDS, eventually
from tests.contract.service.certificates import Certificates
from tests.contract.work_queue.backends import (
    SERVED,
    address_of,
    backend_of,
    own_backend_of,
    waiting,
)
from tests.contract.work_queue.conftest import MakeWork
from tests.contract.work_queue.services import Services
from work_queue.document import DocClaim
from work_queue.modification import Insert
from work_queue.remote import remote_claims
from work_queue.remote.background import THREAD
from work_queue.remote.tls import Tls
from work_queue.rights import PermissionDeniedError, UnauthenticatedError
from work_queue.service.authorisers.policy import PolicyFile
from work_queue.service.calls import Calls
from work_queue.service.native.answers import Answer, Answers
from work_queue.service.native.grpc import services
from work_queue.service.native.http import routes
from work_queue.task import Task
from work_queue.wire import calls as wire
from work_queue.work_queue import WorkQueue
from work_queue.workers.worker import Worker

pytestmark = pytest.mark.parametrize("place", ["http", "grpc"], indirect=True)
PROGRAM = """
import os, sys
from stickybus import WorkQueue

work = WorkQueue(sys.argv[1], claimant="ann")
print("opened", flush=True)
"""


@pytest.fixture
def work(make_work: MakeWork) -> WorkQueue:
    return make_work(claimant="me")


def run_program(work: WorkQueue, database_url: URL, lines: str) -> subprocess.Popen[str]:
    """Start a process that has opened the same service as `work`, and goes on with these lines."""
    program = [sys.executable, "-c", PROGRAM + lines, address_of(work, database_url)]
    # The tests' own processes don't let gRPC survive a fork, which a program of a user does.
    as_users = {name: value for name, value in os.environ.items() if not name.startswith("GRPC_")}
    process = subprocess.Popen(program, stdout=subprocess.PIPE, text=True, env=as_users)
    assert process.stdout is not None
    assert process.stdout.readline() == "opened\n"
    return process


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


# -- lost and unreachable -------------------------------------------------------------------------


def test_a_service_that_is_not_there_was_sent_nothing(place: str) -> None:
    with pytest.raises(DatabaseUnreachableError, match="nothing was done") as caught:
        WorkQueue(f"{place}://127.0.0.1:1")
    assert not isinstance(caught.value, CommitUnknownError)
    assert caught.value.url == f"{place}://127.0.0.1:1"


def test_a_lost_answer_says_that_the_call_may_have_been_done(
    work: WorkQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = Answers.answer

    async def loses(self: Answers, *arguments: Any) -> Answer:
        await answer(self, *arguments)
        raise RuntimeError("the answer is lost")

    with monkeypatch.context() as losing:
        losing.setattr(Answers, "answer", loses)
        for call in (
            lambda: work.insert("a"),
            lambda: work.try_claim("a"),
            lambda: work.claim_docs(DocClaim("n", "k")),
        ):
            with pytest.raises(CommitUnknownError, match="may have been done"):
                call()
        for read in (work.time, work.queues, lambda: work.tasks("a"), lambda: work.docs("n")):
            with pytest.raises(DatabaseUnreachableError) as caught:
                read()
            assert not isinstance(caught.value, CommitUnknownError)
    [task] = work.tasks("a")
    assert task.claims == 1


def test_a_connection_that_is_cut_loses_what_was_sent(place: str, services: Services) -> None:
    """Before gRPC sends a call, both ends have greeted each other."""
    with services.cut_off(place) as address, pytest.raises(DatabaseUnreachableError) as caught:
        WorkQueue(address)
    assert {"http": "gave no answer", "grpc": "nothing was done"}[place] in str(caught.value)


def test_what_is_no_service_is_told(place: str, services: Services) -> None:
    with pytest.raises(ConfigurationError, match="no work queue service"):
        WorkQueue(services.nothing(place))


def test_what_is_no_service_for_a_while_ends_no_worker(
    work: WorkQueue, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = importlib.import_module(f"work_queue.remote.{place}_transport")
    transport = getattr(module, f"{place.title()}Transport")
    call = transport.call

    async def misled(self: Any, _name: str, *arguments: Any) -> Any:
        return await call(self, "nothing", *arguments)

    monkeypatch.setattr(transport, "call", misled)
    with pytest.raises(DatabaseUnreachableError, match="Nothing was done"):
        work.insert("a")


def test_a_service_that_stops_ends_no_worker(
    make_work: MakeWork, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = make_work()
    with ThreadPoolExecutor(1) as pool:
        claim = pool.submit(work.claim, "a")
        eventually(lambda: waiting(work))
        backend_of(work).close()
        with pytest.raises(DatabaseUnreachableError, match="stops"):
            claim.result(BOUND_SECONDS)


# -- waits ----------------------------------------------------------------------------------------


def test_scenario_49_a_long_claim_waits_in_rounds_of_which_nobody_sees_any(
    make_work: MakeWork, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_claims, "ROUND_SECONDS", 0.02)
    work, rounds = make_work(), list[Any]()
    ask = wire.Call.ask

    def counted(call: wire.Call[Any, Any], request: Any, cap_bytes: int) -> bytes:
        if call is wire.CLAIM:
            rounds.append(request)
        return ask(call, request, cap_bytes)

    monkeypatch.setattr(wire.Call, "ask", counted)
    with ThreadPoolExecutor(1) as pool:
        claim = pool.submit(work.claim, "a", timeout_seconds=BOUND_SECONDS)
        eventually(lambda: len(rounds) > 3)
        task = work.insert("a")
        claimed = claim.result(BOUND_SECONDS)
        assert (claimed.id, claimed.version, claimed.claims) == (task.id, 1, 1)


def test_a_cancelled_claim_has_ended_when_its_cancellation_has(work: WorkQueue) -> None:
    async def run() -> None:
        for _ in range(20):
            claim = asyncio.create_task(work.claim_async("a"))
            await asyncio.sleep(0)
            claim.cancel()
            with pytest.raises(asyncio.CancelledError):
                await claim
            task = await work.insert_async("a")
            assert (await work.tasks_async(ids=[task.id]))[0].claims == 0
            await work.modify_async(task.delete())

    asyncio.run(run())
    assert not waiting(work)


def test_a_claim_that_takes_while_it_is_cancelled_gives_back(
    work: WorkQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service has answered, but its answer comes after the cancellation."""
    answer, took, go_on = Answers.answer, threading.Event(), asyncio.Event()

    async def late(self: Answers, name: str, *arguments: Any) -> Answer:
        answered = await answer(self, name, *arguments)
        if name == "claim":
            took.set()
            await go_on.wait()
        if name == "leave":
            go_on.set()
        return answered

    async def run() -> None:
        claim = asyncio.create_task(work.try_claim_async("a"))
        await asyncio.to_thread(took.wait, BOUND_SECONDS)
        claim.cancel()
        with pytest.raises(asyncio.CancelledError):
            await claim

    work.insert("a")
    monkeypatch.setattr(Answers, "answer", late)
    asyncio.run(run())
    [task] = work.tasks("a")
    assert (task.claimant, task.claims) == ("", 0)


def test_scenario_88_the_claim_of_a_killed_client_ends(work: WorkQueue, database_url: URL) -> None:
    process = run_program(work, database_url, "work.claim('a')")
    eventually(lambda: waiting(work))
    process.send_signal(signal.SIGKILL)
    process.communicate()
    eventually(lambda: not waiting(work))
    task = work.insert("a")
    # A look that was under way may have taken it, and gives it back.
    eventually(lambda: work.tasks(ids=[task.id])[0].claims == 0, "it is nobody's")


# -- who calls ------------------------------------------------------------------------------------


def policy(folder: Path) -> PolicyFile:
    path = folder / "policy.toml"
    path.write_text(
        f"""
        [[callers]]
        name = "ann"
        token_sha256 = ["{sha256(b"secret").hexdigest()}"]
        [[callers.rights]]
        actions = ["CLAIM", "INSERT", "READ", "DELETE", "CHANGE"]
        queues = ["a"]
        queue_prefixes = ["a/"]
        """
    )
    return PolicyFile(path)


def test_a_token_tells_who_calls(
    place: str,
    services: Services,
    database_url: URL,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with WorkQueue(database_url) as served:
        address = getattr(services, place)(served, policy(tmp_path))
        with pytest.raises(UnauthenticatedError):
            WorkQueue(address)
        with WorkQueue(address, token="secret", claimant="ann") as work:
            work.insert("a", 1)
            Worker(work, lambda _job: Insert(queue="a/done"), "a").run(limit=1)
            assert len(work.tasks("a/done")) == 1
            with pytest.raises(PermissionDeniedError) as caught:
                work.insert("b")
            assert [(need.right, need.name) for need in caught.value.needs] == [("INSERT", "b")]
            assert "secret" not in repr(vars(own_backend_of(work))) + str(caught.value)
        monkeypatch.setenv("STICKYBUS_TOKEN", "secret")
        WorkQueue(address).close()


def test_certificates_tell_who_serves_and_who_calls(
    place: str, services: Services, database_url: URL, tmp_path: Path
) -> None:
    signed = Certificates(tmp_path)
    certificate, key = signed.of("client")
    with WorkQueue(database_url) as served:
        address = services.encrypted(place, served, signed)
        for tls in (None, Tls(ca_file=signed.authority)):
            with pytest.raises(DatabaseUnreachableError):
                WorkQueue(address, tls=tls)
        own = Tls(ca_file=signed.authority, certificate_file=certificate, key_file=key)
        with WorkQueue(address, tls=own) as work:
            assert work.insert("a").queue == "a"
        with pytest.raises(ConfigurationError, match="can't be used"):
            WorkQueue(address, tls=Tls(ca_file=tmp_path / "none.pem"))


# -- refused --------------------------------------------------------------------------------------


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
    assert "secret" not in str(caught.value)


def test_a_database_takes_no_token(place: str, database_url: URL) -> None:
    for options in ({"token": "secret"}, {"tls": Tls()}):
        with pytest.raises(ConfigurationError, match="an option of a service"):
            WorkQueue(database_url, **options)


def test_what_is_missing_is_told(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = {"http": "httpx", "grpc": "grpc"}[place]
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delitem(sys.modules, f"work_queue.remote.{place}_transport", raising=False)
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


# -- shared ---------------------------------------------------------------------------------------


def test_it_serves_threads_and_event_loops(work: WorkQueue) -> None:
    async def insert(number: int) -> Task:
        return await work.insert_async("a", number)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: asyncio.run(insert(number)), range(20)))
    assert sorted(task.value for task in work.tasks("a")) == list(range(20))


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
