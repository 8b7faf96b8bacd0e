"""Handlers whose effects and outcome commit together, or not at all."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, func, select, text, update
from sqlalchemy.exc import DBAPIError

from bus.persistent import PersistentBus
from queue_core.errors import ConfigurationError
from queue_core.model.retry_policies import ImmediateRetries
from queue_core.model.states import State
from queue_core.running.subscriber import EntryContext
from sql.capabilities import Capabilities
from tests import requirements as needs
from tests.contract.cluster import Cluster
from tests.contract.conftest import MakeBus, Orders
from tests.contract.harness import (
    Order,
    Recorder,
    database_of,
    deadlock,
    ended,
    engine_of,
    eventually,
    lifecycle_of,
    listening,
    lost_answers,
    states,
)


def _connection(context: EntryContext) -> Connection:
    assert context.connection is not None
    return context.connection


def test_a_handlers_rows_commit_together_with_the_entrys_outcome(
    bus: PersistentBus, orders: Orders
) -> None:
    seen = list[tuple[int, int]]()

    @bus.subscribe(Order, exactly_once=True)
    def add(order: Order, context: EntryContext) -> None:
        connection = _connection(context)
        connection.execute(orders.add(order.number))
        inside = connection.scalar(select(func.count()).select_from(orders.table))
        seen.append((inside or 0, len(orders.numbers())))

    bus.start()
    record_id = bus.post(Order(1))
    (entry,) = ended(bus)
    assert (entry.record_id, entry.processing_state, entry.error_count) == (
        record_id,
        State.PROCESSED,
        0,
    )
    assert seen == [(1, 0)], "inside the transaction there is a row, outside there is none yet"
    assert orders.numbers() == [1]
    assert bus.find() == []


def test_a_handlers_error_rolls_its_rows_back_with_each_run(
    bus: PersistentBus, orders: Orders
) -> None:
    calls = list[int]()

    @bus.subscribe(Order, exactly_once=True)
    def fail_twice(order: Order, context: EntryContext) -> None:
        calls.append(context.attempt)
        _connection(context).execute(orders.add(10 * order.number + len(calls)))
        if len(calls) < 3:
            raise ValueError("too early")

    bus.start()
    bus.post(Order(1))
    (entry,) = ended(bus)
    assert calls == [1, 2, 3]
    assert orders.numbers() == [13]
    assert (entry.processing_state, entry.error_count) == (State.PROCESSED, 2)


def test_an_entry_that_fails_for_good_leaves_none_of_its_rows(
    bus: PersistentBus, orders: Orders
) -> None:
    @bus.subscribe(Order, exactly_once=True)
    def fail(order: Order, context: EntryContext) -> None:
        _connection(context).execute(orders.add(order.number))
        raise SystemExit(3)

    bus.start()
    bus.post(Order(1))
    (entry,) = ended(bus)
    assert (entry.processing_state, entry.error_count) == (State.FAILED, 4)
    assert orders.numbers() == []


def test_the_databases_own_error_rolls_back_and_is_retried(
    bus: PersistentBus, orders: Orders
) -> None:
    calls = list[int]()

    @bus.subscribe(Order, exactly_once=True)
    def collide(order: Order, context: EntryContext) -> None:
        calls.append(1)
        connection = _connection(context)
        connection.execute(orders.add(order.number))
        if len(calls) == 1:
            connection.execute(orders.add(order.number))

    bus.start()
    bus.post(Order(1))
    (entry,) = ended(bus)
    assert (entry.processing_state, entry.error_count, len(calls)) == (State.PROCESSED, 1, 2)
    assert orders.numbers() == [1]


def test_an_entry_that_was_taken_over_meanwhile_rolls_the_handlers_rows_back(
    bus: PersistentBus, orders: Orders
) -> None:
    calls, main = list[int](), engine_of(bus).store.statements.main

    @bus.subscribe(Order, exactly_once=True)
    def lose_the_first(order: Order, context: EntryContext) -> None:
        calls.append(context.record_id)
        if len(calls) == 1:
            with orders.engine.begin() as other:  # what a reaper's take-over does to the fence
                other.execute(
                    update(main).values(
                        processing_state=State.AVAILABLE.value,
                        processing_owner=None,
                        claim_count=7,
                        lane="",
                    )
                )
            lifecycle_of(bus).claimer.wake()
        _connection(context).execute(orders.add(10 * order.number + len(calls)))

    bus.start()
    record_id = bus.post(Order(1))
    (entry,) = ended(bus)
    assert calls == [record_id, record_id]
    assert orders.numbers() == [12]
    assert (entry.processing_state, entry.claim_count) == (State.PROCESSED, 8)


@pytest.mark.parametrize("committed", ["committed", "not committed"])
@pytest.mark.parametrize("others", [0, 1])
def test_a_commit_whose_answer_is_lost_leaves_its_effect_exactly_once(
    bus: PersistentBus, orders: Orders, committed: str, others: int
) -> None:
    calls, other = list[int](), Recorder()

    @bus.subscribe(Order, name="adds", exactly_once=True)
    def add(order: Order, context: EntryContext) -> None:
        calls.append(1)
        _connection(context).execute(orders.add(10 * order.number + len(calls)))

    if others:

        @bus.subscribe(Order, name="follows", exactly_once=True)
        def follow(order: Order, context: EntryContext) -> None:
            other(order, context)

    bus.start()
    with lost_answers(
        database_of(bus), "INSERT INTO orders", committed=committed == "committed"
    ) as lost:
        bus.post(Order(1))
        (entry,) = ended(bus)
    assert lost == ["answer"]
    runs = 1 if committed == "committed" else 2
    assert (len(calls), orders.numbers()) == (runs, [10 + runs])
    assert (entry.processing_state, entry.error_count) == (State.PROCESSED, runs - 1)
    assert other.calls >= others


def test_several_subscribers_each_have_their_effect_once_though_one_fails(
    bus: PersistentBus, orders: Orders
) -> None:
    plain, calls = Recorder(), list[str]()

    @bus.subscribe(Order, name="steady", exactly_once=True)
    def steady(order: Order, context: EntryContext) -> None:
        calls.append("steady")
        _connection(context).execute(orders.add(order.number))

    @bus.subscribe(Order, name="failing", exactly_once=True)
    def failing(order: Order, context: EntryContext) -> None:
        calls.append("failing")
        _connection(context).execute(orders.add(10 * order.number + calls.count("failing")))
        if calls.count("failing") < 3:
            raise ValueError("not yet")

    bus.subscribe(Order, plain, name="plain")
    bus.start()
    bus.post(Order(1))
    (entry,) = ended(bus)
    assert (calls.count("steady"), calls.count("failing"), plain.calls) == (1, 3, 1)
    assert orders.numbers() == [1, 13]
    assert (entry.processing_state, entry.error_count) == (State.PROCESSED, 2)


def test_a_plain_subscriber_that_fails_does_not_undo_or_repeat_the_others_effect(
    bus: PersistentBus, orders: Orders
) -> None:
    failing, calls = Recorder(failures=99), list[int]()

    @bus.subscribe(Order, name="adds", exactly_once=True)
    def add(order: Order, context: EntryContext) -> None:
        calls.append(1)
        _connection(context).execute(orders.add(order.number))

    bus.subscribe(Order, failing, name="failing")
    bus.start()
    bus.post(Order(1))
    (entry,) = ended(bus)
    assert (len(calls), failing.calls) == (1, 4)
    assert orders.numbers() == [1]
    assert entry.processing_state is State.FAILED
    assert entry.progress == {"adds": True, "failing": False}


def test_a_handler_that_posts_in_its_transaction_posts_only_if_it_commits(
    make_bus: MakeBus,
) -> None:
    bus, last, calls = make_bus(), Recorder(), list[int]()

    @bus.subscribe(Order, exactly_once=True)
    def forward(order: Order, context: EntryContext) -> None:
        calls.append(1)
        bus.post({"run": len(calls)}, event_name="forwarded", connection=context.connection)
        if len(calls) < 3:
            raise ValueError("rolled back")

    bus.subscribe("forwarded", last, name="last")
    bus.start()
    bus.post(Order(1))
    assert states(ended(bus, 2)) == [State.PROCESSED] * 2
    assert last.events == [{"run": 3}]


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_a_handler_that_ends_its_own_transaction_has_failed(
    make_bus: MakeBus, orders: Orders, end: str
) -> None:
    bus = make_bus(retry=ImmediateRetries(0))

    @bus.subscribe(Order, exactly_once=True)
    def overreach(order: Order, context: EntryContext) -> None:
        getattr(_connection(context), end)()

    bus.start()
    bus.post(Order(1))
    (entry,) = ended(bus)
    assert entry.processing_state is State.FAILED
    assert "ended its transaction" in (entry.last_error or "")


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
@pytest.mark.parametrize("then", ["ends", "goes on"])
def test_a_handler_that_ends_its_transaction_by_a_statement_has_failed(
    make_bus: MakeBus, orders: Orders, end: str, then: str
) -> None:
    bus = make_bus(retry=ImmediateRetries(0))

    @bus.subscribe(Order, exactly_once=True)
    def overreach(order: Order, context: EntryContext) -> None:
        connection = _connection(context)
        connection.execute(orders.add(order.number))
        connection.exec_driver_sql(end)
        if then == "goes on":
            connection.execute(orders.add(order.number + 1))

    bus.start()
    bus.post(Order(1))
    (entry,) = ended(bus)
    assert entry.processing_state is State.FAILED
    assert "ended its transaction" in (entry.last_error or "")
    assert orders.numbers() == ([1] if end == "COMMIT" else [])


def test_writes_on_the_drivers_own_cursor_commit_with_the_outcome(
    make_bus: MakeBus, orders: Orders
) -> None:
    bus, runs = make_bus(), list[int]()

    @bus.subscribe(Order, exactly_once=True)
    def add(order: Order, context: EntryContext) -> None:
        runs.append(1)
        _connection(context).connection.cursor().execute(_row(orders, len(runs)))
        if len(runs) < 3:
            raise ValueError("rolled back")

    bus.start()
    bus.post(Order(1))
    assert states(ended(bus)) == [State.PROCESSED]
    assert orders.numbers() == [3]


@pytest.mark.parametrize("then", ["ends", "goes on"])
def test_a_handler_that_commits_what_its_drivers_cursor_wrote_has_failed(
    make_bus: MakeBus, orders: Orders, then: str
) -> None:
    bus = make_bus(retry=ImmediateRetries(0))

    @bus.subscribe(Order, exactly_once=True)
    def overreach(order: Order, context: EntryContext) -> None:
        driver: Any = _connection(context).connection
        driver.cursor().execute(_row(orders, 1))
        driver.commit()
        if then == "goes on":
            _connection(context).execute(orders.add(2))

    bus.start()
    bus.post(Order(1))
    (entry,) = ended(bus)
    assert entry.processing_state is State.FAILED
    assert "ended its transaction" in (entry.last_error or "")
    assert orders.numbers() == [1]


def _row(orders: Orders, number: int) -> str:
    """An INSERT as text, for a cursor of the driver."""
    return str(orders.add(number).compile(compile_kwargs={"literal_binds": True}))


@needs.ddl_commits
def test_a_handler_whose_ddl_commits_has_failed(make_bus: MakeBus, orders: Orders) -> None:
    bus = make_bus(retry=ImmediateRetries(0))

    @bus.subscribe(Order, exactly_once=True)
    def make_table(order: Order, context: EntryContext) -> None:
        _connection(context).exec_driver_sql("CREATE TABLE of_the_handler (id INTEGER)")

    bus.start()
    bus.post(Order(1))
    (entry,) = ended(bus)
    assert entry.processing_state is State.FAILED
    assert "ended its transaction" in (entry.last_error or "")


@needs.undone_by_deadlock
def test_a_handler_that_goes_on_after_a_deadlock_has_failed(
    make_bus: MakeBus, orders: Orders
) -> None:
    """MariaDB and MySQL roll back its writes, and the next statement begins a transaction."""
    bus, met = make_bus(retry=ImmediateRetries(0)), list[DBAPIError]()
    with orders.engine.begin() as connection:
        connection.execute(orders.add(1))
        connection.execute(orders.add(2))
    rows, half, waits = orders.table, threading.Event(), threading.Event()

    def lock(connection: Connection, number: int) -> None:
        connection.execute(select(rows).where(rows.c.number == number).with_for_update()).all()

    @bus.subscribe(Order, exactly_once=True)
    def stubborn(order: Order, context: EntryContext) -> None:
        connection = _connection(context)
        lock(connection, 1)
        half.set()
        waits.wait(20)
        try:
            while not met:
                lock(connection, 2)
        except DBAPIError as error:
            met.append(error)

    def opponent() -> None:
        half.wait(20)
        with orders.engine.begin() as other:
            # It has written more, so that the handler is the victim.
            for number in range(10, 60):
                other.execute(orders.add(number))
            lock(other, 2)
            waits.set()
            lock(other, 1)

    bus.start()
    thread = threading.Thread(target=opponent)
    thread.start()
    bus.post(Order(1))
    (entry,) = ended(bus)
    thread.join(30)
    assert met
    assert entry.processing_state is State.FAILED
    assert "ended its transaction" in (entry.last_error or "")


@pytest.mark.parametrize("way", ["one statement", "locked first"])
def test_concurrent_handlers_lose_no_update(
    bus: PersistentBus, orders: Orders, way: str, capabilities: Capabilities
) -> None:
    with orders.engine.begin() as connection:
        connection.execute(orders.add(0))
    rows = orders.table

    @bus.subscribe(Order, exactly_once=True)
    def count(order: Order, context: EntryContext) -> None:
        connection = _connection(context)
        if way == "one statement":
            connection.execute(update(rows).values(number=rows.c.number + 1))
            return
        if capabilities.one_writer:  # no FOR UPDATE, but a write takes the only lock
            connection.execute(update(rows).values(number=rows.c.number))
        number = connection.scalar(select(rows.c.number).with_for_update()) or 0
        connection.execute(update(rows).values(number=number + 1))

    bus.start()
    bus.post_many(Order(number) for number in range(40))
    assert states(ended(bus, 40)) == [State.PROCESSED] * 40
    assert orders.numbers() == [40]


def test_a_savepoint_of_a_handler_is_its_own_affair(bus: PersistentBus, orders: Orders) -> None:
    @bus.subscribe(Order, exactly_once=True)
    def add(order: Order, context: EntryContext) -> None:
        connection = _connection(context)
        connection.execute(orders.add(order.number))
        savepoint = connection.begin_nested()
        connection.execute(orders.add(order.number + 1))
        savepoint.rollback()

    bus.start()
    bus.post(Order(1))
    assert states(ended(bus)) == [State.PROCESSED]
    assert orders.numbers() == [1]


def test_serial_handlers_with_effects_run_one_at_a_time(bus: PersistentBus, orders: Orders) -> None:
    with orders.engine.begin() as connection:
        connection.execute(orders.add(0))

    @bus.subscribe(Order, exactly_once=True, serial=True)
    def count(order: Order, context: EntryContext) -> None:
        connection = _connection(context)
        highest = connection.scalar(select(func.max(orders.table.c.number))) or 0
        connection.execute(orders.add(highest + 1))

    bus.start()
    bus.post_many(Order(number) for number in range(20))
    assert {entry.error_count for entry in ended(bus, 20)} == {0}
    assert orders.numbers() == list(range(21))


def test_a_handler_that_met_a_deadlock_runs_again_only_as_long_as_its_lease_holds(
    cluster: Cluster,
) -> None:
    """Else it could run beside the node that has taken the entry over."""
    calls, peer = list[int](), cluster.join("a")

    def meet_a_deadlock(_order: Order, context: EntryContext) -> None:
        calls.append(context.attempt)
        if len(calls) == 2:
            cluster.clock.advance(seconds=60)
        raise DBAPIError.instance("SELECT 1", {}, deadlock(_connection(context)), Exception)

    peer.bus.subscribe(Order, meet_a_deadlock, exactly_once=True)
    peer.bus.post(Order(1))
    peer.run()
    assert calls == [1, 1]


def test_effects_of_many_concurrent_handlers_are_there_once_each(
    bus: PersistentBus, orders: Orders
) -> None:
    @bus.subscribe(Order, exactly_once=True)
    def add(order: Order, context: EntryContext) -> None:
        _connection(context).execute(orders.add(order.number))

    bus.start()
    bus.post_many(Order(number) for number in range(60))
    assert set(states(ended(bus, 60))) == {State.PROCESSED}
    assert orders.numbers() == list(range(60))


def test_only_a_plain_function_of_event_and_context_can_have_exactly_one_effect(
    bus: PersistentBus,
) -> None:
    async def asynchronous(order: Order, context: EntryContext) -> None:
        """It can't use a connection that blocks."""

    for handler in (asynchronous, lambda _order: None):
        with pytest.raises(ConfigurationError, match="exactly_once"):
            bus.subscribe(Order, handler, name="odd", exactly_once=True)  # type: ignore[arg-type]


