"""Retries by hand: what runs again of an entry that has failed, and how often."""

from __future__ import annotations

from threading import Barrier, Thread

import pytest

from bus.persistent import PersistentBus
from queue_core.errors import EntryNotChangeableError
from queue_core.model.retry_policies import ImmediateRetries, ScheduledRetries
from queue_core.model.states import State
from queue_core.runtime.manual_clock import ManualClock
from stickybus.testing import drain
from tests.contract.cluster import Cluster
from tests.contract.conftest import MakeBus
from tests.contract.harness import Order, Recorder, database_of, ended, statements_of, states


def test_a_failed_entry_retried_by_hand_starts_a_new_chain_that_names_its_parent(
    bus: PersistentBus,
) -> None:
    recorder = Recorder(failures=4)
    bus.subscribe(Order, recorder)
    bus.start()
    failed = bus.post(Order(1), user_token="token", search_key2=7)
    ended(bus, 1)
    again = bus.retry(failed)
    first, second = ended(bus, 2)
    assert (first.record_id, second.record_id, second.replay_of) == (failed, again, failed)
    assert states([first, second]) == [State.FAILED, State.PROCESSED]
    assert (second.user_token, second.search_key2, second.error_count) == ("token", 7, 0)


def test_a_retry_by_hand_runs_only_what_had_failed_and_all_if_asked(bus: PersistentBus) -> None:
    book, confirm = Recorder(), Recorder(failures=8)
    bus.subscribe(Order, book, name="book")
    bus.subscribe(Order, confirm, name="confirm")
    bus.start()
    failed = bus.post(Order(1))
    ended(bus, 1)
    second = bus.retry(failed)
    ended(bus, 2)
    assert (book.calls, confirm.calls) == (1, 8)
    bus.retry(second)
    ended(bus, 3)
    assert (book.calls, confirm.calls) == (1, 9)
    bus.retry(failed, all_subscribers=True, force=True)
    ended(bus, 4)
    assert (book.calls, confirm.calls) == (2, 10)


def test_a_retry_of_an_entry_whose_retries_failed_is_one_of_the_last_of_them(
    bus: PersistentBus,
) -> None:
    """What had succeeded in a retry does not run again, whichever id is named."""
    book, bill, mail = Recorder(), Recorder(failures=1), Recorder(failures=2)
    for name, recorder in {"book": book, "bill": bill, "mail": mail}.items():
        bus.subscribe(Order, recorder, name=name, retry=ImmediateRetries(0))
    bus.start()
    failed = bus.post(Order(1))
    ended(bus, 1)
    second = bus.retry(failed)
    ended(bus, 2)
    third = bus.retry(failed)
    assert [entry.replay_of for entry in ended(bus, 3)] == [None, failed, second]
    assert (book.calls, bill.calls, mail.calls) == (1, 2, 3)
    assert (bus.dead_letters(), bus.retry_all().matched) == ([], 0)
    for one in (failed, second):
        with pytest.raises(EntryNotChangeableError, match=f"again as {third}, which is PROCESSED"):
            bus.retry(one)


def test_what_had_succeeded_stays_known_of_an_entry_that_ends_before_its_next_run(
    make_bus: MakeBus,
) -> None:
    def bus_of(*, mail: Recorder) -> PersistentBus:
        bus = make_bus(clock=clock, node_name="same", lease_seconds=1e6)
        bus.subscribe(Crate, book, name="book")
        bus.subscribe(Crate, mail, name="mail", retry=ScheduledRetries((60.0,)))
        return bus

    class Crate(Order): ...

    def variant(qualified: str) -> type[Crate]:
        return type("Variant", (Crate,), {"__qualname__": qualified})

    clock, book = ManualClock(), Recorder()
    first = variant("First")
    bus = bus_of(mail=Recorder(failures=1))
    failed = bus.post(first(1))
    drain(bus)
    other = variant("Second")  # the name has two types from here on
    clock.advance(seconds=60)
    drain(refusing := bus_of(mail=Recorder()))
    [entry] = refusing.history()
    assert (entry.last_error or "").startswith(
        f"ConfigurationError: The event name '{other.__name__}'"
    )

    bus.retry(failed)
    drain(bus)

    assert states(bus.history()) == [State.FAILED, State.PROCESSED]
    assert book.calls == 1


def test_a_retry_that_was_redispatched_or_removed_is_the_last_try_all_the_same(
    cluster: Cluster,
) -> None:
    peer, book = cluster.join("a", retry=ImmediateRetries(0)), Recorder()
    peer.handler = Recorder(failures=2)
    peer.bus.subscribe(Order, book, name="book")
    failed = peer.bus.post(Order(1))
    peer.run()
    peer.bus.retry(failed)
    lost = cluster.join("b")
    lost.claim()
    cluster.bury("b", peer)
    peer.run()
    removed = peer.bus.retry(failed)
    assert peer.bus.remove_all(record_ids=[removed]).changed == 1
    peer.bus.retry(failed)
    peer.run()
    first, reaped, copy, *others = peer.bus.history()
    assert (first.record_id, reaped.replay_of, copy.origin_id) == (
        failed,
        failed,
        reaped.record_id,
    )
    assert [entry.replay_of for entry in others] == [copy.record_id, removed]
    assert (book.calls, peer.handler.calls) == (1, 3)


def test_an_entry_that_was_tried_again_is_refused_unless_that_failed_or_it_is_forced(
    bus: PersistentBus,
) -> None:
    recorder = Recorder(failures=8)
    bus.subscribe(Order, recorder)
    bus.start()
    failed = bus.post(Order(1))
    ended(bus, 1)
    bus.retry(failed)
    ended(bus, 2)
    good = bus.retry(failed)  # for the one before failed, too
    ended(bus, 3)
    with pytest.raises(EntryNotChangeableError, match=f"tried again as {good}, which is PROCESSED"):
        bus.retry(failed)
    bus.stop()
    live = bus.retry(failed, force=True)
    with pytest.raises(
        EntryNotChangeableError, match=f"tried again as {live}, which has not ended"
    ):
        bus.retry(failed)
    assert [entry.record_id for entry in bus.find()] == [live]


def test_of_two_retries_at_once_one_wins_and_tells_its_own_id(bus: PersistentBus) -> None:
    bus.subscribe(Order, Recorder(failures=4))
    bus.start()
    failed = bus.post(Order(1))
    ended(bus, 1)
    bus.stop()
    start, told = Barrier(4), list[object]()

    def retry() -> None:
        start.wait(60)
        try:
            told.append(bus.retry(failed))
        except EntryNotChangeableError as error:
            told.append(error)

    threads = [Thread(target=retry) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [entry.record_id for entry in bus.find()] == [
        one for one in told if isinstance(one, int)
    ]
    assert (len(told), len(bus.find())) == (4, 1)


def test_a_retry_by_hand_names_its_parent_without_a_look_for_it_in_the_main_table(
    bus: PersistentBus,
) -> None:
    """No index has the parents: among ten million entries the look would be for minutes."""
    bus.subscribe(Order, retry=ImmediateRetries(0))(Recorder(failures=1))
    bus.start()
    failed = bus.post(Order(1))
    ended(bus)

    with statements_of(database_of(bus)) as statements:
        retried = bus.retry(failed)

    asked = [text for text in statements.starting_with("SELECT") if "replay_of =" in text]
    assert (asked, [entry.record_id for entry in ended(bus, 2)][1:]) == ([], [retried])
