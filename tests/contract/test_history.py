"""Truncating history while the queue runs: counts are exact, delivery is hardly held up."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, text

from queue_core.reading import truncation
from stickybus import InvalidPostError, LifecycleError, NaiveDateTimeError, PersistentBus, State
from tests import requirements as needs
from tests.contract.cluster import Cluster, Peer
from tests.contract.conftest import MakeBus
from tests.contract.harness import (
    BOUND_SECONDS,
    Order,
    Recorder,
    database_of,
    eventually,
    listening,
    statements_of,
)


def minutes_of_history(cluster: Cluster) -> Peer:
    """Five orders that ended one a minute; number 3 FAILED, the others PROCESSED.

    Two more wait for a node.
    """
    peer = cluster.join("a")
    for number in range(5):
        peer.handler = Recorder(failures=9 if number == 3 else 0)
        peer.bus.post(Order(number))
        peer.run()
        cluster.clock.advance(seconds=60)
        peer.beat()
    cluster.peer("b").bus.post_many([Order(10), Order(11)])
    return peer


def left(peer: Peer) -> list[str | None]:
    return [entry.event_json for entry in peer.bus.history()]


def test_the_whole_history_is_emptied_and_the_rows_counted(cluster: Cluster) -> None:
    peer = minutes_of_history(cluster)
    progress = list[tuple[int, int]]()

    assert peer.bus.truncate_history(progress=lambda *done: progress.append(done)) == 5

    assert left(peer) == []
    assert len(peer.bus.find()) == 2
    assert progress[-1] == (5, 5)
    assert peer.bus.truncate_history() == 0


def test_only_what_ended_before_a_date_is_deleted(cluster: Cluster) -> None:
    start = cluster.clock.now()
    peer = minutes_of_history(cluster)

    assert peer.bus.truncate_history(before=start + timedelta(seconds=120)) == 2

    assert left(peer) == [f'{{"number":{number}}}' for number in (2, 3, 4)]


def test_only_rows_of_the_states_given_are_deleted(cluster: Cluster) -> None:
    start = cluster.clock.now()
    peer = minutes_of_history(cluster)

    assert peer.bus.truncate_history(states=[State.FAILED]) == 1
    assert (
        peer.bus.truncate_history(
            states=["PROCESSED", "REAPED"], before=start + timedelta(seconds=60)
        )
        == 1
    )

    assert left(peer) == [f'{{"number":{number}}}' for number in (1, 2, 4)]


def test_partial_deletion_goes_in_batches_and_tells_its_progress(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(truncation, "DELETE_BATCH", 2)
    peer = minutes_of_history(cluster)
    progress = list[tuple[int, int]]()

    deleted = peer.bus.truncate_history(
        before=cluster.clock.now(), progress=lambda *done: progress.append(done)
    )

    assert deleted == 5
    assert progress == [(0, 5), (2, 5), (4, 5), (5, 5)]


def test_rows_that_stay_are_passed_over_once_and_not_for_each_page(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(truncation, "DELETE_BATCH", 2)
    peer = minutes_of_history(cluster)
    ids = [entry.record_id for entry in peer.bus.history(states=[State.PROCESSED])]
    begins = list[set[object]]()

    def note(_connection: object, _cursor: object, text: str, given: Any, *_rest: object) -> None:
        if "ORDER BY" in text and "bus_events_history" in text:
            begins.append({*(given.values() if isinstance(given, dict) else given)})

    with listening(database_of(peer.bus), before_cursor_execute=note):
        assert peer.bus.truncate_history(states=[State.PROCESSED]) == 4

    assert len(begins) == 3
    assert ids[1] in begins[1]
    assert ids[3] in begins[2]


@pytest.mark.parametrize("states", [None, ["PROCESSED", "FAILED"]])
def test_what_ends_meanwhile_stays_though_the_date_is_yet_to_come(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, states: list[State] | None
) -> None:
    monkeypatch.setattr(truncation, "DELETE_BATCH", 2)
    peer = minutes_of_history(cluster)
    numbers = iter(range(20, 30))

    def another_ends(_done: int, _total: int) -> None:
        for number in itertools.islice(numbers, 2):
            cluster.clock.advance(seconds=1)
            peer.bus.post(Order(number))
            peer.run()

    tomorrow = cluster.clock.now() + timedelta(days=1)
    assert peer.bus.truncate_history(before=tomorrow, states=states, progress=another_ends) == 5

    assert {f'{{"number":{number}}}' for number in range(20, 28)} <= {*left(peer)}


@pytest.mark.parametrize("wrong", ["AVAILABLE", "DONE"])
def test_a_state_that_history_does_not_have_is_refused_and_nothing_deleted(
    cluster: Cluster, wrong: str
) -> None:
    peer = minutes_of_history(cluster)

    with pytest.raises(InvalidPostError, match="Nothing was deleted"):
        peer.bus.truncate_history(states=[wrong])  # type: ignore[list-item]

    with pytest.raises(NaiveDateTimeError):
        peer.bus.truncate_history(before=datetime(2026, 1, 1))  # noqa: DTZ001 -- that is the mistake
    assert len(left(peer)) == 5


def test_no_id_comes_again_after_both_tables_were_emptied(cluster: Cluster) -> None:
    peer = minutes_of_history(cluster)
    peer.run()  # the two that waited
    used = {entry.record_id for entry in peer.bus.history()}
    peer.bus.truncate_history()

    assert used.isdisjoint(peer.bus.post_many([Order(number) for number in range(20)]))


@pytest.mark.parametrize("whole", [True, False])
def test_history_is_truncated_while_the_queue_runs_and_every_row_is_counted_once(
    make_bus: MakeBus,
    *,
    whole: bool,
) -> None:
    recorder = Recorder()
    bus = make_bus()
    bus.subscribe(Order, recorder)
    bus.start()
    enough, removed = threading.Event(), list[int]()

    def post() -> int:
        for number in itertools.count():  # until the test has seen rows removed meanwhile
            if number >= 300 and enough.is_set():
                return number
            bus.post(Order(number))
        raise AssertionError

    def truncate() -> bool:
        removed.append(bus.truncate_history(states=None if whole else list(State)[3:]))
        return sum(removed) > 0 and recorder.calls >= 250

    with ThreadPoolExecutor(1) as pool:
        posted = pool.submit(post)
        try:
            eventually(truncate, "rows are removed while others come")
        finally:
            enough.set()
        total = posted.result()
    eventually(lambda: not bus.find(), "all have ended")

    assert recorder.numbers() == list(range(total))
    assert sum(removed) + len(bus.history()) == total


def test_a_second_truncation_at_the_same_time_is_refused(bus: PersistentBus) -> None:
    database = database_of(bus)
    with (
        database.engine.connect() as connection,
        database.dialect.named_lock(connection, bus.config.history_table, wait=False) as had,
    ):
        assert had
        connection.commit()
        with pytest.raises(
            LifecycleError,
            match=r"another truncation, archive or forgetting is under way.*Nothing",
        ):
            bus.truncate_history()

    assert bus.truncate_history() == 0


def test_two_truncations_of_one_history_count_each_row_once(make_bus: MakeBus) -> None:
    buses = [make_bus(), make_bus()]
    recorder = Recorder()
    buses[0].subscribe(Order, recorder)
    buses[0].start()
    buses[0].post_many([Order(number) for number in range(200)])
    eventually(lambda: not buses[0].find(), "all have ended")
    together = threading.Barrier(2)

    def truncate(bus: PersistentBus) -> int:
        together.wait(BOUND_SECONDS)
        try:
            return bus.truncate_history()
        except LifecycleError:
            return 0

    with ThreadPoolExecutor(2) as pool:
        removed = sum(pool.map(truncate, buses))

    assert removed == 200
    assert buses[0].history() == []


@contextmanager
def reader(engine: Engine) -> Iterator[None]:
    """Somebody else's transaction that has read history and stays open."""
    with engine.connect() as connection:
        connection.execute(text("SELECT count(*) FROM bus_events_history")).scalar_one()
        yield
        connection.rollback()


@needs.quick_table_locks
def test_delivery_goes_on_while_a_truncation_waits_for_a_reader_of_history(
    make_bus: MakeBus, engine: Engine
) -> None:
    recorder = Recorder()
    bus = make_bus()
    bus.subscribe(Order, recorder)
    bus.start()
    bus.post(Order(0))
    eventually(bus.history, "the first has ended")
    took = list[float]()
    with ThreadPoolExecutor(1) as pool, statements_of(database_of(bus)) as statements:
        with reader(engine):
            truncation = pool.submit(bus.truncate_history)
            eventually(lambda: len(statements.starting_with("LOCK TABLE")) >= 3, "several tries")
            for number in range(1, 11):
                posted_at = time.monotonic()
                bus.post(Order(number))
                # The outcome is written too: an exclusive lock that waits would keep it waiting
                # behind itself.
                eventually(lambda: not bus.find(), "its outcome is written")
                took.append(time.monotonic() - posted_at)
            assert not truncation.done()
        removed = truncation.result(timeout=30)

    assert removed == 11
    assert recorder.numbers() == list(range(11))
    assert min(took) < 0.5  # the median is the same, but for a busy machine
