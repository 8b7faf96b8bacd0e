"""Failed entries are listed by what is known of them, and retried one by one or all together."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import URL, Connection, Engine

from queue_core.errors import (
    ConfigurationError,
    EntryNotChangeableError,
    EntryNotFoundError,
    InvalidPostError,
)
from queue_core.model.posting import Posting
from queue_core.model.retry_policies import ImmediateRetries, ScheduledRetries
from queue_core.model.states import State
from queue_core.reading import bulk
from queue_core.reading.bulk import BulkResult, Unchanged
from sql.statements.history import History
from stickybus import PersistentBus, inspect
from stickybus.testing import drain
from tests import requirements as needs
from tests.contract.conftest import MakeBus, MakeService
from tests.contract.failed import killed
from tests.contract.harness import BOUND_SECONDS, Recorder, elsewhere, engine_of, eventually

FAR = timedelta(hours=1)


class Shop:
    """A bus whose handlers fail as long as they are told to."""

    def __init__(self, bus: PersistentBus) -> None:
        self.bus = bus
        self.failing = True
        bus.subscribe("Mail", self._send, name="send")
        bus.subscribe("Bill", self._write, name="write")

    def _send(self, event: dict[str, int]) -> None:
        if self.failing:
            raise TimeoutError(f"50%_of the mail server, order {event['number']}")

    def _write(self, event: dict[str, int]) -> None:
        if self.failing:
            raise ValueError(f"Order {event['number']}")

    def fail(self, event_name: str, count: int, **keys: Any) -> list[int]:
        """Let some events fail, and return their ids."""
        postings = [
            Posting(event={"number": number}, event_name=event_name, **keys)
            for number in range(count)
        ]
        ids = self.bus.post_many(postings)
        drain(self.bus)
        return ids

    @property
    def letters(self) -> list[int]:
        return sorted(entry.record_id for entry in self.bus.dead_letters())


@pytest.fixture
def shop(make_bus: MakeBus) -> Shop:
    return Shop(make_bus(retry=ImmediateRetries(0)))


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> int:
    """Batches and windows of few entries."""
    monkeypatch.setattr(bulk, "WINDOW", 7)
    monkeypatch.setattr(bulk, "BATCH", 10)
    return 10


def retried(bus: PersistentBus) -> list[int]:
    """The entries of which retries wait."""
    return sorted(entry.replay_of or 0 for entry in bus.find())


# -- list ----------------------------------------------------------------------------------------


def test_failed_entries_are_found_by_type_error_keys_and_time(shop: Shop) -> None:
    mails = shop.fail("Mail", 3, search_key1=1)
    between = engine_of(shop.bus).store.now()
    bills = shop.fail("Bill", 2, search_key2=2)

    def found(**filters: Any) -> list[int]:
        return [entry.record_id for entry in shop.bus.dead_letters(**filters)]

    assert found() == sorted(mails + bills, reverse=True)
    assert found(limit=1) == bills[-1:]
    assert sorted(found(event_name="Mail")) == mails
    assert sorted(found(error_type="TimeoutError")) == mails
    assert found(error_type="Timeout") == found(error_type="%Error") == []
    assert sorted(found(error_text="THE MAIL")) == mails
    assert sorted(found(error_text="50%_OF")) == mails
    assert found(error_text="50_%of") == found(error_text="5%of") == []
    assert found(error_text="order 1", event_name="Bill") == [bills[1]]
    assert sorted(found(search_key1=1)) == mails
    assert sorted(found(search_key2=2)) == bills
    assert sorted(found(finished_since=between)) == bills
    assert sorted(found(finished_before=between)) == mails
    assert found(record_ids=[mails[0], 10**9]) == mails[:1]
    [one] = shop.bus.dead_letters(record_ids=mails[:1])
    assert (one.last_error or "").startswith("TimeoutError: 50%_of the mail server, order 0\n")


def test_what_was_retried_or_discarded_is_listed_no_more(shop: Shop) -> None:
    first, second, third = shop.fail("Mail", 3)
    copy = shop.bus.retry(first)
    shop.bus.discard(second)
    assert shop.letters == [third]
    drain(shop.bus)
    assert shop.letters == [third, copy]


def test_history_and_the_inspector_filter_errors_too(shop: Shop, database_url: URL) -> None:
    mails = shop.fail("Mail", 2)
    shop.fail("Bill", 1)
    by_type = shop.bus.history(error_type="TimeoutError", error_text="order 1")
    assert [entry.record_id for entry in by_type] == mails[1:]
    with inspect(database_url) as inspector:
        letters = inspector.history(dead_letters=True, error_type="TimeoutError")
    assert [located.entry.record_id for located in letters] == mails[::-1]


def test_a_queue_lists_its_own(make_service: MakeService) -> None:
    service = make_service(retry=ImmediateRetries(0))

    def fail(_event: object) -> None:
        raise ValueError

    one, other = (service.create_queue("shop", name, fail) for name in ("one", "other"))
    for queue in (one, other):
        queue.schedule({}, delay=0)
    drain(service)

    assert [entry.queue_name for entry in one.dead_letters()] == ["shop:one"]
    assert len(service.dead_letters()) == 2
    assert one.retry_all().changed == 1
    assert (len(one.dead_letters()), len(other.dead_letters())) == (0, 1)
    assert service.discard_all().changed == 1


@pytest.mark.parametrize(
    "filters",
    [
        {"error_text": ""},
        {"error_text": "\0"},
        {"error_type": 1},
        {"event_name": ""},
        {"record_ids": ["a"]},
        {"search_key1": None},
    ],
)
def test_a_filter_that_nothing_can_match_is_refused(shop: Shop, filters: dict[str, Any]) -> None:
    [letter] = shop.fail("Mail", 1)
    for call in (shop.bus.dead_letters, shop.bus.retry_all, shop.bus.discard_all):
        with pytest.raises(InvalidPostError):
            call(**filters)
    assert shop.letters == [letter]


# -- retry one, and see --------------------------------------------------------------------------


def test_a_retry_shows_its_failure_and_then_its_success(shop: Shop) -> None:
    [failed] = shop.fail("Mail", 1)
    shop.bus.start()

    outcome = shop.bus.retry_and_wait(failed, timeout_seconds=BOUND_SECONDS)

    assert (outcome.state, outcome.ended, outcome.error_count) == (State.FAILED, True, 1)
    assert (outcome.last_error or "").startswith("TimeoutError: 50%_of the mail server")
    assert shop.letters == [outcome.record_id]
    shop.failing = False
    again = shop.bus.retry_and_wait(outcome.record_id, timeout_seconds=BOUND_SECONDS)
    assert (again.state, again.last_error, shop.letters) == (State.PROCESSED, None, [])


def test_another_process_sees_what_a_node_makes_of_its_retry(shop: Shop, make_bus: MakeBus) -> None:
    [failed] = shop.fail("Mail", 1)
    shop.bus.start()
    outcome = make_bus().retry_and_wait(failed, timeout_seconds=BOUND_SECONDS)
    assert outcome.state is State.FAILED
    assert "TimeoutError" in (outcome.last_error or "")


def test_a_retry_that_nobody_runs_in_time_says_where_it_stands_and_goes_on(shop: Shop) -> None:
    [failed] = shop.fail("Mail", 1)
    outcome = shop.bus.retry_and_wait(failed, timeout_seconds=0)
    assert (outcome.state, outcome.ended) == (State.AVAILABLE, False)
    assert retried(shop.bus) == [failed]
    with pytest.raises(EntryNotChangeableError):
        shop.bus.retry_and_wait(failed)
    with pytest.raises(EntryNotFoundError):
        shop.bus.retry_and_wait(10**9)
    with pytest.raises(ConfigurationError):
        shop.bus.retry_and_wait(failed, timeout_seconds="1")  # type: ignore[arg-type]


def test_the_wait_ends_with_the_first_failure_if_the_next_run_is_far(make_bus: MakeBus) -> None:
    bus = make_bus(retry=ImmediateRetries(0))
    shop = Shop(bus)
    [failed] = shop.fail("Mail", 1)
    other = make_bus(retry=ScheduledRetries((FAR,)))
    Shop(other)
    other.start()
    began = time.monotonic()
    outcome = other.retry_and_wait(failed, timeout_seconds=2 * BOUND_SECONDS)
    assert (outcome.state, outcome.error_count, outcome.ended) == (State.AVAILABLE, 1, False)
    assert time.monotonic() - began < BOUND_SECONDS


def test_the_awaitable_twin_waits_too(shop: Shop) -> None:
    [failed] = shop.fail("Mail", 1)
    shop.bus.start()
    outcome = asyncio.run(shop.bus.retry_and_wait_async(failed, timeout_seconds=BOUND_SECONDS))
    assert outcome.state is State.FAILED


# -- all that match ------------------------------------------------------------------------------


def test_a_preview_counts_and_shows_the_first_and_changes_nothing(shop: Shop) -> None:
    mails = shop.fail("Mail", 12)
    for call in (shop.bus.retry_all, shop.bus.discard_all):
        told = call(dry_run=True, event_name="Mail")
        assert (told.matched, told.changed) == (12, 0)
        assert [entry.record_id for entry in told.first] == mails[:10]
    assert (shop.letters, shop.bus.find()) == (mails, [])


@pytest.mark.usefixtures("small_batches")
def test_all_that_match_are_retried_once_in_batches_that_are_told(shop: Shop) -> None:
    mails, bills = shop.fail("Mail", 25), shop.fail("Bill", 3)
    told = list[tuple[int, int]]()

    done = shop.bus.retry_all(event_name="Mail", progress=lambda *counts: told.append(counts))

    assert done == BulkResult(table="bus_events", matched=25, changed=25)
    assert told == [(10, 25), (20, 25), (25, 25)]
    assert (retried(shop.bus), shop.letters) == (mails, bills)
    assert shop.bus.retry_all(event_name="Mail").matched == 0
    shop.failing = False
    drain(shop.bus)
    assert shop.letters == bills


def test_running_nodes_learn_of_the_retries_before_their_next_poll(make_bus: MakeBus) -> None:
    shop = Shop(make_bus(retry=ImmediateRetries(0), poll_interval_seconds=600.0))
    shop.fail("Mail", 5)
    shop.failing = False
    shop.bus.start()
    assert shop.bus.retry_all().changed == 5
    eventually(lambda: len(shop.bus.history(states="PROCESSED")) == 5, "all have run")


@pytest.mark.usefixtures("small_batches")
def test_what_fails_again_meanwhile_is_not_retried_by_the_same_call(shop: Shop) -> None:
    shop.fail("Mail", 30)
    shop.bus.start()

    def wait(done: int, _total: int) -> None:
        eventually(lambda: len(shop.bus.history()) == 30 + done, "the batch has failed again")

    done = shop.bus.retry_all(progress=wait)

    assert (done.matched, done.changed) == (30, 30)
    assert shop.bus.retry_all(dry_run=True).matched == 30


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("kind", ["event", "function"])
def test_it_stops_after_the_batch_and_goes_on_when_called_again(shop: Shop, kind: str) -> None:
    mails, stop = shop.fail("Mail", 25), threading.Event()

    def progress(done: int, _total: int) -> None:
        if done == 10:
            stop.set()

    done = shop.bus.retry_all(progress=progress, stop=stop if kind == "event" else stop.is_set)

    assert (done.matched, done.changed, done.stopped) == (25, 10, True)
    assert retried(shop.bus) == mails[:10]
    rest = shop.bus.retry_all()
    assert (rest.matched, rest.changed, rest.stopped) == (15, 15, False)
    assert retried(shop.bus) == mails


def test_what_is_no_function_can_neither_watch_nor_stop_it(shop: Shop) -> None:
    [letter] = shop.fail("Mail", 1)
    for options in ({"progress": 1}, {"stop": 1}):
        with pytest.raises(ConfigurationError):
            shop.bus.retry_all(**options)  # type: ignore[arg-type]
    with pytest.raises(InvalidPostError):
        shop.bus.retry_all(states="PROCESSED")
    assert shop.letters == [letter]


@pytest.mark.usefixtures("small_batches")
def test_an_entry_that_cannot_be_retried_is_told_and_the_others_go_on(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    mails, replay = shop.fail("Mail", 25), History.replay

    def fail(statements: History, connection: Connection, record_id: int, **options: Any) -> int:
        new_id = replay(statements, connection, record_id, **options)
        if record_id in {mails[3], mails[14]}:
            raise ValueError("it can't be\nread")
        return new_id

    monkeypatch.setattr(History, "replay", fail)
    done = shop.bus.retry_all()

    assert (done.matched, done.changed, done.skipped) == (25, 23, 0)
    assert done.errors == tuple(
        Unchanged(record_id, "ValueError: it can't be read") for record_id in (mails[3], mails[14])
    )
    left = [mails[3], mails[14]]
    assert (retried(shop.bus), shop.letters) == ([one for one in mails if one not in left], left)


@pytest.mark.usefixtures("small_batches")
def test_two_calls_at_once_retry_each_entry_once(shop: Shop, make_bus: MakeBus) -> None:
    mails, barrier = shop.fail("Mail", 60), threading.Barrier(2)
    buses = [shop.bus, make_bus()]

    def call(bus: PersistentBus) -> BulkResult:
        barrier.wait(BOUND_SECONDS)
        return bus.retry_all()

    with ThreadPoolExecutor(2) as pool:
        one, other = (each.result() for each in [pool.submit(call, bus) for bus in buses])

    assert one.changed + other.changed == 60
    assert (one.errors, other.errors) == ((), ())
    assert retried(shop.bus) == mails


def test_another_call_that_comes_first_is_skipped_over(
    shop: Shop, make_bus: MakeBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have found the same entries, and the other one's turn comes first."""
    mails, other, find = shop.fail("Mail", 5), make_bus(), bulk.Bulk.ids

    def found(call: bulk.Bulk) -> list[int]:
        ids = find(call)
        monkeypatch.setattr(bulk.Bulk, "ids", find)
        assert other.retry_all(record_ids=mails[:2]).changed == 2
        assert other.discard_all(record_ids=mails[2:3]).changed == 1
        return ids

    monkeypatch.setattr(bulk.Bulk, "ids", found)
    done = shop.bus.retry_all()

    assert (done.matched, done.changed, done.skipped, done.errors) == (5, 2, 3, ())
    assert retried(shop.bus) == mails[:2] + mails[3:]


