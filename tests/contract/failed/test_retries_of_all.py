"""All failed entries that match are retried or discarded together."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import URL, Connection

from queue_core.errors import ConfigurationError, InvalidPostError
from queue_core.model.retry_policies import ImmediateRetries
from queue_core.model.states import State
from queue_core.reading import bulk
from queue_core.reading.bulk import BulkResult, Unchanged
from sql.statements.history import History
from stickybus import PersistentBus
from stickybus.testing import drain
from tests import requirements as needs
from tests.contract.conftest import MakeBus
from tests.contract.failed import killed
from tests.contract.failed.shop import FAR, Shop, retried
from tests.contract.harness import BOUND_SECONDS, elsewhere, engine_of, eventually


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


@pytest.mark.slow
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
        [sys.executable, "-m", killed.__name__, point, change, url],
        capture_output=True,
        check=False,
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
