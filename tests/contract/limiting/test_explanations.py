"""Why an entry of a limited queue waits."""

from __future__ import annotations

from datetime import timedelta

from stickybus import State
from tests.contract.cluster import Cluster
from tests.contract.harness import Order


def test_an_entry_that_waits_for_a_place_is_explained(cluster: Cluster) -> None:
    peer = cluster.join("a")
    peer.bus.limit(concurrency=2, by="ann")
    for number in range(3):
        peer.bus.post(Order(number))
    peer.claim()
    [waiting] = peer.bus.find(states=State.AVAILABLE)
    peer.beat()

    [reason] = peer.bus.explain(waiting.record_id).reasons
    assert reason.code == "limited"
    assert (reason.facts["concurrency"], reason.facts["running"]) == (2, 2)
    assert "limited to 2 at once by ann" in reason.text
    held = ", ".join(str(one.record_id) for one in peer.bus.find(states=State.IN_PROCESSING))
    assert reason.facts["running_ids"] == held
    assert f"Running now: 2 ({held})" in reason.text
    assert reason.facts["until"] is None

    peer.bus.unlimit()
    [reason] = peer.bus.explain(waiting.record_id).reasons
    assert reason.code == "unlimited"


def test_the_first_entries_that_hold_places_are_named(cluster: Cluster) -> None:
    peer = cluster.join("a", handler_threads=6)
    peer.bus.limit(concurrency=6)
    for number in range(7):
        peer.bus.post(Order(number))
    peer.claim()
    [waiting] = peer.bus.find(states=State.AVAILABLE)

    [reason] = [one for one in peer.bus.explain(waiting.record_id).reasons if one.code == "limited"]
    assert (reason.facts["running"], reason.facts["running_ids"]) == (6, "1, 2, 3, 4, 5, ...")


def test_it_is_explained_until_when_the_rate_holds_an_entry_up(cluster: Cluster) -> None:
    peer = cluster.join("a")
    peer.bus.limit(rate=1, per=timedelta(minutes=1))
    for number in range(2):
        peer.bus.post(Order(number))
    peer.claim()
    peer.run()
    [waiting] = peer.bus.find(states=State.AVAILABLE)
    peer.beat()
    until = cluster.clock.now() + timedelta(minutes=1)

    [reason] = peer.bus.explain(waiting.record_id).reasons
    assert (reason.code, reason.facts["until"]) == ("limited", until)
    assert "Its rate allows the next start at 2026-01-01 00:01:00 UTC" in reason.text

    cluster.live(61, peer, step=3)
    [reason] = peer.bus.explain(waiting.record_id).reasons
    assert (reason.code, reason.facts["until"]) == ("limited", None)
