"""A caller's transaction decides whether its events are delivered.

A test shows that an event is *not* delivered without waiting: it waits for another event that was
posted later.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, PoolProxiedConnection
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from bus.persistent import PersistentBus
from queue_core.claiming.commit_looks import LOOKS
from sql.capabilities import Capabilities
from tests.contract.conftest import MakeBus, Orders
from tests.contract.harness import Order, Recorder, delivered, ended, eventually, lifecycle_of
from tests.contract.transactions.models import OrderRow
from tests.contract.transactions.running import bus, engine, looks

__all__ = ["bus", "engine", "looks"]

Begin = Callable[[Engine], Any]


def _connection(engine: Engine) -> Connection:
    return engine.connect()


def _session(engine: Engine) -> Session:
    return Session(engine)


def _scoped(engine: Engine) -> scoped_session[Session]:
    return scoped_session(sessionmaker(engine))


each_kind = pytest.mark.parametrize("begin", [_connection, _session, _scoped])


@each_kind
def test_a_commit_delivers_what_was_posted_in_its_transaction(
    engine: Engine, bus: PersistentBus, recorder: Recorder, orders: Orders, begin: Begin
) -> None:
    with begin(engine)() if begin is _scoped else begin(engine) as given:
        given.execute(orders.add(1))
        first = bus.post(Order(1), connection=given)
        rest = bus.post_many([Order(2), Order(3)], connection=given)
        assert recorder.calls == 0
        given.commit()
    assert [entry.record_id for entry in ended(bus, 3)] == [first, *rest]
    assert recorder.numbers() == [1, 2, 3]
    assert orders.numbers() == [1]


@each_kind
def test_a_rollback_delivers_nothing_and_leaves_no_row(
    engine: Engine, bus: PersistentBus, recorder: Recorder, orders: Orders, begin: Begin
) -> None:
    with begin(engine)() if begin is _scoped else begin(engine) as given:
        given.execute(orders.add(1))
        bus.post(Order(1), connection=given)
        bus.post_many([Order(2), Order(3)], connection=given)
        given.rollback()
    assert delivered(bus, recorder) == []
    assert bus.find() == []
    assert orders.numbers() == []


def test_a_transaction_that_is_closed_without_a_commit_delivers_nothing(
    engine: Engine, bus: PersistentBus, recorder: Recorder
) -> None:
    with engine.connect() as connection:
        bus.post(Order(1), connection=connection)
    with Session(engine) as session:
        bus.post(Order(2), connection=session)
    assert delivered(bus, recorder) == []


def test_an_error_in_the_block_of_a_transaction_delivers_nothing(
    engine: Engine, bus: PersistentBus, recorder: Recorder, orders: Orders
) -> None:
    def fail() -> None:
        with engine.begin() as connection:
            bus.post(Order(1), connection=connection)
            connection.execute(orders.add(1))
            connection.execute(orders.add(1))

    with pytest.raises(IntegrityError):
        fail()
    assert delivered(bus, recorder) == []


def test_what_a_savepoint_rolled_back_is_not_delivered_and_the_rest_is(
    engine: Engine, bus: PersistentBus, recorder: Recorder
) -> None:
    with engine.begin() as connection:
        bus.post(Order(1), connection=connection)
        savepoint = connection.begin_nested()
        bus.post(Order(2), connection=connection)
        savepoint.rollback()
        with connection.begin_nested():
            bus.post(Order(3), connection=connection)
    eventually(lambda: recorder.calls >= 2, "both are delivered")
    assert delivered(bus, recorder) == [1, 3]


def test_a_released_savepoint_delivers_nothing_when_the_outer_transaction_rolls_back(
    engine: Engine, bus: PersistentBus, recorder: Recorder
) -> None:
    with engine.connect() as connection:
        with connection.begin_nested():
            bus.post(Order(1), connection=connection)
        connection.rollback()
    with Session(engine) as session:
        with session.begin_nested():
            bus.post(Order(2), connection=session)
        session.rollback()
    assert delivered(bus, recorder) == []


def test_a_session_that_joins_an_outer_transaction_delivers_with_that(
    engine: Engine, bus: PersistentBus, recorder: Recorder
) -> None:
    with engine.connect() as connection:
        connection.begin()
        with Session(connection, join_transaction_mode="create_savepoint") as session:
            bus.post(Order(1), connection=session)
            session.commit()
        connection.rollback()
        connection.begin()
        with Session(connection, join_transaction_mode="create_savepoint") as session:
            bus.post(Order(2), connection=session)
            session.commit()
        connection.commit()
    eventually(lambda: recorder.calls >= 1, "the committed one is delivered")
    assert delivered(bus, recorder) == [2]


def test_an_object_and_its_event_are_committed_by_one_session(
    engine: Engine, bus: PersistentBus, recorder: Recorder, orders: Orders
) -> None:
    with sessionmaker(engine).begin() as session:
        session.add(OrderRow(number=1, note="by the ORM"))
        bus.post(Order(1), connection=session)
    recorder.wait()
    assert orders.numbers() == [1]
    with Session(engine) as session:
        session.add(OrderRow(number=1, note="again"))
        bus.post(Order(2), connection=session)
        with pytest.raises(IntegrityError):
            session.commit()
    assert delivered(bus, recorder) == [1]


def test_an_event_of_an_open_transaction_waits_while_others_pass_it(
    engine: Engine, bus: PersistentBus, recorder: Recorder, capabilities: Capabilities
) -> None:
    with engine.connect() as connection:
        bus.post(Order(1), connection=connection)
        if not capabilities.one_writer:
            assert delivered(bus, recorder) == []
        assert recorder.calls == (not capabilities.one_writer)
        connection.commit()
    eventually(lambda: 1 in recorder.numbers(), "it is delivered after its commit")


def test_an_autocommit_connection_delivers_at_once_and_a_rollback_does_not_take_it_back(
    engine: Engine, bus: PersistentBus, recorder: Recorder
) -> None:
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        bus.post(Order(1), connection=connection)
        recorder.wait(1)
        connection.rollback()
        bus.post(Order(2), connection=connection)
    recorder.wait(2)
    assert delivered(bus, recorder) == [1, 2]


def test_ids_that_a_rollback_frees_for_others_do_not_mix_events_up(
    engine: Engine, bus: PersistentBus, recorder: Recorder
) -> None:
    for round_ in range(20):
        with engine.connect() as connection:
            bus.post(Order(1000 + round_), connection=connection)
            connection.rollback()
        bus.post(Order(round_))
    ended(bus, 20)
    assert delivered(bus, recorder) == list(range(20))
    assert {entry.claim_count for entry in bus.history()} == {1}


def test_a_transaction_reads_its_own_events_and_nobody_else_does(
    engine: Engine, make_bus: MakeBus
) -> None:
    bus = make_bus()
    with engine.connect() as connection:
        record_id = bus.post(Order(1), search_key1=1, search_key2=2, connection=connection)
        inside = bus.find(search_key1=1, search_key2=2, connection=connection)
        assert [entry.record_id for entry in inside] == [record_id]
        assert bus.ready_count(connection=connection) == 1
        assert bus.history(search_key2=2, connection=connection) == []
        assert bus.find(search_key2=2) == []
        assert bus.ready_count() == 0
        connection.commit()
    assert bus.ready_count() == 1


def test_a_retry_by_hand_and_reads_leave_the_callers_transaction_open(
    engine: Engine, bus: PersistentBus, recorder: Recorder, orders: Orders
) -> None:
    with Session(engine) as session:
        transaction = session.begin()
        session.execute(orders.add(1))
        bus.post(Order(1), connection=session)
        bus.find(connection=session)
        bus.ready_count(connection=session)
        bus.history(connection=session)
        assert transaction.is_active
        session.rollback()
    assert orders.numbers() == []
    assert delivered(bus, recorder) == []


def test_many_transactions_at_once_deliver_each_of_their_events_once(
    engine: Engine, bus: PersistentBus, recorder: Recorder
) -> None:
    for round_ in range(40):
        with engine.connect() as connection:
            bus.post_many([Order(2 * round_), Order(2 * round_ + 1)], connection=connection)
            if round_ % 4 == 3:
                connection.rollback()
            else:
                connection.commit()
    ended(bus, 60)
    expected = [number for number in range(80) if number // 2 % 4 != 3]
    assert recorder.numbers() == expected


def test_the_engines_of_many_tenants_leave_their_common_pool_as_it_was(
    engine: Engine, bus: PersistentBus, recorder: Recorder
) -> None:
    listeners = list[int]()
    for number in range(1, 4):
        tenant = engine.execution_options(schema_translate_map={"tenant": f"tenant{number}"})
        with Session(tenant) as session:
            bus.post(Order(number), connection=session)
            session.commit()
        heard = engine.pool.dispatch
        listeners.append(len(list(heard.checkin)) + len(list(heard.invalidate)))
        engine.dispose()  # the next pool takes its listeners over
    assert listeners == listeners[:1] * 3
    assert delivered(bus, recorder) == [1, 2, 3]


def test_events_of_a_commit_start_without_a_claim(
    engine: Engine, make_bus: MakeBus, recorder: Recorder
) -> None:
    bus = make_bus()
    bus.subscribe(Order, recorder)
    bus.start()
    with engine.begin() as connection:
        bus.post_many([Order(number) for number in range(10)], connection=connection)
    ended(bus, 10)
    assert {entry.claim_count for entry in bus.history()} == {1}


def test_the_commit_of_a_session_is_looked_for_once(
    engine: Engine, make_bus: MakeBus, recorder: Recorder, looks: list[Sequence[int]]
) -> None:
    bus = make_bus(lease_seconds=60.0, poll_interval_seconds=60.0)
    bus.subscribe(Order, recorder)
    bus.start()
    sweep = lifecycle_of(bus).claim_loop.sweep
    # The first sweep takes what was committed and is not announced yet.
    eventually(lambda: sweep.next_turn > 0, "the first sweep is over")
    posted = []
    for number in range(1, 11):
        with Session(engine) as session:
            posted.append(bus.post(Order(number), connection=session))
            session.commit()
        recorder.wait(number)
    assert looks == [[record_id] for record_id in posted]


def test_a_bus_that_is_not_started_posts_for_any_node(
    engine: Engine, make_bus: MakeBus, bus: PersistentBus, recorder: Recorder
) -> None:
    web = make_bus()
    with engine.begin() as connection:
        web.post(Order(1), connection=connection)
    recorder.wait()
    with engine.connect() as connection:
        web.post(Order(2), connection=connection)
        connection.rollback()
    assert delivered(bus, recorder) == [1]


@pytest.mark.slow
def test_what_a_slow_commit_brings_starts_within_a_second_after_it(
    engine: Engine, make_bus: MakeBus, recorder: Recorder
) -> None:
    """One that waits for a standby or for deferred constraints: it is announced before."""
    bus = make_bus(lease_seconds=60.0, poll_interval_seconds=60.0)
    bus.subscribe(Order)(recorder)
    bus.start()
    connection = engine.connect()
    bus.post(Order(1), connection=connection)
    commit, begun, going_on = engine.dialect.do_commit, threading.Event(), threading.Event()

    def slow(dbapi_connection: PoolProxiedConnection) -> None:
        begun.set()
        assert going_on.wait(20)
        commit(dbapi_connection)

    engine.dialect.do_commit = slow  # type: ignore[method-assign]
    committing = threading.Thread(target=connection.commit)
    committing.start()
    assert begun.wait(20)
    looked_for = lifecycle_of(bus).claim_loop.announced.looked_for
    eventually(
        lambda: [one.looks > LOOKS for one in looked_for] in ([True], []),
        "the first looks are over",
    )
    going_on.set()
    committing.join()

    assert recorder.wait(1) == [Order(1)]
    connection.close()