def test_a_handlers_connection_sees_what_the_application_commits_and_the_reverse(
    bus: PersistentBus, orders: Orders, engine: Engine
) -> None:
    numbers = list[int]()

    @bus.subscribe(Order, exactly_once=True)
    def double(order: Order, context: EntryContext) -> None:
        rows = _connection(context).execute(text("SELECT number FROM orders")).scalars()
        numbers.extend(rows)

    bus.start()
    with engine.begin() as connection:
        connection.execute(orders.add(5))
        bus.post(Order(5), connection=connection)
    eventually(lambda: numbers == [5], "the handler sees the row of the transaction that posted")
    ended(bus)


@needs.one_writer
def test_a_handler_that_posts_around_its_own_transaction_fails_at_once_and_is_told_how_to_post(
    make_bus: MakeBus, orders: Orders
) -> None:
    """The handler's transaction holds SQLite's one write lock.

    A wait for it could only time out.
    """
    bus, other = make_bus(retry=ImmediateRetries(0)), make_bus()

    @bus.subscribe(Order, exactly_once=True)
    def post_around(order: Order, context: EntryContext) -> None:
        _connection(context).execute(orders.add(order.number))
        other.post({}, event_name="forwarded")

    bus.start()
    bus.post(Order(1))
    (entry,) = ended(bus)
    assert entry.processing_state is State.FAILED
    assert "pass connection=context.connection" in (entry.last_error or "")
    assert orders.numbers() == []