@needs.many_writers
@pytest.mark.parametrize("count", [1, 5])
def test_another_call_that_wins_the_turn_spoils_the_batch_and_is_skipped_over(
    shop: Shop, make_bus: MakeBus, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """The other call commits between the look at an entry and its turn."""
    mails, rivals, take_turn = shop.fail("Mail", count), [make_bus()], History.take_turn

    def beaten(statements: History, connection: Connection, record_id: int, *rest: Any) -> bool:
        if record_id == mails[count // 2] and rivals:
            rival = rivals.pop()
            elsewhere(lambda: rival.retry(record_id))
        return take_turn(statements, connection, record_id, *rest)

    monkeypatch.setattr(History, "take_turn", beaten)
    done = shop.bus.retry_all()

    assert (done.matched, done.changed, done.skipped, done.errors) == (count, count - 1, 1, ())
    assert (rivals, retried(shop.bus)) == ([], mails)


@pytest.mark.parametrize("point", ["between", "within"])
@pytest.mark.parametrize("change", ["retry_all", "discard_all", "clear"])
def test_a_killed_call_is_repeated_and_doubles_nothing(
    shop: Shop, database_url: URL, point: str, change: str
) -> None:
    ids = shop.fail("Mail", 40)
    if change == "clear":
        shop.bus.retry_all()
        ids = sorted(entry.record_id for entry in shop.bus.find())
    url = database_url.render_as_string(hide_password=False)

    died = subprocess.run(
        [sys.executable, killed.__file__, point, change, url], capture_output=True, check=False
    )

    assert died.returncode == -9, died.stderr[-3000:]
    before = 20 if point == "between" else 10
    call: Callable[[], BulkResult] = getattr(shop.bus, change)
    done = eventually(call, "the database has given up the dead session")
    assert (done.matched, done.changed) == (40 - before, 40 - before)
    if change == "retry_all":
        assert retried(shop.bus) == ids
    elif change == "clear":
        assert (shop.bus.find(), len(shop.bus.history(states="REMOVED"))) == ([], 40)
    assert shop.letters == []


def test_discarded_ones_are_not_retried_and_removed_ones_come_back(shop: Shop) -> None:
    mails = shop.fail("Mail", 4)
    assert shop.bus.discard_all(record_ids=mails[:2]).changed == 2
    assert shop.bus.retry_all().changed == 2
    assert shop.bus.clear().changed == 2
    assert shop.bus.retry_all().matched == 0
    assert shop.bus.retry_all(states=[State.REMOVED]).changed == 2
    assert shop.bus.size() == 2


def test_a_retry_runs_those_that_failed_or_all_subscribers(make_bus: MakeBus) -> None:
    bus, ran = make_bus(retry=ImmediateRetries(0)), list[str]()
    bus.subscribe("Mail", lambda _event: ran.append("good"), name="good")

    @bus.subscribe("Mail", name="bad")
    def bad(_event: object) -> None:
        ran.append("bad")
        raise ValueError

    bus.post({}, event_name="Mail")
    drain(bus)
    for all_subscribers, expected in ((False, ["bad"]), (True, ["bad", "good"])):
        ran.clear()
        assert bus.retry_all(all_subscribers=all_subscribers).changed == 1
        drain(bus)
        assert sorted(ran) == expected


def test_keys_held_by_failed_entries_go_on(shop: Shop) -> None:
    """A bulk change tells order keys what a single one tells them."""
    bus = shop.bus
    for key in ("a", "b"):
        for number in range(3):
            bus.post({"number": number}, event_name="Mail", order_key=key)
    drain(bus)
    assert len(bus.held_keys()) == 2
    [first, second] = shop.letters
    shop.failing = False
    assert bus.retry_all(record_ids=[first]).changed == 1
    assert bus.discard_all(record_ids=[second]).changed == 1
    drain(bus)
    assert (bus.held_keys(), bus.size()) == ([], 0)
    assert len(bus.history(states="PROCESSED")) == 5


def test_times_bound_what_is_retried(shop: Shop) -> None:
    old = shop.fail("Mail", 3)
    between = engine_of(shop.bus).store.now()
    new = shop.fail("Mail", 3)
    assert shop.bus.retry_all(finished_since=datetime.now(UTC) + FAR).matched == 0
    assert shop.bus.retry_all(finished_since=between, dry_run=True).matched == 3
    assert shop.bus.retry_all(finished_before=between).changed == 3
    assert (retried(shop.bus), shop.letters) == (old, new)


# -- what waits ----------------------------------------------------------------------------------


@pytest.fixture
def holding(make_bus: MakeBus) -> Iterator[tuple[PersistentBus, int, list[int]]]:
    """A bus with an entry that runs, and with others that wait."""
    bus, began, may_end = make_bus(), threading.Event(), threading.Event()

    def handle(_event: object) -> None:
        began.set()
        assert may_end.wait(BOUND_SECONDS)

    bus.subscribe("Slow", handle)
    bus.start()
    running = bus.post({}, event_name="Slow")
    assert began.wait(BOUND_SECONDS)
    waiting = [
        bus.post({}, event_name=name, delay=FAR, search_key1=key)
        for name, key in (("Slow", 1), ("Slow", 2), ("Other", 2))
    ]
    yield bus, running, waiting
    may_end.set()


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


# -- workers -------------------------------------------------------------------------------------


def test_the_work_of_each_live_node_is_counted(
    holding: tuple[PersistentBus, int, list[int]], make_bus: MakeBus, database_url: URL
) -> None:
    bus, _, _ = holding
    bus.subscribe("Good", lambda _event: None)

    @bus.subscribe("Bad")
    def bad(_event: object) -> None:
        raise ValueError

    make_bus()
    for name in ("Good", "Good", "Bad"):
        bus.post({}, event_name=name)
    eventually(lambda: len(bus.history()) == 3, "they have ended")

    with inspect(database_url) as inspector:
        [worker] = inspector.workers()
        [still] = inspector.workers(age=timedelta(0))
        with pytest.raises(ConfigurationError):
            inspector.workers(age=timedelta(-1))

    assert (worker.table, worker.queues) == ("bus_events", ("bus",))
    assert (worker.running, worker.processed, worker.failed) == (1, 2, 1)
    assert (still.running, still.processed, still.failed) == (1, 0, 0)
    bus.stop(0)


def test_what_a_node_has_ended_before_it_registered_anew_does_not_count(
    make_bus: MakeBus, database_url: URL
) -> None:
    older, node = make_bus(), make_bus()
    for bus in (older, node):
        bus.subscribe("Good", lambda _event: None)
        bus.start()
    node.post({}, event_name="Good")
    eventually(node.history, "it has ended")

    def counts() -> list[int]:
        with inspect(database_url) as inspector:
            return [worker.processed for worker in inspector.workers()]

    assert counts() == [0, 1]
    node.stop()
    node.start()
    assert counts() == [0, 0]
