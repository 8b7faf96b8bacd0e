"""Why an entry is not running: every cause is built, and told."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine

import stickybus
from queue_core.maintenance import Maintenance
from queue_core.model.lanes import PARKED, SUSPECT
from stickybus import (
    EntryNotFoundError,
    ImmediateRetries,
    InvalidPostError,
    PersistentBus,
    RetryLater,
    ScheduledRetries,
)
from tests.contract.cluster import Cluster
from tests.contract.conftest import MakeService
from tests.contract.harness import Order, Recorder, database_of, engine_of, eventually


def codes(bus: PersistentBus, record_id: int | None = None) -> list[str]:
    """The codes of the reasons for the one live entry, or for one of an id."""
    if record_id is None:
        [entry] = bus.find()
        record_id = entry.record_id
    return [reason.code for reason in bus.explain(record_id).reasons]


def test_paused_by_whom_and_why(cluster: Cluster) -> None:
    peer = cluster.join("a")
    record_id = peer.bus.post(Order(1))
    peer.bus.pause(reason="the mail server is down", by="ann")

    before = peer.bus.explain(record_id)
    peer.run()
    after = peer.bus.explain(record_id)

    # Born claimed by the node that posts: it learns of its pause when its turn comes.
    assert [reason.code for reason in before.reasons] == ["running"]
    [reason] = after.reasons
    assert reason.code == "paused"
    assert (reason.facts["paused_by"], reason.facts["reason"]) == ("ann", "the mail server is down")
    assert "paused by ann" in str(after)
    assert "until it is resumed (the mail server is down)" in str(after)


def test_what_is_behind_another_of_its_order_key(cluster: Cluster) -> None:
    peer = cluster.join("a", retry=ImmediateRetries(0))
    peer.handler = Recorder(failures=1)
    peer.beat()
    first, second = (peer.bus.post(Order(number), order_key="k") for number in range(2))

    [before] = peer.bus.explain(second).reasons
    peer.run()
    [held] = peer.bus.explain(second).reasons

    assert (before.code, before.facts["record_id"]) == ("behind-another", first)
    assert (held.code, held.facts["record_id"]) == ("key-held", first)
    with stickybus.inspect(cluster.url) as inspector:
        [status] = inspector.queues()
    assert (status.waiting, status.ready) == (1, 0)


def test_what_waits_for_the_first_turn_of_its_order_key(cluster: Cluster) -> None:
    peer = cluster.join("a")
    peer.beat()
    with database_of(peer.bus).begin() as connection:
        record_id = peer.bus.post(Order(1), order_key="k", connection=connection)
    assert codes(peer.bus, record_id) == ["behind-another"]


def test_a_paused_handler_whose_retry_is_due_is_named(cluster: Cluster) -> None:
    peer = cluster.join("a", retry=ScheduledRetries((1,)))
    peer.bus.subscribe(Order, Recorder(failures=1), name="mails")
    peer.beat()  # writes what it serves
    peer.bus.post(Order(1))
    peer.run()
    peer.bus.pause(handler="mails")
    cluster.live(2, peer)
    peer.run()
    assert codes(peer.bus) == ["paused"]


def test_a_paused_handler_is_named_until_it_has_succeeded(cluster: Cluster) -> None:
    peer, mails = cluster.join("a"), Recorder()
    peer.bus.subscribe(Order, mails, name="mails")
    peer.beat()  # writes what it serves
    other = cluster.peer("posts")
    peer.bus.pause(handler="mails", until=timedelta(hours=1))
    record_id = other.bus.post(Order(1))
    [first] = peer.bus.explain(record_id).reasons
    peer.bus.pause(handler="unconcerned")
    peer.run()

    [reason] = peer.bus.explain(record_id).reasons

    assert first.facts["handler"] == reason.facts["handler"] == "mails"
    assert reason.facts["until"] is not None
    peer.bus.resume(handler="mails")
    assert codes(peer.bus) == ["resumed"]


def test_an_entry_that_is_not_due_is_explained_by_its_date(cluster: Cluster) -> None:
    peer = cluster.join("a")
    record_id = peer.bus.post(Order(1), delay=60)

    [reason] = peer.bus.explain(record_id).reasons

    [entry] = peer.bus.find()
    assert (reason.code, reason.facts["until"]) == ("not-due", entry.effective_date)


def test_due_and_waiting_for_its_turn(cluster: Cluster) -> None:
    peer = cluster.join("a")
    cluster.peer("posts").bus.post(Order(1))

    [entry] = peer.bus.find()
    [reason] = peer.bus.explain(entry.record_id).reasons

    assert (reason.code, reason.facts["nodes"]) == ("ready", "a")


def test_no_node_with_that_handler(cluster: Cluster) -> None:
    peer = cluster.join("a")
    record_id = cluster.peer("posts").bus.post({}, event_name="Invoice.paid")
    assert codes(peer.bus) == ["type-unknown"]

    peer.run()

    [entry] = peer.bus.find()
    assert entry.lane == PARKED
    assert codes(peer.bus, record_id) == ["parked", "type-unknown"]


def test_no_node_at_all(cluster: Cluster) -> None:
    peer = cluster.peer("a")
    peer.bus.post(Order(1))

    assert codes(peer.bus) == ["queue-not-served"]


def test_a_queue_that_is_not_started(make_service: MakeService) -> None:
    service = make_service()
    service.start()
    queue = service.create_queue("shop", "late", Recorder())
    queue.stop()
    record_id = queue.schedule({}, event_name="Due", delay=0)
    eventually(lambda: queue.find()[0].lane == PARKED, "it is set aside")

    assert [reason.code for reason in queue.explain(record_id).reasons] == [
        "parked",
        "queue-not-served",
    ]


def test_a_suspect_is_explained_and_so_is_the_entry_that_it_copies(cluster: Cluster) -> None:
    dead, peer = cluster.join("dead"), cluster.join("a")
    reaped = dead.bus.post(Order(1))
    dead.claim()
    cluster.bury("dead", peer)

    [entry] = peer.bus.find()
    assert entry.lane == SUSPECT
    assert codes(peer.bus) == ["suspect"]
    [reason] = peer.bus.explain(reaped).reasons
    assert (reason.code, reason.facts["copy"]) == ("reaped", entry.record_id)
    peer.run()
    [reason] = peer.bus.explain(reaped).reasons
    assert reason.facts["copy"] == entry.record_id


def test_running_on_which_node_and_since_when(cluster: Cluster) -> None:
    peer = cluster.join("a")
    record_id = peer.bus.post(Order(1))

    [reason] = peer.bus.explain(record_id).reasons

    assert (reason.code, reason.facts["node"]) == ("running", "a")
    assert reason.facts["since"] == cluster.clock.now()

    cluster.clock.advance(seconds=60)
    [reason] = peer.bus.explain(record_id).reasons
    assert (reason.code, reason.facts["node"]) == ("node-not-live", "a")
    assert "silent since" in reason.text


def test_in_the_lane_of_a_node_that_is_not_live(cluster: Cluster) -> None:
    dead, peer = cluster.join("dead"), cluster.join("a")
    record_id = dead.bus.post(Order(1), delay=1)
    cluster.clock.advance(seconds=40)
    peer.beat()

    assert codes(peer.bus, record_id) == ["node-not-live"]


def test_waits_for_its_retry(cluster: Cluster) -> None:
    peer, shaky = cluster.join("a"), Recorder(failures=2, error=RetryLater(timedelta(seconds=60)))
    record_id = cluster.peer("posts").bus.post({}, event_name="Odd")
    peer.bus.subscribe("Odd", shaky, name="shaky")
    peer.beat()  # writes what it serves
    peer.run()
    [entry] = peer.bus.find()

    [reason] = peer.bus.explain(record_id).reasons

    assert (reason.code, reason.facts["failures"]) == ("waits-for-retry", 1)
    assert reason.facts["until"] == entry.effective_date


def test_which_subscriber_waits_for_its_retry(cluster: Cluster) -> None:
    peer, shaky = cluster.join("a"), Recorder(failures=1, error=RetryLater(timedelta(seconds=60)))
    peer.bus.subscribe(Order, shaky, name="shaky")
    record_id = peer.bus.post(Order(1))
    peer.run()

    [reason] = peer.bus.explain(record_id).reasons

    assert (reason.code, reason.facts["subscriber"]) == ("waits-for-retry", "shaky")
    assert "shaky has failed once" in reason.text


@pytest.mark.parametrize("fails", [False, True])
def test_an_entry_that_has_ended_is_explained_by_how_and_when(
    cluster: Cluster, *, fails: bool
) -> None:
    peer = cluster.join("a", retry=stickybus.ImmediateRetries(0))
    peer.bus.subscribe("Odd", Recorder(failures=int(fails)), name="odd")
    record_id = peer.bus.post({}, event_name="Odd")
    peer.run()

    explanation = peer.bus.explain(record_id)

    [reason] = explanation.reasons
    [entry] = peer.bus.history()
    assert reason.code == "ended"
    assert reason.facts["state"] == explanation.state == ("FAILED" if fails else "PROCESSED")
    assert reason.facts["finished_date"] == entry.finished_date
    assert reason.facts["error"] == ("RuntimeError: the handler fails" if fails else None)


def test_an_entry_that_was_removed_is_explained_by_that(cluster: Cluster) -> None:
    peer = cluster.peer("a")
    record_id = peer.bus.post(Order(1))
    Maintenance(engine_of(peer.bus)).remove(record_id)

    [reason] = peer.bus.explain(record_id).reasons

    assert (reason.code, reason.facts["state"]) == ("ended", "REMOVED")


def test_several_causes_are_all_told(cluster: Cluster) -> None:
    peer = cluster.peer("a")
    peer.bus.pause()
    record_id = peer.bus.post(Order(1), delay=60)

    assert codes(peer.bus, record_id) == ["paused", "queue-not-served", "not-due"]


def test_in_the_callers_transaction(cluster: Cluster, engine: Engine) -> None:
    peer = cluster.join("a")
    with engine.connect() as connection:
        record_id = peer.bus.post(Order(1), delay=60, connection=connection)
        found = peer.bus.explain(record_id, connection=connection)
        assert [reason.code for reason in found.reasons] == ["not-due"]
        with pytest.raises(EntryNotFoundError):
            peer.bus.explain(record_id)


@pytest.mark.parametrize("record_id", ["1", None, 2**70])
def test_what_can_be_no_id_is_refused(cluster: Cluster, record_id: Any) -> None:
    with pytest.raises(InvalidPostError):
        cluster.peer("a").bus.explain(record_id)


def test_an_entry_of_another_queue_is_not_found(make_service: MakeService) -> None:
    service = make_service()
    one = service.create_queue("shop", "one", Recorder())
    other = service.create_queue("shop", "other", Recorder())
    record_id = one.schedule({}, event_name="Due", delay=60)

    with pytest.raises(EntryNotFoundError):
        other.explain(record_id)


def test_an_entry_whose_progress_cannot_be_read_is_explained_all_the_same(
    cluster: Cluster,
) -> None:
    peer = cluster.peer("a")
    record_id = peer.bus.post(Order(1), delay=60)
    store = peer.store
    store.database.write(
        lambda connection: store.statements.change(
            connection, record_id=record_id, values={"subscribers_done": "[broken"}
        )
    )

    assert "not-due" in codes(peer.bus, record_id)
