"""The scenarios of EntroQ's own worker, as it comes, against our service."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from entroq import (
    DependencyError,
    Doc,
    DocClaim,
    DocData,
    EntroQWorker,
    FatalWorker,
    Handler,
    Modification,
    MoveError,
    RetryError,
    StopWorker,
    Task,
    TaskData,
)
from entroq.json import EntroQJSON

from tests.contract.harness import eventually_async
from tests.contract.service.http.peers import by_peers, by_seen_peers, claims_wait, done
from tests.contract.service.http.peers_calls import M, inserted
from tests.contract.service.http.running import Running

Body = Callable[[Task, list[Doc]], Awaitable[Modification | None]]


class Handles(Handler):  # type: ignore[misc]  # it has no types
    """Does what a body says, for the doc sets that it names."""

    def __init__(self, body: Body, *keys: str) -> None:
        self._body = body
        self._keys = keys
        self.finished = list[str]()

    async def select(self, task: Task) -> list[DocClaim]:
        return [DocClaim("n", key) for key in self._keys]

    async def do_work(self, task: Task, docs: list[Doc]) -> Modification | None:
        return await self._body(task, docs)

    async def on_success(self, task: Task, docs: list[Doc]) -> None:
        self.finished.append(task.id)


async def work(client: EntroQJSON, body: Body, *keys: str, **options: Any) -> Handles:
    """Run a worker of queue "a" until its body stops it."""
    handles = Handles(body, *keys)
    await asyncio.wait_for(EntroQWorker(client, "a", **options).run(handles), 20)
    return handles


@by_peers
async def test_scenario_42_a_worker_consumes_all(me: EntroQJSON, other: EntroQJSON) -> None:
    seen = list[Any]()

    async def body(task: Task, docs: list[Doc]) -> Modification:
        seen.append(task.value)
        operations = [M.deleting(task), M.inserting(TaskData("done", value=task.value))]
        return M(*operations, then_stop=len(seen) == 10)

    running = asyncio.create_task(work(me, body))
    for number in range(10):
        await inserted(other, value=number)
    handles = await running
    assert sorted(seen) == list(range(10))
    assert len(handles.finished) == 10
    assert await me.tasks("a") == []
    assert len(await me.tasks("done")) == 10


@by_peers
async def test_scenario_44_a_failed_task_is_retried_and_then_moved(
    me: EntroQJSON, other: EntroQJSON
) -> None:
    await inserted(me, value=1)
    attempts = list[tuple[int, str, int]]()

    async def body(task: Task, docs: list[Doc]) -> Modification:
        attempts.append((task.attempt, task.err, task.claims))
        raise RetryError("why", delay_s=0.01, then_stop=task.attempt == 2)

    await work(me, body, max_attempts=3)
    assert attempts == [(0, "", 1), (1, "why", 1), (2, "why", 1)]
    [moved] = await me.tasks("a/err")
    assert (moved.attempt, moved.err, moved.claims, moved.claimant) == (3, "why", 0, "")


@by_peers
async def test_scenario_45_a_task_is_moved_and_a_fatal_error_leaves_it(
    me: EntroQJSON, other: EntroQJSON
) -> None:
    await inserted(me)

    async def move(task: Task, docs: list[Doc]) -> Modification:
        raise MoveError("no use", queue="elsewhere", then_stop=True)

    async def die(task: Task, docs: list[Doc]) -> Modification:
        raise FatalWorker("the end")

    await work(me, move)
    [moved] = await me.tasks("elsewhere")
    assert (moved.err, moved.attempt) == ("no use", 1)
    await inserted(me, value="left")
    with pytest.raises(FatalWorker):
        await work(me, die)
    [left] = await me.tasks("a")
    assert (left.value, left.attempt, left.claims) == ("left", 0, 1)


@by_peers
async def test_scenario_46_a_lease_is_renewed(me: EntroQJSON, other: EntroQJSON) -> None:
    await inserted(me)

    async def body(task: Task, docs: list[Doc]) -> Modification:
        while True:
            [held] = await other.tasks("a")
            if held.version > task.version:
                break
            await asyncio.sleep(0.05)
        assert held.at > task.at
        [now] = docs
        return M(M.deleting(task), M.changing(now, content="done"), then_stop=True)

    await done(me, M.inserting(DocData("n", "k", content="new")))
    await work(me, body, "k", claim_duration_s=0.6)
    assert await me.tasks("a") == []
    [doc] = await me.docs("n")
    assert (doc.content, doc.claimant) == ("done", "")


@by_peers
async def test_scenario_47_a_refused_commit_leaves_the_worker_alive(
    me: EntroQJSON, other: EntroQJSON
) -> None:
    config = await inserted(me, "config", value=1)
    await inserted(me)
    runs = 0

    async def body(task: Task, docs: list[Doc]) -> Modification:
        nonlocal runs, config
        runs += 1
        before = config
        if runs == 1:
            [config] = (await done(other, M.changing(config, value=2))).tasks_changed
        return M(M.deleting(task), M.depending(before), then_stop=runs == 2)

    await work(me, body, claim_duration_s=0.5)
    assert runs == 2
    assert await me.tasks("a") == []


@by_peers
async def test_scenario_48_a_lost_lease_ends_the_work(me: EntroQJSON, other: EntroQJSON) -> None:
    await inserted(me, value="first")
    cancelled = list[Any]()

    async def body(task: Task, docs: list[Doc]) -> Modification:
        if task.value == "second":
            return M(M.deleting(task), then_stop=True)
        while True:
            [newest] = await other.tasks("a")
            ended = M(M.deleting(newest), M.inserting(TaskData("a", value="second")))
            try:
                await other.modify(ended, unsafe_claimant_id=task.claimant)
                break
            except DependencyError:  # a renewal was faster
                continue
        try:
            await asyncio.sleep(20)
        except asyncio.CancelledError:
            cancelled.append(task.value)
            raise
        raise AssertionError("the work goes on")

    await work(me, body, claim_duration_s=0.3)
    assert cancelled == ["first"]
    assert await me.tasks("a") == []


@by_peers
async def test_scenario_50_a_task_that_was_claimed_too_often_is_moved(
    me: EntroQJSON, other: EntroQJSON
) -> None:
    task = await inserted(me)
    for _ in range(2):
        assert await me.claim("a", duration_ms=1, timeout_s=15)
    await asyncio.sleep(0.01)
    ran = list[str]()

    async def body(task: Task, docs: list[Doc]) -> Modification:
        ran.append(task.id)
        return M(M.deleting(task), then_stop=True)

    running = asyncio.create_task(work(me, body, max_claims=2))
    moved = await eventually_async(lambda: other.tasks("a/err"))
    last = await inserted(other)
    await running
    assert ran == [last.id]
    assert [(one.id, one.claims, one.attempt) for one in moved] == [(task.id, 0, 1)]


@by_peers
async def test_scenario_51_work_that_hangs_is_retried(me: EntroQJSON, other: EntroQJSON) -> None:
    await inserted(me)

    async def body(task: Task, docs: list[Doc]) -> Modification:
        if not task.attempt:
            await asyncio.sleep(20)
        return M(M.deleting(task), then_stop=True)

    await work(me, body, work_timeout_s=0.2, retry_delay_s=0.01)
    assert await me.tasks("a") == []


@by_seen_peers
async def test_scenario_52_a_worker_stops(
    me: EntroQJSON, other: EntroQJSON, service: Running
) -> None:
    await inserted(me)

    async def body(task: Task, docs: list[Doc]) -> Modification:
        raise StopWorker

    await work(me, body, "k")
    [back] = await me.tasks("a")
    assert (back.claimant, back.claims, back.attempt) == ("", 0, 0)
    [held] = (await other.claim_docs("n", "k")).sets
    assert held.claimant == "other"
    worker = EntroQWorker(me, "empty")
    running = asyncio.create_task(worker.run(Handles(body)))
    await claims_wait(service)
    worker.stop()
    await asyncio.wait_for(running, 20)
    await done(other, M.inserting(TaskData("empty")))

    async def is_back() -> bool:
        return [task.claims for task in await me.tasks("empty")] == [0]

    await eventually_async(is_back, "a look that was under way gives it back")


@by_peers
async def test_scenario_53_another_error_ends_the_worker(me: EntroQJSON, other: EntroQJSON) -> None:
    await inserted(me)

    async def body(task: Task, docs: list[Doc]) -> Modification:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await work(me, body, claim_duration_s=0.2)
    back = await other.claim("a", timeout_s=15)
    assert back.claims == 2


@by_peers
async def test_workers_share_tasks_whose_docs_they_hold(me: EntroQJSON, other: EntroQJSON) -> None:
    await done(me, M.inserting(DocData("n", "k", content=0)))
    await done(me, *(M.inserting(TaskData("a")) for _ in range(12)))

    async def body(task: Task, docs: list[Doc]) -> Modification:
        [doc] = docs
        return M(M.deleting(task), M.changing(doc, content=doc.content + 1))

    workers = [EntroQWorker(me, "a", retry_delay_s=0.02, max_claims=0) for _ in range(3)]
    running = [asyncio.create_task(worker.run(Handles(body, "k"))) for worker in workers]

    async def all_are_done() -> bool:
        return not await me.queues()

    await eventually_async(all_are_done)
    for worker in workers:
        worker.stop()
    await asyncio.gather(*running)
    [doc] = await me.docs("n")
    assert (doc.content, doc.claimant) == (12, "")
