"""All entries that wait, and match, are removed or get another date."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import Engine, update

from queue_core.errors import InvalidPostError
from queue_core.model.posting import Posting
from queue_core.model.states import State
from queue_core.reading import bulk
from sql.tables import entry_tables
from stickybus import PersistentBus, ScheduledRetries
from stickybus.testing import drain
from tests.contract.cluster import Cluster, Peer
from tests.contract.conftest import MakeBus, MakeService
from tests.contract.failed.shop import FAR
from tests.contract.harness import Recorder, Trouble, eventually


def test_clear_removes_what_waits_and_never_what_runs(
    holding: tuple[PersistentBus, int, list[int]],
) -> None:
    bus, running, waiting = holding
    assert bus.size() == 4
    assert (bus.clear(dry_run=True).matched, bus.size()) == (3, 4)
    done = bus.clear()
    assert (done.matched, done.changed, done.errors) == (3, 3, ())
    assert [entry.record_id for entry in bus.find()] == [running]
    removed = bus.history(states=State.REMOVED)
    assert [entry.record_id for entry in removed] == waiting


def test_removals_take_a_filter_and_only_what_matches_it(
    holding: tuple[PersistentBus, int, list[int]],
) -> None:
    bus, running, waiting = holding
    with pytest.raises(InvalidPostError, match="clear"):
        bus.remove_all()
    assert bus.remove_all(event_name="Slow", search_key1=2).changed == 1
    assert bus.remove_all(event_name="Slow", effective_before=datetime.now(UTC)).changed == 0
    assert bus.remove_all(record_ids=[running, waiting[0]]).changed == 1
    assert [entry.record_id for entry in bus.find()] == [running, waiting[2]]


def test_what_matches_gets_another_date_and_runs_then(make_bus: MakeBus) -> None:
    bus, ran = make_bus(poll_interval_seconds=600.0), list[object]()
    bus.subscribe("Mail", ran.append)
    bus.start()
    ids = [bus.post({"n": n}, event_name="Mail", delay=FAR, search_key1=n % 2) for n in range(4)]
    date = datetime.now(UTC) + 2 * FAR
    done = bus.reschedule_all(at=date, search_key1=1)
    assert (done.matched, done.changed) == (2, 2)
    assert [entry.effective_date > date - FAR for entry in bus.find()] == [False, True] * 2
    assert bus.reschedule_all(delay=0, record_ids=ids[:2]).changed == 2
    eventually(lambda: len(ran) == 2, "the node has learnt of it")
    for options in ({}, {"at": date, "delay": 1}):
        with pytest.raises(InvalidPostError):
            bus.reschedule_all(**options)  # type: ignore[arg-type]


def _retrying(cluster: Cluster) -> tuple[Peer, int, list[str]]:
    """A node with an entry that one of its three subscribers has handled, and each call of them."""
    peer, calls = cluster.join("a", lease_seconds=1e6), list[str]()

    def fail(name: str) -> None:
        calls.append(name)
        raise Trouble

    bus = peer.bus
    bus.subscribe("Mail", lambda _event: calls.append("done"), name="done")
    for name, hours in (("soon", 1), ("late", 2)):
        retry = ScheduledRetries((timedelta(hours=hours), timedelta(hours=4)))
        bus.subscribe("Mail", lambda _event, name=name: fail(name), name=name, retry=retry)
    record_id = bus.post({}, event_name="Mail")
    peer.run()
    calls.clear()
    return peer, record_id, calls


@pytest.mark.parametrize("minutes", [0, 30, 90, 180])
def test_all_subscribers_that_wait_for_a_retry_get_the_new_date(
    cluster: Cluster, minutes: int
) -> None:
    peer, record_id, calls = _retrying(cluster)
    due = cluster.clock.now() + timedelta(minutes=minutes)
    assert peer.bus.reschedule_all(record_ids=[record_id], at=due).changed == 1
    reasons = peer.bus.explain(record_id).reasons
    told = [reason.facts["until"] for reason in reasons if reason.code == "waits-for-retry"]
    assert told == ([due, due] if minutes else [])
    if minutes:
        cluster.clock.advance(seconds=60 * minutes - 1)
        peer.run()
        assert calls == []
        cluster.clock.advance(seconds=1)
    peer.run()
    assert sorted(calls) == ["late", "soon"]
    [entry] = peer.bus.find()
    assert entry.effective_date == due + timedelta(hours=2), "the distance of the next retry"


def test_progress_that_can_not_be_read_does_not_hinder_another_date(
    cluster: Cluster, engine: Engine
) -> None:
    peer, record_id, _ = _retrying(cluster)
    main = entry_tables("bus_events").main
    with engine.begin() as connection:
        connection.execute(update(main).values(subscribers_done='{"soon": {"due": 1}}'))
    assert peer.bus.reschedule_all(record_ids=[record_id], delay=0).changed == 1
    peer.run()
    [entry] = peer.bus.history()
    assert (entry.processing_state, entry.subscribers_done) == (State.FAILED, None)


def test_an_entry_that_starts_meanwhile_is_skipped(
    make_bus: MakeBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    bus, find = make_bus(), bulk.Bulk.ids
    bus.subscribe("Mail", lambda _event: None)
    bus.post_many([Posting(event={}, event_name="Mail") for _ in range(3)])

    def found(call: bulk.Bulk) -> list[int]:
        ids = find(call)
        drain(bus)
        return ids

    monkeypatch.setattr(bulk.Bulk, "ids", found)
    done = bus.clear()
    assert (done.matched, done.changed, done.skipped) == (3, 0, 3)
    assert len(bus.history(states="PROCESSED")) == 3


def test_an_entry_that_runs_by_its_turn_is_left(
    make_bus: MakeBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    bus, find, recorder = make_bus(), bulk.Bulk.ids, Recorder(hold=True)
    bus.subscribe("Mail", recorder)
    record_id = bus.post({}, event_name="Mail")

    def found(call: bulk.Bulk) -> list[int]:
        ids = find(call)
        bus.start()
        eventually(lambda: recorder.running, "it runs")
        return ids

    monkeypatch.setattr(bulk.Bulk, "ids", found)
    done = bus.clear()
    recorder.release()

    assert (done.matched, done.changed, done.skipped) == (1, 0, 1)
    [entry] = eventually(bus.history, "it has ended")
    assert (entry.record_id, entry.processing_state) == (record_id, State.PROCESSED)


def test_a_service_clears_one_queue_or_all(make_service: MakeService) -> None:
    service = make_service()
    one, other = (service.create_queue("shop", name, print) for name in ("one", "other"))
    for queue in (one, one, other):
        queue.schedule({}, delay=FAR)
    assert (one.size(), other.size()) == (2, 1)
    assert one.clear().changed == 2
    assert (one.size(), other.size()) == (0, 1)
    one.schedule({}, delay=FAR)
    assert service.clear().changed == 2
    assert (one.size(), other.size()) == (0, 0)


def test_content_is_read_in_pages(make_bus: MakeBus, engine: Engine) -> None:
    bus = make_bus()
    ids = bus.post_many([Posting(event={}, event_name="Mail") for _ in range(5)])
    pages, after = list[list[int]](), 0
    while page := [one.record_id for one in bus.find(limit=2, after_id=after)]:
        pages.append(page)
        after = page[-1]
    assert pages == [ids[:2], ids[2:4], ids[4:]]
    with engine.begin() as connection:
        assert bus.size(connection=connection) == 5
    with pytest.raises(InvalidPostError):
        bus.find(after_id="1")  # type: ignore[arg-type]
