"""Callers that go while their claim waits: nothing stays claimed for them."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from typing import Any

import grpc
import pytest

from devtools.proxy import Proxy
from queue_core.errors import DatabaseUnreachableError
from tests.contract.harness import eventually
from tests.contract.service.grpc.conftest import Serve
from tests.contract.service.grpc.harness import PATIENCE_SECONDS, Served, Stubs, refused
from tests.contract.work_queue.backends import waiters_of
from work_queue.face.claiming import Claiming
from work_queue.remote import grpc_transport as transport
from work_queue.requests import ClaimRequest
from work_queue.service.rpc import listener
from work_queue.task import Task
from work_queue.wire import calls as wire
from work_queue.work_queue import WorkQueue

CLAIM = "/api.EntroQ/Claim"


def waiting(work: WorkQueue) -> int:
    """How many claims wait."""
    return len(waiters_of(work))


def is_untouched(work: WorkQueue) -> None:
    """The one task of the queue a has never been claimed, and can be."""
    # A look that was under way may have taken it, and gives it back.
    eventually(lambda: [(task.claims, task.claimant) for task in work.tasks("a")] == [(0, "")])
    assert work.claim("a", timeout_seconds=PATIENCE_SECONDS).claims == 1


def test_scenario_88_a_cancelled_claim_takes_nothing(
    entroq: Any, stubs: Stubs, work: WorkQueue
) -> None:
    call = entroq.Claim.future(stubs.api.ClaimRequest(claimant_id="ann", queues=["a"]))
    eventually(lambda: waiting(work) == 1)
    call.cancel()
    eventually(lambda: waiting(work) == 0)
    work.insert("a")
    is_untouched(work)


def test_a_claim_whose_time_is_over_takes_nothing(
    entroq: Any, stubs: Stubs, work: WorkQueue
) -> None:
    request = stubs.api.ClaimRequest(claimant_id="ann", queues=["a"])
    refused(grpc.StatusCode.DEADLINE_EXCEEDED, entroq.Claim, request, timeout=0.1)
    eventually(lambda: waiting(work) == 0)
    work.insert("a")
    is_untouched(work)


def _claim(port: int, request: bytes) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        call: Any = channel.unary_unary(CLAIM)
        call(request)


def test_scenario_88_a_killed_caller_takes_nothing(
    served: Served, stubs: Stubs, work: WorkQueue
) -> None:
    request = stubs.api.ClaimRequest(claimant_id="ann", queues=["a"]).SerializeToString()
    spawn = multiprocessing.get_context("spawn")
    caller = spawn.Process(target=_claim, args=(served.port, request))
    caller.start()
    eventually(lambda: waiting(work) == 1, seconds=60)
    assert caller.pid is not None
    os.kill(caller.pid, signal.SIGKILL)
    caller.join(PATIENCE_SECONDS)
    eventually(lambda: waiting(work) == 0)
    work.insert("a")
    is_untouched(work)


def test_a_caller_whose_network_is_gone_is_missed(
    serve: Serve, stubs: Stubs, work: WorkQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("KEEPALIVE_SECONDS", "KEEPALIVE_ANSWER_SECONDS"):
        monkeypatch.setattr(listener, name, 1)
    request = stubs.api.ClaimRequest(claimant_id="ann", queues=["a"])
    with Proxy("127.0.0.1", serve().port) as network:
        address = f"127.0.0.1:{network.port}"
        with grpc.insecure_channel(address) as channel:
            call = stubs.api_stub(channel).Claim.future(request)
            eventually(lambda: waiting(work) == 1)
            network.swallow()
            eventually(lambda: waiting(work) == 0)
            work.insert("a")
            is_untouched(work)
            call.cancel()


def test_a_service_whose_network_is_gone_is_missed_by_its_clients(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    hurried = [(key, 500 if key.endswith("_ms") else value) for key, value in transport.OPTIONS]
    monkeypatch.setattr(transport, "OPTIONS", tuple(hurried))
    with (
        Proxy("127.0.0.1", serve().port) as network,
        WorkQueue(f"grpc://127.0.0.1:{network.port}") as client,
    ):
        client.time()
        network.swallow()
        started = time.monotonic()
        with pytest.raises(DatabaseUnreachableError):
            client.time()
        assert time.monotonic() - started < PATIENCE_SECONDS


def server_has_read(channel: grpc.Channel) -> None:
    """Wait until the server has what was sent by now, though its loop is blocked.

    Metadata that are too long are refused by the part of gRPC that reads the connection.
    """
    long = [("long", "x" * 50_000)]
    call: Any = channel.unary_unary("/no/method")
    refused(grpc.StatusCode.RESOURCE_EXHAUSTED, call, b"", metadata=long, timeout=PATIENCE_SECONDS)


def test_what_was_claimed_for_a_caller_that_is_gone_is_given_back(
    channel: grpc.Channel, stubs: Stubs, work: WorkQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    claimed, answers = threading.Event(), threading.Event()
    claim = Claiming.claim_many_async

    async def slowly(self: Claiming, *queues: str, **options: Any) -> list[Task]:
        tasks = await claim(self, *queues, **options)
        claimed.set()
        # It blocks the loop, so that nothing tells the call that it was cancelled.
        answers.wait(PATIENCE_SECONDS)
        return tasks

    monkeypatch.setattr(Claiming, "claim_many_async", slowly)
    work.insert("a", "mine")
    request = stubs.api.ClaimRequest(claimant_id="ann", queues=["a"], duration_ms=3_600_000)
    own = wire.Claim(ClaimRequest("ann", ("a",), 3600.0), timeout_seconds=0, ticket="one")
    for path, data in (
        ("/api.EntroQ/TryClaim", request.SerializeToString()),
        (CLAIM, request.SerializeToString()),
        (wire.method_of(wire.CLAIM.name), wire.CLAIM.ask(own, 1000)),
    ):
        claimed.clear()
        answers.clear()
        call: Any = channel.unary_unary(path)
        calling = call.future(data)
        assert claimed.wait(PATIENCE_SECONDS)
        calling.cancel()
        server_has_read(channel)
        answers.set()
        eventually(lambda: work.queue_stats("a")[0].available == 1)
        [task] = work.tasks("a")
        assert (task.claimant, task.value) == ("", "mine")


def test_a_stop_ends_claims_that_wait_and_leaves_no_lease(
    serve: Serve, stubs: Stubs, work: WorkQueue
) -> None:
    served = serve()
    request = stubs.api.ClaimRequest(claimant_id="ann", queues=["a"])
    with served.channel() as channel:
        calls = [stubs.api_stub(channel).Claim.future(request) for _ in range(5)]
        eventually(lambda: waiting(work) == 5)
        served.stop()
        for call in calls:
            error: Any = call.exception(PATIENCE_SECONDS)
            assert error.code() in {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED}
    assert waiting(work) == 0
    work.insert("a")
    is_untouched(work)


def test_tasks_that_arrive_during_a_stop_go_to_somebody_or_stay(
    serve: Serve, stubs: Stubs, work: WorkQueue
) -> None:
    served = serve()
    request = stubs.api.ClaimRequest(claimant_id="ann", queues=["a"], duration_ms=3_600_000)
    with served.channel() as channel:
        calls = [stubs.api_stub(channel).Claim.future(request) for _ in range(20)]
        eventually(lambda: waiting(work) == 20)
        stop = threading.Thread(target=served.stop)
        stop.start()
        for _ in range(20):
            work.insert("a")
        stop.join()
        got = {call.result().task.id for call in calls if call.exception(PATIENCE_SECONDS) is None}
    eventually(lambda: {task.id for task in work.tasks("a") if task.claimant} == got)
