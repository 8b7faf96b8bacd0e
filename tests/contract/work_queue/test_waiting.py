"""Claims that wait: woken by commits, arrivals and ends of leases, in threads and as coroutines.

Their poll is an hour: where nothing else wakes them, the test fails by its bound.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta

import pytest
from sqlalchemy import Engine

from queue_core.claiming.hint_listener import HintListener
from queue_core.errors import LifecycleError
from queue_core.runtime.clock import SystemClock
from queue_core.runtime.manual_clock import ManualClock
from tests import requirements as needs
from tests.contract.harness import BOUND_SECONDS, eventually, eventually_async
from tests.contract.work_queue.backends import backend_of, waiting
from tests.contract.work_queue.claiming import claimed
from tests.contract.work_queue.conftest import MakeWork
from work_queue.document import DocClaim
from work_queue.faults import DependencyError
from work_queue.modification import Action, Insert, InsertDoc
from work_queue.storage.waiting import Waiter
from work_queue.task import Task
from work_queue.work_queue import WorkQueue

HOUR = 3600.0
Start = Callable[..., "Future[Task]"]


@pytest.fixture
def work(make_work: MakeWork) -> WorkQueue:
    return make_work(claimant="me", poll_seconds=HOUR)


@pytest.fixture
def start(work: WorkQueue) -> Iterator[Start]:
    """Starts a claim in a thread of its own, and returns when it waits."""
    with ThreadPoolExecutor(20) as pool:

        def begin(*queues: str, of: WorkQueue = work) -> Future[Task]:
            before = waiting(of)
            future = pool.submit(of.claim, *queues, timeout_seconds=BOUND_SECONDS)
            eventually(lambda: waiting(of) > before or future.done())
            return future

        yield begin


@pytest.mark.served_everywhere
def test_scenario_11_an_insert_wakes_a_claim(work: WorkQueue, start: Start) -> None:
    claim = start("a", "b")
    task = work.insert("b")
    assert claim.result(BOUND_SECONDS).id == task.id


@pytest.mark.served_everywhere
def test_scenario_42_each_of_many_inserts_wakes_one(work: WorkQueue, start: Start) -> None:
    for _ in range(20):
        claims = [start("a") for _ in range(10)]
        work.modify(*(Insert(queue="a") for _ in range(10)))
        tasks = [claim.result(BOUND_SECONDS) for claim in claims]
        assert len({task.id for task in tasks}) == 10
        assert {task.claims for task in tasks} == {1}


@pytest.mark.parametrize("how", ["change", "release", "move"])
def test_scenario_19_what_becomes_ready_wakes_a_claim(
    work: WorkQueue, start: Start, how: str
) -> None:
    work.insert("a" if how != "move" else "b")
    held = claimed(work, held_queue(how))
    claim = start("a")
    actions: dict[str, Action] = {
        "change": held.change(),
        "release": held.release(),
        "move": held.change(queue="a"),
    }
    work.modify(actions[how])
    assert claim.result(BOUND_SECONDS).id == held.id


def held_queue(how: str) -> str:
    return "b" if how == "move" else "a"


def test_scenario_86_the_end_of_a_lease_wakes_a_claim(work: WorkQueue, start: Start) -> None:
    task = work.insert("a")
    claimed(work, lease_seconds=0.3)
    assert start("a").result(BOUND_SECONDS).id == task.id


@pytest.mark.served_everywhere
def test_scenario_86_an_arrival_wakes_a_claim(work: WorkQueue, start: Start) -> None:
    work.insert("a", delay=HOUR)
    claim = start("a")
    task = work.insert("a", delay=0.3)
    assert claim.result(BOUND_SECONDS).id == task.id


@pytest.mark.database_only
def test_time_is_that_of_the_clock(make_work: MakeWork, start: Start) -> None:
    clock = ManualClock()
    work = make_work(clock=clock, poll_seconds=HOUR)
    task = work.insert("a", delay=60)
    with ThreadPoolExecutor(1) as pool:
        claim = pool.submit(work.claim, "a")
        clock.wait_until_waiting(1)
        clock.advance(seconds=59)
        assert not claim.done()
        clock.advance(seconds=1)
        assert claim.result(BOUND_SECONDS).id == task.id


@needs.heard_commits
def test_scenario_11_an_insert_of_another_process_wakes_a_claim(
    work: WorkQueue, make_work: MakeWork, start: Start
) -> None:
    other = make_work()
    for _ in range(5):
        claim = start("a")
        task = other.insert("a")
        assert claim.result(BOUND_SECONDS).id == task.id


@pytest.mark.database_only
@needs.heard_commits
def test_a_commit_of_a_callers_transaction_wakes_a_claim(
    work: WorkQueue, start: Start, engine: Engine
) -> None:
    claim = start("a")
    with engine.begin() as connection:
        task = work.insert("a", connection=connection)
    assert claim.result(BOUND_SECONDS).id == task.id


def test_scenario_87_a_poll_finds_what_nobody_told_of(
    make_work: MakeWork, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HintListener, "start", lambda _listener: None)  # it hears of nothing
    work = make_work(poll_seconds=0.2)
    claim = start("a", of=work)
    task = make_work().insert("a")
    assert claim.result(BOUND_SECONDS).id == task.id


def test_a_claim_ends_after_its_time(work: WorkQueue) -> None:
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        work.claim("a", "b", timeout_seconds=0.1)
    assert work.claim_many("a", limit=2, timeout_seconds=0.1) == []
    assert 0.2 <= time.monotonic() - began < BOUND_SECONDS


@pytest.mark.database_only
def test_a_claim_that_leaves_hands_on_what_it_was_told(work: WorkQueue) -> None:
    room, told = backend_of(work).room, list[str]()
    first = Waiter(("a",), lambda: told.append("first"))
    second = Waiter(("a",), lambda: told.append("second"))
    for waiter in (first, second):
        room.enter(waiter)
        assert room.begin_look(waiter)
    room.tell(["a"])
    assert told == ["first"]
    room.leave(first)
    assert told == ["first", "second"]
    assert room.begin_look(second)
    room.leave(second)


@pytest.mark.database_only
@pytest.mark.parametrize("seconds", [HOUR, -HOUR])
def test_a_claim_that_waits_looks_again_when_the_clock_was_set(
    make_work: MakeWork, seconds: float
) -> None:
    clock = SystemClock()
    room = backend_of(make_work(clock=clock, poll_seconds=HOUR / 2)).room
    waiter = Waiter(("a", "b"), lambda: None)
    room.enter(waiter)
    assert room.begin_look(waiter)
    room.expect({}, ["a", "b"])
    room.arrive([("b", clock.now() + timedelta(seconds=2 * HOUR))])
    assert room.seconds_to_look(waiter) > 0
    assert not room.begin_look(waiter)

    clock.adjust(seconds)

    assert room.seconds_to_look(waiter) == 0
    assert room.begin_look(waiter)
    room.leave(waiter)


def test_a_close_ends_claims_that_wait(make_work: MakeWork, start: Start) -> None:
    work = make_work(poll_seconds=HOUR)
    claim = start("a", of=work)
    work.close()
    with pytest.raises(LifecycleError):
        claim.result(BOUND_SECONDS)


def test_after_a_close_every_call_is_refused(make_work: MakeWork) -> None:
    work = make_work()
    work.close()
    work.close()
    calls: list[Callable[[], object]] = [
        work.time,
        work.queues,
        work.limits,
        work.recurring,
        lambda: work.tasks("a"),
        lambda: work.insert("a"),
        lambda: work.claim("a"),
        lambda: work.try_claim("a"),
        lambda: work.claim_many("a", limit=1, timeout_seconds=0),
        lambda: work.limit("a", concurrency=1),
        lambda: work.keep_history("a"),
        lambda: work.truncate_history("a"),
        lambda: asyncio.run(work.try_claim_async("a")),
        lambda: asyncio.run(work.insert_async("a")),
    ]
    for call in calls:
        with pytest.raises(LifecycleError, match="the work queue was closed"):
            call()


@pytest.mark.database_only
def test_a_claim_that_comes_during_a_close_leaves_no_listener_behind(work: WorkQueue) -> None:
    room, waiter = backend_of(work).room, Waiter(("a",), lambda: None)
    before = threading.enumerate()
    work.close()
    room.enter(waiter)
    room.leave(waiter)
    assert set(threading.enumerate()) <= set(before)


def test_scenario_43_short_queues_get_their_share(work: WorkQueue) -> None:
    sizes = {"large": 300, "medium": 60, "small": 20}
    work.modify(*(Insert(queue=queue) for queue, size in sizes.items() for _ in range(size)))
    claimed = list[str]()

    def consume(number: int) -> None:
        name = f"w{number}"
        while task := work.try_claim(*sizes, claimant=name):
            claimed.append(task.queue)
            work.modify(task.delete(), claimant=name)

    with ThreadPoolExecutor(5) as pool:
        list(pool.map(consume, range(5)))
    assert Counter(claimed) == sizes
    ended = {queue: number for number, queue in enumerate(claimed, 1)}
    assert ended["small"] <= len(claimed) / 3
    assert ended["medium"] <= len(claimed) * 3 / 4


# -- coroutines -----------------------------------------------------------------------------------


def test_coroutines_wait_without_threads(work: WorkQueue) -> None:
    async def run() -> None:
        claims = [asyncio.create_task(work.claim_async("a")) for _ in range(60)]
        await eventually_async(lambda: waiting(work) == 60)
        await work.modify_async(*(Insert(queue="a") for _ in range(60)))
        async with asyncio.timeout(BOUND_SECONDS):
            tasks = await asyncio.gather(*claims)
        assert len({task.id for task in tasks}) == 60

    asyncio.run(run())


@pytest.mark.served_everywhere
def test_scenario_88_a_cancelled_claim_leaves_its_task_to_others(work: WorkQueue) -> None:
    async def run() -> None:
        claim = asyncio.create_task(work.claim_async("a"))
        await eventually_async(lambda: waiting(work) == 1)
        claim.cancel()
        with pytest.raises(asyncio.CancelledError):
            await claim
        await work.insert_async("a")

    asyncio.run(run())
    # A look that was under way may take it, and gives it back: so this claim waits.
    assert claimed(work).claims == 1


def cancel_what_has_taken(
    work: WorkQueue,
    monkeypatch: pytest.MonkeyPatch,
    meanwhile: Callable[[], object] = lambda: None,
) -> None:
    """A claim takes a task of the queue a, and is cancelled before it has seen it."""
    claims = backend_of(work).claims
    look = claims.look

    async def run() -> None:
        began, go_on, looked_at = asyncio.Event(), asyncio.Event(), asyncio.Event()
        loop = asyncio.get_running_loop()

        def slowly(request: object) -> object:
            looked = look(request)
            loop.call_soon_threadsafe(began.set)
            asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result(BOUND_SECONDS)
            loop.call_soon_threadsafe(looked_at.set)
            return looked

        monkeypatch.setattr(claims, "look", slowly)
        claim = asyncio.create_task(work.try_claim_async("a", lease_seconds=HOUR))
        await began.wait()
        await asyncio.to_thread(meanwhile)
        claim.cancel()
        with pytest.raises(asyncio.CancelledError):
            await claim
        go_on.set()
        await looked_at.wait()

    asyncio.run(run())
    monkeypatch.undo()


def test_scenario_88_what_a_cancelled_claim_had_taken_is_given_back(
    work: WorkQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    work.insert("a")
    cancel_what_has_taken(work, monkeypatch)

    def given_back() -> bool:
        [task] = work.tasks("a")
        return (task.claims, task.claimant) == (0, "")

    eventually(given_back)
    assert claimed(work).claims == 1


@pytest.mark.served_everywhere
@pytest.mark.parametrize("answered", [True, False])
def test_a_cancelled_claim_of_docs_leaves_them_to_others(
    work: WorkQueue, *, answered: bool
) -> None:
    work.modify(InsertDoc(namespace="n", key="k"))

    def others_have_it() -> bool:
        try:
            work.claim_docs(DocClaim("n", "k"), claimant="another")
        except DependencyError:
            return False
        return True

    async def run() -> None:
        claim = asyncio.create_task(work.claim_docs_async(DocClaim("n", "k"), lease_seconds=HOUR))
        for _ in range(3):
            await asyncio.sleep(0)
        if answered:  # this loop, which is busy meanwhile, has not seen it
            eventually(lambda: work.docs("n")[0].claimant == work.claimant)
        claim.cancel()
        with pytest.raises(asyncio.CancelledError):
            await claim

    asyncio.run(run())
    eventually(others_have_it)


@pytest.mark.database_only
@needs.heard_commits
def test_what_a_cancelled_claim_gives_back_wakes_a_claim_of_another_process(
    work: WorkQueue, start: Start, make_work: MakeWork, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, waits = make_work(poll_seconds=HOUR), list[Future[Task]]()
    task = work.insert("a")

    def wait() -> None:
        for _ in range(2):  # the second one is woken by a hint, which comes after that of the task
            claim = start("b", of=other)
            work.insert("b")
            claim.result(BOUND_SECONDS)
        waits.append(start("a", of=other))

    cancel_what_has_taken(work, monkeypatch, wait)
    assert waits[0].result(BOUND_SECONDS).id == task.id


@pytest.mark.database_only
@pytest.mark.parametrize("turns", range(6))
def test_a_claim_that_is_woken_while_it_is_cancelled_ends(
    work: WorkQueue, turns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = backend_of(work).room

    async def run() -> None:
        waits = asyncio.Event()

        def told(_waiter: Waiter) -> float:
            waits.set()
            return HOUR

        monkeypatch.setattr(room, "seconds_to_look", told)
        claim = asyncio.ensure_future(work.claim_async("a"))
        await waits.wait()
        await asyncio.sleep(0)
        room.tell(["a"])
        for _ in range(turns):
            await asyncio.sleep(0)
        claim.cancel()
        await asyncio.wait({claim}, timeout=BOUND_SECONDS / 4)
        assert claim.cancelled()

    asyncio.run(run())
