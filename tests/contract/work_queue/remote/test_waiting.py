"""Work queues at a service's address: claims that wait, and are cancelled."""

from __future__ import annotations

import asyncio
import inspect
import select
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import URL

from queue_core.errors import LifecycleError
from tests.contract.harness import BOUND_SECONDS, eventually
from tests.contract.interrupted.interrupts import Interrupt, InterruptedHereError, Places
from tests.contract.work_queue.backends import SERVED, address_of, asks, waiting
from tests.contract.work_queue.conftest import MakeWork
from tests.contract.work_queue.remote.programs import run_program
from work_queue.remote import remote_claims
from work_queue.remote.line import LEAVE_SECONDS
from work_queue.remote.remote_claims import RemoteClaims
from work_queue.requests import ClaimRequest
from work_queue.service.caller import Caller
from work_queue.service.calls import Calls
from work_queue.service.native.answers import Answer, Answers
from work_queue.wire import calls as wire
from work_queue.work_queue import WorkQueue

pytestmark = pytest.mark.parametrize("place", ["http", "grpc"], indirect=True)


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


def _answers_late(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Let the service answer claims only after they were left; set once one has taken."""
    answer, took, go_on = Answers.answer, threading.Event(), asyncio.Event()

    async def late(self: Answers, name: str, *arguments: Any) -> Answer:
        answered = await answer(self, name, *arguments)
        if name == "claim":
            took.set()
            await go_on.wait()
        if name == "leave":
            go_on.set()
        return answered

    monkeypatch.setattr(Answers, "answer", late)
    return took


def test_a_claim_that_takes_while_it_is_cancelled_gives_back(
    work: WorkQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service has answered, but its answer comes after the cancellation."""

    async def run() -> None:
        claim = asyncio.create_task(work.try_claim_async("a"))
        await asyncio.to_thread(took.wait, BOUND_SECONDS)
        claim.cancel()
        with pytest.raises(asyncio.CancelledError):
            await claim

    work.insert("a")
    took = _answers_late(monkeypatch)
    asyncio.run(run())
    [task] = work.tasks("a")
    assert (task.claimant, task.claims) == ("", 0)


def test_a_claim_that_is_cancelled_on_a_busy_loop_gives_back(work: WorkQueue) -> None:
    """The client has the answer, but the coroutine that awaits it does not."""

    async def run() -> None:
        claim = asyncio.create_task(work.claim_async("a"))
        await asyncio.sleep(0)
        # This loop is busy meanwhile.
        eventually(lambda: work.tasks("a")[0].claims and not asks(work))
        claim.cancel()
        with pytest.raises(asyncio.CancelledError):
            await claim

    work.insert("a")
    asyncio.run(run())
    [task] = work.tasks("a")
    assert (task.claimant, task.claims) == ("", 0)


def test_a_signal_ends_a_claim_that_waits(work: WorkQueue, database_url: URL) -> None:
    process = run_program(
        work,
        database_url,
        """
try:
    work.claim("a")
except KeyboardInterrupt:
    work.insert("b")
    print("interrupted", flush=True)
    sys.stdin.read()
""",
    )
    eventually(lambda: waiting(work))
    assert process.stdout is not None
    process.send_signal(signal.SIGINT)
    # Python drops the exception if a finalizer runs just then.
    while not select.select([process.stdout], [], [], BOUND_SECONDS / 2)[0]:
        process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "interrupted\n"
    # The service knows it by then, and the program goes on with its calls.
    assert not waiting(work)
    assert work.queues() == {"b": 1}
    assert work.insert("a").claims == 0
    assert work.try_claim("a") is not None
    process.kill()
    process.communicate()


def test_a_claim_that_takes_while_a_signal_ends_it_gives_back(
    work: WorkQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service has answered, but its answer comes after the signal."""

    def interrupt() -> None:
        took.wait(BOUND_SECONDS)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    work.insert("a")
    took = _answers_late(monkeypatch)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with ThreadPoolExecutor(1) as pool:
            interrupting = pool.submit(interrupt)
            with pytest.raises(KeyboardInterrupt):
                work.try_claim("a")
            interrupting.result(BOUND_SECONDS)
    finally:
        signal.signal(signal.SIGINT, before)
    [task] = work.tasks("a")
    assert (task.claimant, task.claims) == ("", 0)


def test_the_end_of_a_claim_releases_what_its_answer_held(work: WorkQueue) -> None:
    """An interrupted caller drops its connection, and an answer that may be on its way."""
    claim = wire.Claim(ClaimRequest("ann", ("a",), 60.0), 0.0, "ticket")
    answers = Answers(Calls(SERVED[work]))

    async def run() -> None:
        claimed = await answers.answer("claim", Caller(), wire.CLAIM.ask(claim, 1_000))
        assert len(wire.CLAIM.answered(claimed.body)) == 1
        await answers.answer("leave", Caller(), wire.LEAVE.ask(wire.Leave("ticket"), 1_000))

    work.insert("a")
    asyncio.run(run())
    [task] = work.tasks("a")
    assert (task.claimant, task.claims) == ("", 0)


def test_a_close_ends_claims_that_wait_in_threads(work: WorkQueue) -> None:
    other = WorkQueue(address_of(work, URL.create("sqlite")))
    with ThreadPoolExecutor(3) as pool:
        claims = [pool.submit(other.claim, "a") for _ in range(3)]
        eventually(lambda: waiting(work) == 3)
        other.close()
        assert not waiting(work)
        for claim in claims:
            with pytest.raises(LifecycleError, match="closed"):
                claim.result(BOUND_SECONDS)
    assert work.insert("a").claims == 0
    assert work.try_claim("a") is not None


def test_a_close_leaves_claims_for_as_long_as_one_call_may_take(
    work: WorkQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that are left then are cut, and their leases end."""
    answer, left = Answers.answer, list[str]()

    async def seen(self: Answers, name: str, *arguments: Any) -> Answer:
        if name == "leave":
            left.append(name)
        return await answer(self, name, *arguments)

    other = WorkQueue(address_of(work, URL.create("sqlite")))
    monkeypatch.setattr(Answers, "answer", seen)
    with ThreadPoolExecutor(5) as pool:
        claims = [pool.submit(other.claim, "a") for _ in range(5)]
        eventually(lambda: waiting(work) == 5)
        # Each reading is most of the time later than the one before.
        late = count(step=0.4 * LEAVE_SECONDS)
        monkeypatch.setattr(remote_claims, "time", SimpleNamespace(monotonic=lambda: next(late)))
        other.close()
        for claim in claims:
            with pytest.raises(LifecycleError, match="closed"):
                claim.result(BOUND_SECONDS)
    assert len(left) == 2


@pytest.mark.slow
def test_a_close_cuts_the_calls_of_a_service_that_is_silent(
    work: WorkQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer, asked, goes_on = Answers.answer, threading.Event(), threading.Event()

    async def silent(self: Answers, *arguments: Any) -> Answer:
        asked.set()
        await asyncio.to_thread(goes_on.wait, 2 * BOUND_SECONDS)
        return await answer(self, *arguments)

    other = WorkQueue(address_of(work, URL.create("sqlite")))
    monkeypatch.setattr(Answers, "answer", silent)
    with ThreadPoolExecutor(1) as pool:
        claim = pool.submit(other.claim, "a")
        assert asked.wait(BOUND_SECONDS)
        other.close()
        try:
            with pytest.raises(LifecycleError, match="closed"):
                claim.result(BOUND_SECONDS)
        finally:
            goes_on.set()


def test_scenario_88_the_claim_of_a_killed_client_ends(work: WorkQueue, database_url: URL) -> None:
    process = run_program(work, database_url, "work.claim('a')")
    eventually(lambda: waiting(work))
    process.send_signal(signal.SIGKILL)
    process.communicate()
    eventually(lambda: not waiting(work))
    task = work.insert("a")
    # A look that was under way may have taken it, and gives it back.
    eventually(lambda: work.tasks(ids=[task.id])[0].claims == 0, "it is nobody's")


def test_a_claim_that_is_interrupted_before_it_returns_gives_back(work: WorkQueue) -> None:
    """Until then nobody has seen what it took."""
    inner = [
        function.__code__
        for name, function in vars(RemoteClaims).items()
        if inspect.isfunction(function) and name.startswith("_")
    ]
    counted = Interrupt(Places.LINES, among=inner)
    counted.during(lambda: work.try_claim("a"))
    kept = set[str]()
    for place in range(counted.passed):
        work.insert("a")
        interrupt = Interrupt(Places.LINES, place, inner)
        with suppress(InterruptedHereError):
            interrupt.during(partial(work.try_claim, "a"))
        [task] = work.tasks("a")
        if task.claims:
            kept.add(interrupt.where.rpartition("/")[2].split(maxsplit=1)[1])
        work.modify(task.delete())
    assert kept <= {"RemoteClaims._taken return"}
