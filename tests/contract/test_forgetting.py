"""Forgetting one customer removes entries that wait or have ended, and nobody else's."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest

from bus.persistent import PersistentBus
from notifications.service import NotificationService
from queue_core.errors import InvalidPostError, LifecycleError
from queue_core.model.posting import Posting
from queue_core.model.retry_policies import ImmediateRetries
from queue_core.reading import forgetting
from queue_core.reading.exclusive import exclusive_history
from stickybus import KEYLESS
from stickybus.testing import drain
from tests.contract.cluster import Cluster
from tests.contract.conftest import MakeBus, MakeService
from tests.contract.harness import BOUND_SECONDS, Order, engine_of, eventually

FAR = timedelta(hours=1)
CUSTOMER, OTHER = 7, 8


@pytest.fixture
def filled(make_bus: MakeBus) -> PersistentBus:
    """Two customers, each with an event that failed, one that succeeded and one that waits.

    There is an event of no customer, too.
    """
    bus = make_bus(retry=ImmediateRetries(0))
    bus.subscribe("Good", lambda _event, _context: None, name="good")
    bus.subscribe("Bad", lambda event, _context: event["missing"], name="bad")
    for customer in (CUSTOMER, OTHER):
        for name in ("Good", "Bad"):
            bus.post({"of": customer}, event_name=name, search_key1=1, search_key2=customer)
    drain(bus)
    for owner in (CUSTOMER, OTHER, None):
        bus.post({"of": owner}, event_name="Good", search_key1=1, search_key2=owner)
    return bus


def owners(bus: PersistentBus) -> tuple[list[int | str | None], list[int | str | None]]:
    """The second keys of what is live and of what has ended."""
    return [entry.search_key2 for entry in bus.find()], [
        entry.search_key2 for entry in bus.history()
    ]


def test_all_of_one_customer_goes_and_nothing_of_others(filled: PersistentBus) -> None:
    done = filled.forget(search_key2=CUSTOMER)

    assert (done.live, done.ended, done.running, done.schedules) == (1, 2, (), ())
    assert owners(filled) == ([OTHER, None], [OTHER, OTHER])
    again = filled.forget(search_key2=CUSTOMER)
    assert (again.live, again.ended) == (0, 0)


def test_both_keys_name_what_has_both(filled: PersistentBus) -> None:
    assert filled.forget(search_key1=2, search_key2=CUSTOMER).ended == 0
    assert filled.forget(search_key1=1, search_key2=CUSTOMER).ended == 2
    everything = filled.forget(search_key1=1)
    assert (everything.live, everything.ended) == (2, 2)
    assert owners(filled) == ([], [])


def test_a_dry_run_tells_and_deletes_nothing(filled: PersistentBus) -> None:
    before = owners(filled)

    told = filled.forget(search_key2=CUSTOMER, dry_run=True)

    assert (told.live, told.ended, told.running) == (1, 2, ())
    assert owners(filled) == before


@pytest.mark.parametrize(
    "keys", [{}, {"search_key2": None}, {"search_key2": KEYLESS}, {"search_key1": ""}]
)
def test_without_a_key_nothing_is_forgotten(filled: PersistentBus, keys: dict[str, Any]) -> None:
    before = owners(filled)
    with pytest.raises(InvalidPostError):
        filled.forget(**keys)
    assert owners(filled) == before


def test_a_key_that_is_none_beside_a_good_one_is_refused(filled: PersistentBus) -> None:
    wanted: dict[str, Any] = {"search_key1": None, "search_key2": CUSTOMER}
    with pytest.raises(InvalidPostError):
        filled.forget(**wanted)


def test_what_runs_is_told_and_ends_as_ever(make_bus: MakeBus) -> None:
    bus = make_bus()
    began, may_end = threading.Event(), threading.Event()

    def handle(_event: object) -> None:
        began.set()
        assert may_end.wait(BOUND_SECONDS)

    bus.subscribe("Slow", handle)
    bus.start()
    record_id = bus.post({}, event_name="Slow", search_key2=CUSTOMER)
    assert began.wait(BOUND_SECONDS)

    assert bus.forget(search_key2=CUSTOMER, dry_run=True).running == (record_id,)
    assert bus.forget(search_key2=CUSTOMER).running == (record_id,)
    may_end.set()

    [entry] = eventually(bus.history, "it ends")
    assert (entry.record_id, entry.processing_state) == (record_id, "PROCESSED")
    assert bus.forget(search_key2=CUSTOMER).ended == 1
    assert bus.history() == []


def test_it_goes_in_batches_that_are_told(
    make_bus: MakeBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forgetting, "DELETE_BATCH", 10)
    bus = make_bus()
    bus.post_many([Posting(event={}, event_name="New", search_key2=CUSTOMER) for _ in range(25)])
    told = list[tuple[int, int]]()

    done = bus.forget(search_key2=CUSTOMER, progress=lambda *counts: told.append(counts))

    assert (done.live, bus.find()) == (25, [])
    assert told == [(10, 25), (20, 25), (25, 25)]


def test_a_queue_forgets_its_own_and_tells_of_schedules(make_service: MakeService) -> None:
    service: NotificationService = make_service()
    one = service.create_queue("shop", "one", print)
    other = service.create_queue("shop", "other", print)
    for queue in (one, other):
        queue.schedule({}, delay=FAR, search_key1=CUSTOMER)
        queue.recur("daily", {}, cron="@daily", search_key1=CUSTOMER)

    done = one.forget(search_key1=CUSTOMER)

    assert (done.table, done.live, done.schedules) == ("notifications", 1, ("shop:one/daily",))
    assert (one.find(), len(other.find())) == ([], 1)
    rest = service.forget(search_key1=CUSTOMER)
    assert (rest.live, rest.schedules) == (1, ("shop:one/daily", "shop:other/daily"))


@pytest.mark.parametrize("key", [CUSTOMER, "ada"])
def test_callbacks_of_groups_are_forgotten(make_bus: MakeBus, key: int | str) -> None:
    bus, ran = make_bus(), list[object]()
    for name in ("Good", "Mail"):
        bus.subscribe(name, ran.append, name=name)

    def group(owner: int | str) -> int:
        mail = Posting(event={"of": owner}, event_name="Mail", search_key2=owner)
        return bus.open_group(on_finished=mail, on_succeeded=Posting(event={}, event_name="Good"))

    waits, of_other, complete = group(key), group(OTHER), group(key)
    bus.seal(complete)
    assert len(drain(bus)) == 2
    told = bus.forget(search_key2=key, dry_run=True)
    assert (told.unposted, told.live, told.ended) == (2, 0, 1)
    ran.clear()

    done = bus.forget(search_key2=key)

    assert (done.unposted, done.live, done.ended) == (2, 0, 1)
    assert bus.forget(search_key2=key).unposted == 0
    for one in (waits, of_other):
        bus.seal(one)
    drain(bus)
    assert ran == [{}, {}, {"of": OTHER}]
    assert bus.forget(search_key2=OTHER).unposted == 1


def test_what_waits_behind_a_running_entry_of_its_key_is_forgotten(cluster: Cluster) -> None:
    poster = cluster.peer("poster")
    for number, owner in ((1, CUSTOMER), (2, OTHER)):
        poster.bus.post(Order(number), key=str(number), search_key2=owner)
    node = cluster.join("node")
    running = node.claim()
    for number, owner in ((1, CUSTOMER), (2, OTHER)):
        poster.bus.post(
            Order(number + 10), key=str(number), on_conflict="requeue", search_key2=owner
        )
    told = poster.bus.forget(search_key2=CUSTOMER, dry_run=True)
    assert (told.unposted, told.running) == (1, (running[0],))

    assert poster.bus.forget(search_key2=CUSTOMER).unposted == 1

    node.run()
    assert node.handler.numbers() == [1, 2, 12]
    assert poster.bus.post(Order(3), key="1").created, "its key is free again"


def test_a_queue_forgets_only_its_own_callbacks(make_service: MakeService) -> None:
    service: NotificationService = make_service()
    one, other = (service.create_queue("shop", name, print) for name in ("one", "other"))
    for queue in (one, other):
        queue.open_group(on_finished=Posting(event={}, search_key1=CUSTOMER))
    assert one.forget(search_key1=CUSTOMER).unposted == 1
    assert service.forget(search_key1=CUSTOMER).unposted == 1


def test_it_waits_for_no_archive_and_disturbs_none(filled: PersistentBus) -> None:
    before = owners(filled)
    with (
        exclusive_history(engine_of(filled).store),
        pytest.raises(LifecycleError, match="Nothing was deleted"),
    ):
        filled.forget(search_key2=CUSTOMER)
    assert owners(filled) == before


def test_a_busy_queue_goes_on_while_a_customer_is_forgotten(make_bus: MakeBus) -> None:
    bus = make_bus()
    runs = list[object]()
    bus.subscribe("Good", lambda event, _context: runs.append(event), name="good")
    bus.start()
    ids = list[int]()
    for number in range(200):
        ids.append(bus.post({}, event_name="Good", search_key2=number % 2))
        if number % 20 == 0:
            bus.forget(search_key2=0)

    eventually(lambda: not bus.find(), "all has ended")
    assert bus.forget(search_key2=0).running == ()
    assert [entry.record_id for entry in bus.history()] == ids[1::2]
    assert len(runs) <= 200