_OF_PLANS = ("enable_seqscan", "enable_sort", "enable_bitmapscan", "jit", "plan_cache_mode")


def _plans_of(connection: Connection) -> dict[str, str]:
    return {name: connection.exec_driver_sql(f"SHOW {name}").scalar_one() for name in _OF_PLANS}


@needs.postgresql
def test_handlers_have_the_servers_planner_and_the_outcome_has_the_librarys(
    make_bus: MakeBus, orders: Orders
) -> None:
    bus, seen, recorded = make_bus(handler_threads=1), list[dict[str, str]](), list[str]()

    @bus.subscribe(Order, exactly_once=True)
    def look(order: Order, context: EntryContext) -> None:
        connection = _connection(context)
        seen.append(_plans_of(connection))
        connection.execute(orders.add(order.number))

    def before_commit(connection: Connection) -> None:
        if connection.engine is database_of(bus).lent:
            recorded.append(_plans_of(connection)["enable_seqscan"])

    bus.start()
    with listening(database_of(bus), commit=before_commit):
        for number in range(8):  # drivers prepare a statement that comes often
            bus.post(Order(number))
        ended(bus, 8)
    with orders.engine.connect() as connection:
        usual = _plans_of(connection)
    assert usual["enable_seqscan"] == "on"
    assert seen == [usual] * 8
    assert recorded == ["off"] * 8
    assert orders.numbers() == list(range(8))
