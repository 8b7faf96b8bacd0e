"""Commits of callers' transactions that come quickly are looked for together, others at once.

A look for entries of other processes does not follow each of them.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from queue_core import claim_loop
from queue_core.claim_loop import ClaimLoop
from queue_core.posting.commit_rate import CommitRate
from tests.contract.cluster import Cluster, Peer
from tests.contract.conftest import MakeBus
from tests.contract.harness import BOUND_SECONDS, Order, Recorder, eventually, lifecycle_of
from tests.contract.transactions.running import engine, looks

__all__ = ["engine", "looks"]

LONG_SECONDS = 3_600.0
"""A pause that outlasts the test: whatever happens before its end does not wait for it."""


@pytest.fixture
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Transactions end quickly, and more of them are waited for until something wakes the loop."""
    monkeypatch.setattr(CommitRate, "is_high", lambda *_: True)
    monkeypatch.setattr(claim_loop, "GATHER_SECONDS", LONG_SECONDS)


@pytest.fixture
def peer(cluster: Cluster) -> Peer:
    """Without loops, and with nothing to do for a while."""
    peer = cluster.join("a", poll_interval_seconds=LONG_SECONDS, lease_seconds=LONG_SECONDS)
    peer.claim()
    return peer


def post(peer: Peer, engine: Engine, number: int) -> int:
    with Session(engine) as session:
        record_id = peer.bus.post(Order(number), connection=session)
        session.commit()
    return record_id


@contextmanager
def gathering(loop: ClaimLoop) -> Iterator[list[float]]:
    """While a turn in another thread lets commits gather; yields its answer, after the block."""
    pauses = list[float]()
    thread = threading.Thread(target=lambda: pauses.append(loop.turn_in_time()))
    thread.start()
    eventually(lambda: loop.announced.gathering, "the loop gathers")
    try:
        yield pauses
    finally:
        loop.awake.set()
        thread.join(BOUND_SECONDS)
        assert not thread.is_alive()


def test_a_commit_after_a_pause_is_looked_for_at_once(
    engine: Engine,
    make_bus: MakeBus,
    recorder: Recorder,
    looks: list[Sequence[int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(claim_loop, "GATHER_SECONDS", LONG_SECONDS)
    bus = make_bus(poll_interval_seconds=60.0, lease_seconds=60.0)
    bus.subscribe(Order, recorder)
    bus.start()
    with Session(engine) as session:
        record_id = bus.post(Order(1), connection=session)
        session.commit()
    recorder.wait()
    assert [record_id] in looks
    assert not lifecycle_of(bus).claim_loop.announced.gathering


@pytest.mark.usefixtures("quickly")
def test_commits_that_come_quickly_are_looked_for_together(
    engine: Engine, peer: Peer, looks: list[Sequence[int]]
) -> None:
    loop = peer.lifecycle.claim_loop
    first = post(peer, engine, 0)
    loop.awake.clear()
    with gathering(loop) as pauses:
        assert looks == [[first]]
        rest = [post(peer, engine, number) for number in range(1, 6)]
        assert not loop.awake.is_set
        assert looks == [[first]]
    assert pauses == [0.0]

    loop.turn()

    assert looks == [[first], rest]
    peer.run()
    assert sorted(peer.handler.numbers()) == list(range(6))


def test_a_commit_during_the_last_turn_that_gathers_has_a_turn_of_its_own(
    engine: Engine, peer: Peer, looks: list[Sequence[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = peer.lifecycle.claim_loop
    loop.announced.gathering = True  # since the turn before
    turn = loop.turn

    def turn_and_post() -> float:
        pause = turn()
        posted.append(post(peer, engine, 1))
        return pause

    posted = list[int]()
    loop.awake.clear()
    with monkeypatch.context() as patched:
        patched.setattr(loop, "turn", turn_and_post)
        assert loop.turn_in_time() == 0.0
    assert not loop.awake.is_set
    assert looks == []

    loop.turn()

    assert looks == [posted]
    peer.run()


@pytest.mark.usefixtures("quickly")
def test_only_a_whole_pause_tells_of_callers_that_wait(
    peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, told = peer.lifecycle.claim_loop, list[float]()
    monkeypatch.setattr(CommitRate, "gathered", lambda _, since: told.append(since))
    with gathering(loop):
        pass
    assert told == []

    monkeypatch.setattr(claim_loop, "GATHER_SECONDS", 0.0)
    loop.awake.clear()
    loop.turn_in_time()

    assert len(told) == 1


@pytest.mark.usefixtures("quickly")
def test_a_stop_does_not_wait_for_more_commits(
    engine: Engine, make_bus: MakeBus, recorder: Recorder
) -> None:
    bus = make_bus(poll_interval_seconds=60.0, lease_seconds=60.0)
    bus.subscribe(Order, recorder)
    bus.start()
    announced = lifecycle_of(bus).claim_loop.announced
    eventually(lambda: announced.gathering, "the loop gathers")
    stopping = threading.Thread(target=bus.stop)
    stopping.start()
    stopping.join(BOUND_SECONDS)
    assert not stopping.is_alive()


def test_only_commits_that_are_looked_for_are_known_not_to_be_of_others(
    engine: Engine, cluster: Cluster, peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is not born claimed may need the hint."""
    told = list[str]()
    for name, one in (("sticky", peer), ("polling", cluster.join("b", mode="POLLING"))):
        dialect = one.store.database.dialect
        monkeypatch.setattr(dialect, "writes_for_caller", partial(told.append, name))
        post(one, engine, 1)
    assert told == ["sticky"]
