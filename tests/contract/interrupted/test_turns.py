"""Turns of the claim loop and the finish loop that an exception cuts off anywhere.

Memory that is used up raises such an exception.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import timedelta
from types import CodeType
from typing import Any

import pytest
from sqlalchemy import create_engine
from sqlalchemy.pool import NullPool

from queue_core.claiming.claimed_hand_over import ClaimedHandOver
from queue_core.claiming.claimer import Claimer
from queue_core.finishing.finisher import Finisher
from queue_core.finishing.unwritten_outcomes import UnwrittenOutcomes
from queue_core.holding.ledger import Ledger
from queue_core.model.mode import Mode
from queue_core.model.posting import Posting
from queue_core.posting import posted_hand_over
from queue_core.posting.announced_commits import AnnouncedCommits
from queue_core.posting.posted_hand_over import PostedHandOver
from queue_core.running.handler_pool import HandlerPool
from stickybus import State
from tests.contract.cluster import Cluster
from tests.contract.harness import Order, engine_of, states
from tests.contract.interrupted.interrupts import Interrupt, Places, was_interrupted

pytestmark = pytest.mark.slow


ORDERS = 4
"""Posted before each turn: more than the pool takes. More of them pass the same places."""
LOADED = 8
"""Posted where what the pool has no room for is loaded by a loop, each round of which differs."""
SECONDS = 60.0
"""After which all has ended; a sweep comes by itself once in a lease at least."""
EACH = {"sqlite": 3, "postgresql": 23, "mariadb": 23, "mysql": 23}
"""One place of this number is tried.

The state in memory is the same on servers, whose round trips take long.
"""
CRITICAL = [
    function.__code__
    for function in (
        *(Claimer.load_waiting, Claimer._claim, Claimer._has_claimed),
        *(ClaimedHandOver.load, ClaimedHandOver.submit, ClaimedHandOver.submit_early),
        *(
            AnnouncedCommits._start_committed,
            PostedHandOver.submit,
            HandlerPool.submit,
            HandlerPool._keep_places,
        ),
        *(Ledger.add, Ledger.give_up, Ledger.discard, Ledger.wait, Ledger.next_waiting),
        *(Finisher._turn, UnwrittenOutcomes._dequeue, Finisher._tell_written),
    )
]


class Shop:
    """A node that takes its turns by hand."""

    def __init__(self, cluster: Cluster, mode: Mode) -> None:
        self.cluster = cluster
        self.node = cluster.join(
            "a", mode=mode, handler_threads=1, max_entries_claimed=1, poll_interval_seconds=1.0
        )
        self.lifecycle = self.node.lifecycle
        self.posted = 0

    def orders(self, count: int = ORDERS) -> list[Order]:
        """What is posted next."""
        self.posted = count
        return [Order(number) for number in range(self.posted)]

    def run(self) -> None:
        """Run what is with the pool."""
        self.lifecycle.pool.run_submitted()

    def check(self) -> None:
        """Each order runs once, and nothing is held then."""
        node, began = self.node, self.cluster.clock.monotonic()
        while node.run() or len(self.lifecycle.ledger) or len(node.bus.history()) < self.posted:
            assert self.cluster.clock.monotonic() - began < SECONDS, f"never ran: {node.bus.find()}"
            self.cluster.tick(1.0, node)
        assert sorted(node.handler.numbers()) == list(range(self.posted))
        assert states(node.bus.history()) == [State.PROCESSED] * self.posted
        node.bus.truncate_history()
        node.handler.events.clear()
        self.posted = 0


@pytest.fixture
def shop(request: pytest.FixtureRequest, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """In a mode; what the pool has no room for waits by its id."""
    monkeypatch.setattr(posted_hand_over, "FROM_MEMORY", 0)
    return Shop(cluster, request.param)


def claims(shop: Shop) -> Callable[[], Any]:
    shop.node.bus.post_many(shop.orders())
    shop.lifecycle.claimer.look()
    return shop.lifecycle.claim_loop.turn


def claims_with_places(shop: Shop) -> Callable[[], Any]:
    """The bus has a limit, which is far from full."""
    if not shop.node.bus.limits():
        shop.node.bus.limit(concurrency=10_000)
    return claims(shop)


def claims_ahead(shop: Shop) -> Callable[[], Any]:
    """Their date is to come."""
    soon = shop.cluster.clock.now() + timedelta(milliseconds=3)
    for order in shop.orders():
        engine_of(shop.node.bus).poster.post("bus", [Posting(event=order, at=soon)])
    shop.lifecycle.claimer.look()
    return shop.lifecycle.claim_loop.turn


def starts_ahead(shop: Shop) -> Callable[[], Any]:
    """What was claimed before its date, which has come."""
    claims_ahead(shop)()
    assert len(shop.lifecycle.ledger)
    shop.cluster.clock.advance(seconds=0.003)
    return shop.lifecycle.claim_loop.turn


def loads(shop: Shop) -> Callable[[], Any]:
    """Born claimed, more than the pool takes: the rest is loaded when that has run."""
    shop.node.bus.post_many(shop.orders(LOADED))
    assert shop.lifecycle.ledger.waiting
    shop.run()
    shop.lifecycle.finisher.write_all()
    return shop.lifecycle.claim_loop.turn


def looks_up(shop: Shop) -> Callable[[], Any]:
    """A caller's transaction has committed."""
    with create_engine(shop.cluster.url, poolclass=NullPool).begin() as connection:
        shop.node.bus.post_many(shop.orders(LOADED), connection=connection)
    return shop.lifecycle.claim_loop.turn


def finishes(shop: Shop) -> Callable[[], Any]:
    """There is more to claim, so on SQLite the outcomes' transaction does."""
    shop.node.bus.post_many(shop.orders())
    shop.lifecycle.claimer.look()
    shop.lifecycle.claim_loop.turn()
    shop.run()
    return shop.lifecycle.finisher.turn


CASES = {
    "claims": (claims, Mode.STICKY_POLLING),
    "claims-with-places": (claims_with_places, Mode.STICKY_POLLING),
    "claims-ahead": (claims_ahead, Mode.STICKY_POLLING),
    "starts-ahead": (starts_ahead, Mode.STICKY_POLLING),
    "loads": (loads, Mode.STICKY_EVENTS),
    "looks-up": (looks_up, Mode.STICKY_EVENTS),
    "finishes": (finishes, Mode.STICKY_POLLING),
}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("arrange", "shop"), list(CASES.values()), ids=list(CASES), indirect=["shop"]
)
@pytest.mark.parametrize(
    ("places", "among"),
    [(Places.LINES, ()), (Places.INSTRUCTIONS, CRITICAL)],
    ids=["lines", "critical"],
)
def test_what_a_turn_held_when_it_was_interrupted_runs_once(
    shop: Shop,
    arrange: Callable[[Shop], Callable[[], Any]],
    places: Places,
    among: Collection[CodeType],
) -> None:

    whole = Interrupt(places, among=among)
    for _ in range(2):  # until statements are known
        whole = Interrupt(places, among=among)
        whole.during(arrange(shop))
        shop.check()
    interrupted = 0
    tried = range(0, whole.passed, EACH[shop.node.store.database.dialect.name])
    for place in tried:
        interrupt = Interrupt(places, place, among)
        turn = arrange(shop)
        try:
            interrupt.during(turn)
        except BaseException as error:
            if not was_interrupted(error):
                raise
            interrupted += 1
        try:
            shop.check()
        except BaseException as failure:
            failure.add_note(f"place {place}: {interrupt.where}")
            raise
    assert interrupted > len(tried) / 2
