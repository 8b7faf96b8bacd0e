"""Reading entries: by search keys, by a cut-off date, by state and time."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Engine

from sql.capabilities import Capabilities
from stickybus import (
    KEYLESS,
    Entry,
    InvalidPostError,
    NaiveDateTimeError,
    PersistentBus,
    Posting,
    State,
)
from tests.contract.cluster import Cluster, Peer
from tests.contract.conftest import MakeBus
from tests.contract.harness import Order, Recorder


def numbers(entries: list[Entry]) -> list[int]:
    return [
        int((entry.event_json or "").removeprefix('{"number":').removesuffix("}"))
        for entry in entries
    ]


@pytest.fixture
def keyed(make_bus: MakeBus) -> PersistentBus:
    """Orders 1 to 6 with keys (1, 1), (1, 2), (None, 1), (2, 1), (1, None), (None, None)."""
    bus = make_bus()
    keys = [(1, 1), (1, 2), (None, 1), (2, 1), (1, None), (None, None)]
    bus.post_many(
        Posting(event=Order(number), search_key1=key1, search_key2=key2)
        for number, (key1, key2) in enumerate(keys, start=1)
    )
    return bus


def test_both_keys_find_the_entries_that_have_both(keyed: PersistentBus) -> None:
    assert numbers(keyed.find(search_key1=1, search_key2=1)) == [1]


def test_a_key_that_is_not_given_matches_every_value(keyed: PersistentBus) -> None:
    assert numbers(keyed.find(search_key2=1)) == [1, 3, 4]
    assert numbers(keyed.find(search_key1=1)) == [1, 2, 5]
    assert numbers(keyed.find()) == [1, 2, 3, 4, 5, 6]


def test_keyless_matches_only_entries_without_it(keyed: PersistentBus) -> None:
    assert numbers(keyed.find(search_key1=KEYLESS, search_key2=1)) == [3]
    assert numbers(keyed.find(search_key1=1, search_key2=KEYLESS)) == [5]
    assert numbers(keyed.find(search_key1=KEYLESS, search_key2=KEYLESS)) == [6]


@pytest.mark.parametrize("key", ["search_key1", "search_key2"])
def test_none_as_a_key_is_refused_as_it_would_mean_everybody_elses(
    keyed: PersistentBus, key: str
) -> None:
    wanted: dict[str, Any] = {key: None}
    for read in (keyed.find, keyed.history):
        with pytest.raises(InvalidPostError, match=f"{key}=KEYLESS"):
            read(**wanted)


def test_keys_are_64_bit_integers_to_both_ends(make_bus: MakeBus) -> None:
    bus = make_bus()
    for key in (-(2**63), 2**63 - 1, 0):
        bus.post(Order(1), search_key1=key, search_key2=key)
        [found] = bus.find(search_key1=key, search_key2=key)
        assert (found.search_key1, found.search_key2) == (key, key)


@pytest.mark.parametrize("key", ["", 7.0, True, 2**63])
def test_a_key_of_another_kind_is_refused_in_a_search_as_in_a_post(
    keyed: PersistentBus, key: object
) -> None:
    with pytest.raises(InvalidPostError, match="search_key2"):
        keyed.find(search_key2=key)  # type: ignore[arg-type]  # what a caller without a type checker may pass
    with pytest.raises(InvalidPostError, match="search_key2"):
        keyed.post(Order(9), search_key2=key)  # type: ignore[call-overload]  # as above
    assert len(keyed.find()) == 6


@pytest.mark.parametrize(
    "record_ids", [[2**70], [-(2**63) - 1], [True], ["1"], [None], [1.5], 7, "1"], ids=repr
)
def test_ids_that_no_entry_can_have_are_refused(keyed: PersistentBus, record_ids: Any) -> None:
    for read in (keyed.find, keyed.history):
        with pytest.raises(InvalidPostError, match="record_ids="):
            read(record_ids=record_ids)


@pytest.mark.parametrize("states", [7, ["DONE"], [[]], "DONE"], ids=repr)
def test_states_that_are_none_are_refused(keyed: PersistentBus, states: Any) -> None:
    for read in (keyed.find, keyed.history):
        with pytest.raises(InvalidPostError, match="states="):
            read(states=states)


def test_key_2_and_a_cut_off_date_find_what_is_due_before_it(cluster: Cluster) -> None:
    bus = cluster.peer("a").bus
    start = cluster.clock.now()
    for number in range(3):
        bus.post(Order(number), search_key2=5)
        cluster.clock.advance(seconds=60)
    bus.post(Order(9), search_key2=6)

    def before(date: datetime) -> list[int]:
        return numbers(bus.find(search_key2=5, effective_before=date))

    assert before(start) == []  # a cut-off excludes its own date
    assert before(start + timedelta(microseconds=1)) == [0]
    assert before(start + timedelta(seconds=90)) == [0, 1]
    assert before(start + timedelta(days=1)) == [0, 1, 2]
    with pytest.raises(NaiveDateTimeError, match="effective_before"):
        bus.find(effective_before=datetime(2026, 1, 1))  # noqa: DTZ001 -- that is the mistake


def test_states_choose_between_available_in_processing_and_either(cluster: Cluster) -> None:
    peer = cluster.join("a", mode="STICKY_POLLING", handler_threads=1, max_entries_claimed=1)
    peer.bus.post_many([Order(number) for number in range(5)])
    held = peer.claim()
    assert 0 < len(held) < 5

    available = peer.bus.find(states=[State.AVAILABLE])
    running = peer.bus.find(states=["IN_PROCESSING"])

    assert [entry.record_id for entry in running] == held
    assert len(available) == 5 - len(held)
    assert peer.bus.find(states=[State.AVAILABLE, State.IN_PROCESSING]) == peer.bus.find()
    assert peer.bus.find(states=[]) == []


def test_a_limit_answers_the_oldest_ids(keyed: PersistentBus) -> None:
    assert numbers(keyed.find(limit=2)) == [1, 2]


@pytest.mark.parametrize("isolation_level", [None, "REPEATABLE READ", "SERIALIZABLE"])
def test_a_read_inside_the_callers_transaction_sees_what_it_has_written(
    make_bus: MakeBus, engine: Engine, capabilities: Capabilities, isolation_level: str | None
) -> None:
    bus = make_bus()
    if isolation_level == "REPEATABLE READ" and engine.dialect.name == "sqlite":
        isolation_level = "SERIALIZABLE"  # its only one with transactions
    options = {"isolation_level": isolation_level} if isolation_level else {}
    with engine.connect().execution_options(**options) as connection:
        bus.post(Order(1), search_key2=1, connection=connection)
        inside = bus.find(search_key2=1, connection=connection)
        ready = bus.ready_count(connection=connection)
        outside = bus.find(search_key2=1) if not capabilities.one_writer else []
        connection.rollback()

    assert numbers(inside) == [1]
    assert ready == 1
    assert outside == []
    assert bus.find() == []


def end_three(cluster: Cluster, peer: Peer) -> None:
    """Orders 1 to 3 with keys (number, 7), one a minute: 2 fails, 3 succeeds at its second run."""
    handlers: dict[int, Callable[[], Recorder]] = {
        1: Recorder,
        2: lambda: Recorder(failures=9),
        3: lambda: Recorder(failures=1),
    }
    for number, make in handlers.items():
        peer.handler = make()
        peer.bus.post(Order(number), search_key1=number, search_key2=7)
        peer.run()
        cluster.clock.advance(seconds=60)
        peer.beat()


def test_history_is_searched_by_id_keys_state_and_time(cluster: Cluster) -> None:
    peer = cluster.join("a")
    start = cluster.clock.now()
    end_three(cluster, peer)
    bus = peer.bus
    ids = [entry.record_id for entry in bus.history()]

    assert numbers(bus.history()) == [1, 2, 3]
    assert numbers(bus.history(record_ids=ids[1:])) == [2, 3]
    assert numbers(bus.history(search_key1=3, search_key2=7)) == [3]
    assert numbers(bus.history(search_key2=7, states=[State.FAILED])) == [2]
    assert numbers(bus.history(states=["PROCESSED"])) == [1, 3]
    minute = timedelta(seconds=60)
    assert numbers(bus.history(finished_before=start + minute)) == [1]
    assert numbers(bus.history(finished_since=start + minute)) == [2, 3]
    assert numbers(
        bus.history(finished_since=start + minute, finished_before=start + 2 * minute)
    ) == [2]
    assert numbers(bus.history(limit=1)) == [1]


def test_history_tells_when_and_how_an_entry_ended(cluster: Cluster) -> None:
    peer = cluster.join("a")
    start = cluster.clock.now()
    end_three(cluster, peer)

    first, failed, retried = peer.bus.history()

    assert (first.started_date, first.finished_date, first.error_count) == (start, start, 0)
    assert first.last_error is None
    assert (failed.processing_state, failed.error_count) == (State.FAILED, 4)
    assert (failed.last_error or "").startswith("RuntimeError: the handler fails\n")
    assert (retried.processing_state, retried.error_count) == (State.PROCESSED, 1)


def test_two_buses_in_one_table_read_and_count_only_their_own(make_bus: MakeBus) -> None:
    one, two = make_bus(name="one"), make_bus(name="two")
    one.post_many([Order(1), Order(2)])
    two.post(Order(3))

    assert (numbers(one.find()), numbers(two.find())) == ([1, 2], [3])
    assert (one.ready_count(), two.ready_count()) == (2, 1)


def test_ready_counts_are_per_owner_and_leave_out_what_is_running_or_due_later(
    cluster: Cluster,
) -> None:
    one, two = (
        cluster.join(name, mode="STICKY_POLLING", max_entries_claimed=1, handler_threads=1)
        for name in "ab"
    )
    one.bus.post_many([Order(number) for number in range(5)])
    two.bus.post(Order(9))
    one.bus.post_many([Posting(event=Order(8), at=cluster.clock.now() + timedelta(seconds=1))])

    assert one.bus.ready_count() == 6
    assert (one.bus.ready_count(owner="a"), one.bus.ready_count(owner="b")) == (5, 1)
    held = one.claim()
    assert one.bus.ready_count(owner="a") == 5 - len(held)
    cluster.clock.advance(seconds=1)
    assert one.bus.ready_count(owner="a") == 6 - len(held)
