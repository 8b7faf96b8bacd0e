"""A post: its statements, its way into the pool, and what becomes of it."""

from __future__ import annotations

import re
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, timedelta

import pytest
from prometheus_client import CollectorRegistry
from sqlalchemy import URL, Engine, event, text
from sqlalchemy.exc import DBAPIError

from bus.persistent import PersistentBus
from queue_core.claiming.budget import BATCHES
from queue_core.model.config import BusConfig
from queue_core.model.posting import Posting
from queue_core.model.states import State
from queue_core.runtime.manual_clock import ManualClock
from sql.capabilities import Capabilities
from tests import requirements as needs
from tests.contract.conftest import MakeBus
from tests.contract.harness import (
    BOUND_SECONDS,
    Order,
    Recorder,
    database_of,
    ended,
    eventually,
    lifecycle_of,
    listening,
    statements_of,
    states,
    without_schema,
)


@needs.postgresql
@pytest.mark.parametrize("entries", [1, 2])
def test_a_post_whose_commit_is_refused_raises(
    bus: PersistentBus, engine: Engine, entries: int
) -> None:
    """The server answers an INSERT before it checks what is deferred to the commit."""
    bus.post(Order(1))
    function = (
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'refused'; "
        "END $$"
    )
    trigger = (
        "CREATE CONSTRAINT TRIGGER refusing AFTER INSERT ON bus_events DEFERRABLE INITIALLY "
        "DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse()"
    )
    with engine.begin() as connection:
        connection.execute(text(function))
        connection.execute(text(trigger))
    with pytest.raises(DBAPIError, match="refused"):
        bus.post_many([Order(number) for number in range(entries)])
    assert len(bus.find()) == 1


def test_a_handler_learns_everything_about_its_entry(bus: PersistentBus) -> None:
    recorder = Recorder()
    bus.subscribe(Order, recorder)
    bus.start()
    record_id = bus.post(
        Order(1),
        search_key1=2**63 - 1,
        search_key2=-(2**63),
        user_token="user",
        future_user_token="future",
        headers={"traceparent": "00-aa-bb-01"},
    )
    recorder.wait()
    (context,) = recorder.contexts
    (entry,) = ended(bus)
    assert (context.record_id, context.queue_name, context.class_name) == (
        record_id,
        "bus",
        "Order",
    )
    assert (context.search_key1, context.search_key2) == (2**63 - 1, -(2**63))
    assert (context.user_token, context.future_user_token) == ("user", "future")
    assert context.headers == {"traceparent": "00-aa-bb-01"}
    assert (context.attempt, context.error_count, context.redispatch_count) == (1, 0, 0)
    assert context.created_date == context.effective_date == entry.created_date
    assert context.created_date.tzinfo is UTC
    assert context.connection is None


def test_an_event_is_posted_by_one_statement_that_commits_by_itself(bus: PersistentBus) -> None:
    database, begun = database_of(bus), list[object]()
    note = begun.append
    bus.post(Order(1))
    event.listen(database.engine, "begin", note)
    with statements_of(database) as statements:
        bus.post(Order(2))
    event.remove(database.engine, "begin", note)
    assert len(statements.texts) == 1
    assert statements.texts[0].startswith("INSERT INTO bus_events ")
    assert not begun


@needs.one_writer
def test_a_post_waits_for_a_write_lock_that_another_process_holds(bus: PersistentBus) -> None:
    refused = threading.Event()
    database = database_of(bus)
    path = database.url.database
    assert path is not None
    with (
        closing(sqlite3.connect(path, isolation_level=None)) as other,
        listening(
            database,
            before_cursor_execute=lambda *_: None,
            handle_error=lambda _context: refused.set(),
        ),
        ThreadPoolExecutor(1) as threads,
    ):
        other.execute("BEGIN IMMEDIATE")
        posting = threads.submit(bus.post, Order(1))
        assert refused.wait(BOUND_SECONDS)
        other.execute("ROLLBACK")
        record_id = posting.result(BOUND_SECONDS)
    assert [entry.record_id for entry in bus.find()] == [record_id]


def test_a_row_born_claimed_is_seen_by_others_only_once_its_id_is_in_the_ledger(
    bus: PersistentBus,
) -> None:
    """Else the sweep takes it for a commit that nobody knows of, and it runs twice at once."""
    bus.subscribe(Order, Recorder())
    bus.start()
    lifecycle, unknown = lifecycle_of(bus), list[list[int]]()

    def seen_and_unknown() -> list[int]:
        return [
            record_id
            for record_id, _ in lifecycle.holdings.in_processing()
            if record_id not in lifecycle.ledger
        ]

    def inserted(_connection: object, _cursor: object, statement: str, *_rest: object) -> None:
        if without_schema(statement).startswith("INSERT INTO bus_events "):
            with ThreadPoolExecutor(1) as other:
                unknown.append(other.submit(seen_and_unknown).result())

    with listening(database_of(bus), after_cursor_execute=inserted):
        bus.post(Order(1))
        ended(bus)  # what ends between the two reads is in neither
        bus.post_many([Order(2), Order(3)])

    assert unknown
    assert not any(unknown)
    assert states(ended(bus, 3)) == [State.PROCESSED] * 3


