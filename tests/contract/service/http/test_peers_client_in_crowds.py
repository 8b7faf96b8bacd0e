"""Scenarios in which EntroQ's own client is one of many, or meets errors."""

from __future__ import annotations

import asyncio
from collections import Counter

import httpx
import pytest
from entroq import DocClaim, TaskData, TransportError
from entroq.json import EntroQJSON

from tests.contract.service.http.conftest import Serve
from tests.contract.service.http.peers import by_peers, by_seen_peers, claims_wait, done
from tests.contract.service.http.peers_calls import M, claimed, doc_of, inserted
from tests.contract.service.http.running import Running

# -- many at once ---------------------------------------------------------------------------------


@by_peers
async def test_scenario_42_each_of_many_inserts_wakes_one(
    me: EntroQJSON, other: EntroQJSON
) -> None:
    claims = [asyncio.create_task(me.claim("a", timeout_s=15)) for _ in range(10)]
    await asyncio.gather(*(inserted(other) for _ in range(10)))
    tasks = await asyncio.gather(*claims)
    assert len({task.id for task in tasks}) == 10
    assert {task.claims for task in tasks} == {1}


@by_peers
async def test_scenario_43_short_queues_get_their_share(me: EntroQJSON, other: EntroQJSON) -> None:
    sizes = {"long": 60, "medium": 12, "short": 4}
    for queue, size in sizes.items():
        await done(me, *(M.inserting(TaskData(queue)) for _ in range(size)))
    order = list[str]()

    async def consume() -> None:
        while (task := await me.try_claim(list(sizes))) is not None:
            order.append(task.queue)
            await done(me, M.deleting(task))

    await asyncio.gather(*(consume() for _ in range(5)))
    assert Counter(order) == sizes
    assert "short" not in order[40:]


@by_peers
async def test_scenario_82_task_and_doc_change_exactly_once(
    me: EntroQJSON, other: EntroQJSON
) -> None:
    await inserted(me, value=0)
    await doc_of(me, content=0)

    async def add(client: EntroQJSON) -> None:
        for _ in range(5):
            task = await client.claim("a")
            [doc] = await client.claim_doc_sets([DocClaim("n", "k")], task_to_match=task)
            await done(
                client,
                M.changing(task, value=task.value + 1),
                M.changing(doc, content=doc.content + 1),
            )

    await asyncio.gather(*(add(me.as_claimant(f"worker-{number}")) for number in range(5)))
    assert [task.value for task in await me.tasks("a")] == [25]
    assert [doc.content for doc in await me.docs("n")] == [25]


@by_seen_peers
async def test_scenario_88_a_wait_that_ends_takes_nothing(
    me: EntroQJSON, other: EntroQJSON, service: Running
) -> None:
    with pytest.raises(TimeoutError):
        await me.claim("a", timeout_s=0.2)
    await claims_wait(service, 0)
    waiting = asyncio.create_task(me.claim("a"))
    await claims_wait(service)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    task = await inserted(other)
    claim = await other.claim("a", timeout_s=15)
    # Its version is higher if a look that was under way has given it back.
    assert (claim.id, claim.claims) == (task.id, 1)


# -- errors ---------------------------------------------------------------------------------------


def test_a_client_of_a_service_that_is_not_there_may_try_again(service: Running) -> None:
    service.stop()

    async def call() -> None:
        async with EntroQJSON(service.url) as client:
            await client.try_claim("a")

    with pytest.raises(TransportError) as error:
        asyncio.run(call())
    assert error.value.safe_to_retry


def test_a_claim_that_a_stop_ends_is_no_transport_error(service: Running) -> None:
    async def call() -> None:
        async with EntroQJSON(service.url) as client:
            claim = asyncio.create_task(client.claim("a"))
            await claims_wait(service)
            await asyncio.to_thread(service.stop)
            await claim

    with pytest.raises(httpx.HTTPStatusError, match="503"):
        asyncio.run(call())


def test_scenario_89_a_client_goes_on_after_a_restart(serve: Serve) -> None:
    first = serve()

    async def call() -> None:
        async with EntroQJSON(first.url, "me") as client:
            await inserted(client, value=1)
            task = await claimed(client)
            await asyncio.to_thread(first.stop)
            port = int(first.url.rsplit(":", 1)[1])
            await asyncio.to_thread(serve, port=port)
            assert await client.tasks("a") == [task]
            await done(client, M.deleting(task))

    asyncio.run(call())
