"""The test kit: `drain` runs the work of a started bus in the test's thread, at its time."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from bus.persistent import PersistentBus
from queue_core.claiming.budget import FAIR_SHARE
from queue_core.errors import LifecycleError
from queue_core.model.entry import Entry
from queue_core.model.retry import RetryLater
from queue_core.model.retry_policies import ImmediateRetries, ScheduledRetries
from queue_core.model.states import State
from queue_core.running.subscriber import EntryContext
from queue_core.runtime.manual_clock import ManualClock
from sql.schema import Fit
from stickybus import create_schema, testing
from stickybus.testing import Ran, drain
from tests.contract.conftest import MakeBus, MakeService


@dataclass
class InvoicePosted:
    number: int


@dataclass
class InvoicePaid:
    number: int


# Other tests take copies in place of it.
kits_own_url = testing.stickybus_url


def told(runs: list[Ran]) -> list[tuple[str, State, int]]:
    return [(ran.event_name, ran.state, ran.error_count) for ran in runs]


def test_its_database_has_all_tables(kits_own_url: str) -> None:
    assert create_schema(kits_own_url).fit is Fit.CURRENT


def test_drain_runs_what_is_due_in_the_callers_thread(make_bus: MakeBus) -> None:
    bus, seen = make_bus(clock=ManualClock()), list[tuple[int, threading.Thread]]()

    @bus.subscribe(InvoicePosted)
    def handle(event: InvoicePosted) -> None:
        seen.append((event.number, threading.current_thread()))

    record_id = bus.post(InvoicePosted(41))
    (ran,) = drain(bus)
    assert (ran.entry.record_id, ran.state) == (record_id, State.PROCESSED)
    assert seen == [(41, threading.current_thread())]
    assert [entry.processing_state for entry in bus.history()] == [State.PROCESSED]
    assert drain(bus) == []


def test_drain_leaves_no_thread_of_a_loop_and_no_lease(bus: PersistentBus) -> None:
    bus.subscribe("Tick", lambda event: event, name="tick")
    before = set(threading.enumerate())
    bus.post({}, event_name="Tick")
    drain(bus)
    assert {
        thread for thread in set(threading.enumerate()) - before if "notify" not in thread.name
    } == set()
    bus.start()  # the name is free again at once
    bus.stop()


def test_drain_returns_each_failed_run_with_its_retry(make_bus: MakeBus) -> None:
    clock = ManualClock()
    bus = make_bus(clock=clock, retry=ScheduledRetries((timedelta(minutes=5),)))

    @bus.subscribe(InvoicePosted)
    def handle(event: InvoicePosted) -> None:
        raise ValueError(f"invoice {event.number}")

    bus.post(InvoicePosted(41))
    (first,) = drain(bus)
    assert (first.state, first.retry_at) == (State.AVAILABLE, clock.now() + timedelta(minutes=5))
    assert drain(bus) == []
    clock.advance(seconds=300)
    (second,) = drain(bus)
    assert (second.state, second.error_count) == (State.FAILED, 2)
    assert second.last_error is not None
    assert second.last_error.startswith("ValueError: invoice 41")


def test_drain_runs_immediate_retries_until_they_are_used_up_and_then_the_hook(
    make_bus: MakeBus,
) -> None:
    bus = make_bus(retry=ImmediateRetries(2))

    @bus.on_failed
    def apologise(entry: Entry, _error: str) -> None:
        bus.post({}, event_name="Sorry", search_key1=entry.record_id)

    bus.subscribe("Broken", lambda event: event["missing"], name="broken")
    bus.subscribe("Sorry", lambda event: event, name="sorry")
    record_id = bus.post({}, event_name="Broken")
    runs = drain(bus)
    assert told(runs) == [
        ("Broken", State.AVAILABLE, 1),
        ("Broken", State.AVAILABLE, 2),
        ("Broken", State.FAILED, 3),
        ("Sorry", State.PROCESSED, 0),
    ]
    assert runs[-1].entry.search_key1 == record_id


def test_drain_runs_what_was_posted_while_as_much_was_claimed_as_a_node_takes_at_once(
    make_bus: MakeBus,
) -> None:
    bus = make_bus(clock=ManualClock())

    @bus.subscribe(InvoicePosted)
    def handle(event: InvoicePosted) -> None:
        bus.post(InvoicePaid(event.number))

    @bus.subscribe(InvoicePaid)
    def book(_event: InvoicePaid) -> None: ...

    share = FAIR_SHARE * bus.config.handler_threads
    bus.post_many(InvoicePosted(number) for number in range(share))  # before it is a node: for any
    assert len(drain(bus)) == 2 * share


def test_drain_runs_what_handlers_post_for_each_other(
    make_bus: MakeBus, make_service: MakeService
) -> None:
    clock = ManualClock()
    bus, service, paid = make_bus(clock=clock), make_service(clock=clock), list[int]()
    reminders = service.create_queue(
        "invoices", "reminders", lambda event: bus.post(event, event_name="Reminded")
    )

    @bus.subscribe(InvoicePosted)
    def remind(event: InvoicePosted) -> None:
        reminders.schedule({"number": event.number}, event_name="Remind", delay=60)

    bus.subscribe("Reminded", lambda event: paid.append(event["number"]), name="reminded")
    bus.post(InvoicePosted(41))
    assert [ran.event_name for ran in drain(bus, service)] == ["InvoicePosted"]
    clock.advance(seconds=60)
    assert [ran.event_name for ran in drain(bus, service)] == ["Remind", "Reminded"]
    assert paid == [41]


def test_a_notification_is_due_when_the_manual_clock_says_so(make_service: MakeService) -> None:
    clock = ManualClock()
    service, seen = make_service(clock=clock), list[InvoicePaid]()
    queue = service.create_queue("invoices", "paid", seen.append, event_types=[InvoicePaid])
    queue.schedule(InvoicePaid(7), at=datetime(2026, 3, 1, tzinfo=UTC))
    clock.advance_to(datetime(2026, 2, 28, 23, 59, tzinfo=UTC))
    assert drain(service) == []
    clock.advance(seconds=60)
    assert told(drain(service)) == [("InvoicePaid", State.PROCESSED, 0)]
    assert seen == [InvoicePaid(7)]
    assert not queue.started


def test_drain_fires_recurring_schedules_that_are_due(make_service: MakeService) -> None:
    clock = ManualClock()
    service = make_service(clock=clock)
    queue = service.create_queue("reports", "daily", lambda event: event)
    queue.recur("daily", {}, event_name="Report", cron="0 6 * * *")
    assert drain(service) == []
    clock.advance(seconds=6 * 3600)
    assert told(drain(service)) == [("Report", State.PROCESSED, 0)]


def test_drain_runs_many_entries_and_coroutines(make_bus: MakeBus) -> None:
    bus, seen = make_bus(clock=ManualClock()), list[int]()

    @bus.subscribe(InvoicePosted)
    async def handle(event: InvoicePosted, context: EntryContext) -> None:
        assert context.attempt == 1
        seen.append(event.number)

    bus.post_many([InvoicePosted(number) for number in range(300)])
    assert len(drain(bus)) == 300
    assert sorted(seen) == list(range(300))


def test_drain_tells_of_an_entry_that_nobody_knows(make_bus: MakeBus) -> None:
    bus = make_bus()
    other = make_bus()
    other.post({}, event_name="Unknown")
    (ran,) = drain(bus)
    assert (ran.event_name, ran.parked) == ("Unknown", True)


def test_drain_of_a_started_bus_is_refused(bus: PersistentBus) -> None:
    with bus, pytest.raises(LifecycleError, match="Nothing was run or changed"):
        drain(bus)


def test_drain_ends_what_has_no_end(make_bus: MakeBus) -> None:
    bus = make_bus()

    @bus.subscribe("Again")
    def handle(event: dict[str, object]) -> None:
        raise RetryLater(0)

    bus.post({}, event_name="Again")
    with pytest.raises(RuntimeError, match="another entry is still due"):
        drain(bus, max_runs=50)


def test_a_handler_may_move_the_clock_past_the_lease(make_bus: MakeBus) -> None:
    clock = ManualClock()
    bus = make_bus(clock=clock)
    bus.subscribe("Slow", lambda event: clock.advance(seconds=event["seconds"]), name="slow")
    for _ in range(3):
        bus.post({"seconds": 3600}, event_name="Slow")
    assert told(drain(bus)) == [("Slow", State.PROCESSED, 0)] * 3


@pytest.mark.slow
def test_the_how_to_guides_example_passes(tmp_path: Path) -> None:
    guide = (Path(__file__).parents[2] / "docs/how-to/test-your-handlers.md").read_text()
    conftest, *examples = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)
    (tmp_path / "conftest.py").write_text(conftest)
    (tmp_path / "test_shop.py").write_text("\n".join(examples))
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(tmp_path),
    ]
    done = subprocess.run(
        [*command, str(tmp_path)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert "4 passed" in done.stdout, done.stdout + done.stderr
