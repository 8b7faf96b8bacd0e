"""A post may limit each run of its entry, whatever its handler's own limit is."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from queue_core.model.run_limit import run_limit_of
from stickybus import ImmediateRetries, InvalidPostError, Posting, State
from tests.contract.cluster import Cluster, Peer
from tests.contract.conftest import MakeService
from tests.contract.harness import Order, Recorder, ended


def is_cut_after(cluster: Cluster, peer: Peer, seconds: int) -> bool:
    """Whether a run that hangs is cut from then on, and not before."""
    with ThreadPoolExecutor(1) as threads:
        hanging = threads.submit(peer.lifecycle.pool.run_submitted)
        peer.handler.wait()
        try:
            cluster.live(seconds - 4, peer)
            peer.claim()
            peer.lifecycle.finisher.write_all()
            early = peer.bus.history()
            cluster.live(8, peer)
            peer.claim()
            peer.lifecycle.finisher.write_all()
            return early == [] and len(peer.bus.history()) == 1
        finally:
            peer.handler.release()
            hanging.result()


@pytest.mark.parametrize("of_handler", [None, 1, 1_000])
def test_a_run_that_takes_longer_has_failed(cluster: Cluster, of_handler: float | None) -> None:
    peer = cluster.join("a", retry=ImmediateRetries(0))
    peer.bus.unsubscribe(peer.handle)
    peer.bus.subscribe(Order, peer.handle, name="orders", max_run_seconds=of_handler)
    peer.handler = Recorder(hold=True)
    peer.bus.post(Order(1), max_run_seconds=20, headers={"x": "y"}, search_key1="a text")

    assert is_cut_after(cluster, peer, 20)
    [entry] = peer.bus.history()
    assert entry.processing_state is State.FAILED
    assert (entry.last_error or "").startswith("TimeoutError: ran longer than 20.0 s")
    assert (entry.captured, entry.search_key1) == ({"x": "y"}, "a text")


def test_the_copy_of_a_reaped_entry_has_the_limit(cluster: Cluster) -> None:
    dead, alive = cluster.join("a"), cluster.join("b", retry=ImmediateRetries(0))
    dead.bus.post_many([Posting(event=Order(1), max_run_seconds=20)])
    cluster.vanish(dead)
    cluster.bury("a", alive)
    alive.handler = Recorder(hold=True)
    alive.claim()
    before = len(alive.bus.history())
    with ThreadPoolExecutor(1) as threads:
        hanging = threads.submit(alive.lifecycle.pool.run_submitted)
        alive.handler.wait()
        cluster.live(24, alive)
        alive.claim()
        alive.lifecycle.finisher.write_all()
        failed = alive.bus.history(states="FAILED")
        alive.handler.release()
        hanging.result()

    assert (before, len(failed)) == (1, 1)


def test_what_replaces_an_entry_brings_its_own_limit(cluster: Cluster) -> None:
    bus = cluster.peer("a").bus
    bus.post(Order(1), key="k", delay=60, max_run_seconds=5)
    bus.post(Order(2), key="k", delay=60, max_run_seconds=20, on_conflict="replace")
    assert [run_limit_of(entry.headers) for entry in bus.find()] == [20.0]

    bus.post(Order(3), key="k", delay=60, on_conflict="replace")
    assert [run_limit_of(entry.headers) for entry in bus.find()] == [None]


def test_notifications_have_limits(make_service: MakeService) -> None:
    service, handler = make_service(poll_interval_seconds=0.05), Recorder(hold=True)
    queue = service.create_queue("shop", "bills", handler, retry=ImmediateRetries(0))
    service.start()
    queue.start()
    queue.schedule(Order(1), delay=0, max_run_seconds=0.1)

    [entry] = ended(queue)
    handler.release()
    assert (entry.last_error or "").startswith("TimeoutError: ran longer than 0.1 s")


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), True, "soon"])
def test_what_is_no_time_is_refused(cluster: Cluster, seconds: Any) -> None:
    bus = cluster.peer("a").bus
    with pytest.raises(InvalidPostError, match=r"max_run_seconds=.*Nothing was written") as caught:
        bus.post(Order(1), max_run_seconds=seconds)
    assert (caught.value.key, caught.value.value) == ("max_run_seconds", repr(seconds))
    assert bus.find() == []