def test_a_sticky_event_starts_without_a_claim_and_without_a_read(
    make_bus: MakeBus, capabilities: Capabilities
) -> None:
    clock = ManualClock()
    bus, recorder = make_bus(clock=clock), Recorder()
    bus.subscribe(Order, recorder)
    bus.start()
    # Claim, finish, beat and reap, and a second finish where writers take turns: no turn comes by
    # time.
    clock.wait_until_waiting(5 if capabilities.one_writer else 4)
    with statements_of(database_of(bus)) as statements:
        bus.post(Order(1))
        bus.post_many([Order(2), Order(3)])
        recorder.wait(3)
        ended(bus, 3)
    live = [text for text in statements.texts if re.search(r"\bbus_events\b", text)]
    written = [text for text in live if text.startswith("INSERT INTO bus_events ")]
    # Where ids can't be had ahead and many rows are several INSERTs, the first row gives its id.
    assert len(written) == (3 if capabilities.one_writer else 2)
    finishing = [text for text in live if re.search("bus_events_(history|move|ended|gone)", text)]
    finishing += [text for text in live if text.startswith("DELETE")]
    others = [text for text in live if text not in written and text not in finishing]
    if capabilities.hears_commits and not capabilities.notifies:
        # A file's change may be another process's: this node looks into its lanes, where it finds
        # nothing.
        others = [
            text
            for text in others
            if not re.match(r"(SELECT|WITH due).*\blane = ", text, re.DOTALL)
        ]
    if (capabilities.notifies or capabilities.wakes_idle) and others:
        # The listener, once it listens, makes the node look for what came before.
        assert others.pop(0).startswith("SELECT (SELECT")
    assert others == []
    assert {entry.claim_count for entry in bus.history()} == {1}


def test_an_event_with_a_date_waits_for_it(make_bus: MakeBus) -> None:
    clock = ManualClock()
    bus, recorder = make_bus(clock=clock), Recorder()
    bus.subscribe(Order, recorder)
    bus.start()

    bus.post_many([Posting(event=Order(1), at=clock.now() + timedelta(seconds=5)), Order(2)])

    ended(bus)
    assert recorder.numbers() == [2]
    clock.advance(seconds=5)
    _, entry = sorted(ended(bus, 2), key=lambda entry: entry.effective_date)
    assert entry.started_date == entry.effective_date == clock.now()


def test_a_full_node_posts_unclaimed_and_loses_nothing(make_bus: MakeBus) -> None:
    bus = make_bus(handler_threads=1, max_entries_claimed=1, queue_capacity=5)
    recorder = Recorder(hold=True)
    bus.subscribe(Order, recorder)
    bus.start()
    for number in range(12):
        bus.post(Order(number))
    recorder.wait(1)
    # A claim that is under way when the node gets full takes one more.
    assert states(bus.find()).count(State.IN_PROCESSING) in {5, 6}
    assert len(lifecycle_of(bus).ledger) in {5, 6}
    recorder.release()
    ended(bus, 12)
    assert recorder.numbers() == list(range(12))


def test_large_events_past_the_pools_room_wait_by_id_and_run_once(make_bus: MakeBus) -> None:
    bus = make_bus(handler_threads=1, max_entries_claimed=1)
    recorder = Recorder(hold=True)
    bus.subscribe("large", recorder)
    bus.start()
    ids = bus.post_many(
        Posting(event={"place": place, "text": "x" * 10_000}, event_name="large")
        for place in range(40)
    )
    recorder.wait(1)
    assert lifecycle_of(bus).ledger.waiting >= 40 - 1 - BATCHES
    recorder.release()
    assert [entry.record_id for entry in ended(bus, 40)] == ids
    assert [event["place"] for event in recorder.events] == list(range(40))
    eventually(lambda: len(lifecycle_of(bus).ledger) == 0, "the last outcomes are let go of")


def test_thousands_of_events_at_once_are_delivered_once_each(make_bus: MakeBus) -> None:
    bus, recorder = make_bus(), Recorder()
    bus.subscribe(Order, recorder)
    bus.start()
    bus.post_many(Order(number) for number in range(2_500))
    ended(bus, 2_500)
    assert recorder.numbers() == list(range(2_500))


def test_posts_of_several_threads_are_all_delivered(make_bus: MakeBus) -> None:
    bus, recorder = make_bus(), Recorder()
    bus.subscribe(Order, recorder)
    bus.start()
    posters = [
        threading.Thread(
            target=lambda base=base: [bus.post(Order(base + step)) for step in range(25)]
        )
        for base in range(0, 100, 25)
    ]
    for poster in posters:
        poster.start()
    for poster in posters:
        poster.join()
    ended(bus, 100)
    assert recorder.numbers() == list(range(100))


def test_a_handler_may_post(bus: PersistentBus) -> None:
    last = Recorder()

    def forward(order: Order) -> None:
        bus.post({"number": order.number}, event_name="forwarded")

    bus.subscribe(Order, forward)
    bus.subscribe("forwarded", last)
    bus.start()
    bus.post(Order(1))
    assert last.wait() == [{"number": 1}]
    assert states(ended(bus, 2)) == [State.PROCESSED] * 2


def test_tokens_follow_an_entry_through_its_retries_into_history(bus: PersistentBus) -> None:
    recorder = Recorder(failures=2)
    bus.subscribe(Order, recorder)
    bus.start()
    bus.post(Order(1), user_token="user", future_user_token="future")
    (entry,) = ended(bus)
    assert (entry.user_token, entry.future_user_token) == ("user", "future")
    assert {(context.user_token, context.future_user_token) for context in recorder.contexts} == {
        ("user", "future")
    }


def test_an_event_without_a_subscriber_ends_processed_and_is_counted(database_url: URL) -> None:
    registry = CollectorRegistry()
    labels = {"table": "bus_events", "queue_name": "bus"}
    with PersistentBus(
        database_url, BusConfig(handler_threads=1), metrics_registry=registry
    ) as bus:
        bus.post(Order(1))
        assert states(ended(bus)) == [State.PROCESSED]
        eventually(
            lambda: registry.get_sample_value("stickybus_entries_undelivered_total", labels) == 1,
            "it is counted",
        )
