"""What was posted is found by its keys, and counted by its owner."""

from __future__ import annotations

from typing import Any

from bus.persistent import PersistentBus
from queue_core.claiming.budget import BATCHES
from queue_core.model.states import State
from queue_core.storage.search_keys import KEYLESS
from tests.contract.conftest import MakeBus
from tests.contract.harness import Order, Recorder, ended, eventually


def test_events_are_found_by_both_keys_and_by_the_second_with_a_cut_off_date(
    bus: PersistentBus,
) -> None:
    early = bus.post(Order(1), search_key1=1, search_key2=9)
    (first,) = bus.find()
    later = bus.post(Order(2), search_key1=2, search_key2=9)
    keyless = bus.post(Order(3), search_key2=9)
    bus.post(Order(4), search_key1=1, search_key2=8)

    def found(**filters: Any) -> list[int]:
        return [entry.record_id for entry in bus.find(**filters)]

    assert found(search_key1=1, search_key2=9) == [early]
    assert found(search_key2=9) == [early, later, keyless]
    assert found(search_key1=KEYLESS, search_key2=9) == [keyless]
    (second,) = bus.find(record_ids=[later])
    assert first.effective_date < second.effective_date
    assert found(search_key2=9, effective_before=second.effective_date) == [early]
    assert found(search_key2=9, states=[State.IN_PROCESSING]) == []
    assert found(search_key2=9, limit=2) == [early, later]


def test_events_are_found_while_they_run_and_in_history_by_key(bus: PersistentBus) -> None:
    recorder = Recorder(hold=True)
    bus.subscribe(Order, recorder)
    bus.start()
    record_id = bus.post(Order(1), search_key1=5, search_key2=6)
    recorder.wait()
    running = bus.find(search_key1=5, search_key2=6, states=[State.IN_PROCESSING])
    assert [entry.record_id for entry in running] == [record_id]
    assert bus.history(search_key2=6) == []
    recorder.release()
    ended(bus)
    assert [entry.record_id for entry in bus.history(search_key1=5, search_key2=6)] == [record_id]
    assert bus.history(search_key1=6) == bus.history(search_key1=5, states=[State.FAILED]) == []
    assert bus.find(search_key2=6) == []


def test_buses_in_one_table_do_not_see_or_count_each_others_events(make_bus: MakeBus) -> None:
    orders, invoices = make_bus(name="orders"), make_bus(name="Orders")
    orders.post_many([Order(1), Order(2)])
    invoices.post(Order(3))
    assert (orders.ready_count(), invoices.ready_count()) == (2, 1)
    assert (len(orders.find()), len(invoices.find())) == (2, 1)
    recorder = Recorder()
    invoices.subscribe(Order, recorder)
    invoices.start()
    ended(invoices)
    assert recorder.events == [Order(3)]
    # What was claimed and is of another bus is set aside after it.
    eventually(lambda: orders.ready_count() == 2)
    assert orders.history() == []


def test_ready_events_are_counted_by_owner(make_bus: MakeBus) -> None:
    bus = make_bus(
        mode="STICKY_POLLING", node_name="counted", handler_threads=1, max_entries_claimed=1
    )
    held = 1 + BATCHES
    recorder = Recorder(hold=True)
    bus.subscribe(Order, recorder)
    bus.start()
    bus.post_many(Order(number) for number in range(10))
    eventually(lambda: len(bus.find(states=[State.IN_PROCESSING])) == held, "the pool is full")
    assert bus.ready_count() == bus.ready_count(owner="counted") == 10 - held
    assert bus.ready_count(owner="other") == 0
    recorder.release()
    ended(bus, 10)
