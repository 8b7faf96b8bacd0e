"""Posting in the caller's transaction: commit delivers, nothing else does, and what is unknown is found out.

That an event is *not* delivered is shown without waiting: another one that was posted after it has
been.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from sqlalchemy import URL, Connection, Engine, create_engine, event, text
from sqlalchemy.exc import DBAPIError, IntegrityError, InvalidRequestError
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    Session,
    mapped_column,
    scoped_session,
    sessionmaker,
)

from bus.persistent import PersistentBus
from queue_core.errors import DatabaseUnreachableError, InvalidConnectionError, WriteLockError
from queue_core.model.entry import State
from queue_core.posting.announced_commits import LOOKS
from sql.capabilities import Capabilities
from stickybus import Mode
from tests import requirements as needs
from tests.contract.conftest import MakeBus, MakeService, Orders
from tests.contract.harness import (
    Order,
    Recorder,
    delivered,
    ended,
    eventually,
    lost_answers,
    with_savepoints,
)


@pytest.fixture
def engine(engine: Engine) -> Engine:
    """An application's engine."""
    return with_savepoints(engine)


@pytest.fixture
def bus(make_bus: MakeBus, recorder: Recorder) -> PersistentBus:
    """A running bus with one subscriber, which sweeps often."""
    bus = make_bus(poll_interval_seconds=0.1)
    bus.subscribe(Order, recorder)
    return bus.start()


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


class Base(DeclarativeBase):
    """The application's models."""


class OrderRow(Base):
    __tablename__ = "orders"
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    note: Mapped[str | None]


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


@needs.two_phase
@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_a_two_phase_transaction_delivers_when_its_second_phase_commits(
    engine: Engine, bus: PersistentBus, recorder: Recorder, end: str, database_name: str
) -> None:
    if database_name == "postgresql" and not _prepares(engine):
        pytest.fail("the test's server must allow prepared transactions")
    with engine.connect() as connection:
        transaction = connection.begin_twophase()
        bus.post(Order(1), connection=connection)
        transaction.prepare()
        assert delivered(bus, recorder) == []
        getattr(transaction, end)()
    if end == "commit":
        eventually(lambda: 1 in recorder.numbers(), "it is delivered")
    else:
        assert delivered(bus, recorder) == []


@needs.two_phase
@pytest.mark.parametrize("mode", Mode)
def test_a_two_phase_transaction_posts_to_a_bus_of_any_mode_that_is_not_started(
    engine: Engine, make_bus: MakeBus, mode: Mode
) -> None:
    bus = make_bus(mode=mode)
    bus.subscribe(Order, Recorder())
    with engine.connect() as connection:
        transaction = connection.begin_twophase()
        [record_id] = [bus.post(Order(1), connection=connection)]
        transaction.prepare()
        assert bus.find() == []
        transaction.commit()
    assert [entry.record_id for entry in bus.find()] == [record_id]


@needs.two_phase
def test_a_two_phase_transaction_posts_to_a_running_bus_that_polls(
    engine: Engine, make_bus: MakeBus
) -> None:
    recorder, bus = Recorder(), make_bus(mode=Mode.POLLING, poll_interval_seconds=0.1)
    bus.subscribe(Order, recorder)
    bus.start()
    with engine.connect() as connection:
        transaction = connection.begin_twophase()
        bus.post(Order(1), connection=connection)
        transaction.prepare()
        transaction.commit()
    assert recorder.wait() == [Order(1)]


@needs.two_phase
def test_a_two_phase_transaction_schedules_and_moves_a_notification(
    engine: Engine, make_service: MakeService
) -> None:
    recorder, service = Recorder(), make_service(poll_interval_seconds=0.1)
    queue = service.create_queue("billing", "dunning", recorder)
    service.start()
    moved = queue.schedule(Order(1), delay=3600)
    with engine.connect() as connection:
        transaction = connection.begin_twophase()
        queue.update(moved, at=datetime.now(UTC), connection=connection)
        queue.schedule(Order(2), delay=0.0, connection=connection)
        transaction.prepare()
        transaction.commit()
    recorder.wait(2)
    assert sorted(recorder.numbers()) == [1, 2]


@needs.postgresql
def test_a_two_phase_transaction_of_the_drivers_own_posts(
    database_url: URL, make_bus: MakeBus
) -> None:
    recorder, bus = Recorder(), make_bus(mode=Mode.POLLING, poll_interval_seconds=0.1)
    bus.subscribe(Order, recorder)
    bus.start()
    plain = database_url.set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(plain) as connection:
        connection.tpc_begin(connection.xid(1, "order", "post"))
        bus.post(Order(1), connection=connection)
        connection.tpc_prepare()
        connection.tpc_commit()
    assert recorder.wait() == [Order(1)]


def _prepares(engine: Engine) -> bool:
    with engine.connect() as connection:
        return int(connection.scalar(text("SHOW max_prepared_transactions")) or 0) > 0


def _break_after_commit(connection: Connection) -> None:
    """Let the COMMIT reach the database and its answer get lost."""
    driver: Any = connection.connection.driver_connection
    cursor = driver.cursor()
    cursor.execute("COMMIT")
    driver.close()


def test_a_commit_whose_answer_is_lost_delivers(
    engine: Engine, bus: PersistentBus, recorder: Recorder
) -> None:
    with engine.connect() as connection:
        bus.post(Order(1), connection=connection)
        event.listen(engine, "commit", _break_after_commit)
        try:
            with pytest.raises(DBAPIError):
                connection.commit()
        finally:
            event.remove(engine, "commit", _break_after_commit)
        connection.invalidate()
    recorder.wait()
    assert delivered(bus, recorder) == [1]


def test_a_commit_that_nothing_announced_is_found_by_the_sweep(
    engine: Engine, make_bus: MakeBus, recorder: Recorder
) -> None:
    bus = make_bus(poll_interval_seconds=0.1, lease_seconds=0.9)
    bus.subscribe(Order, recorder)
    bus.start()
    with engine.connect() as connection:
        bus.post(Order(1), connection=connection)
        driver: Any = connection.connection.driver_connection
        driver.cursor().execute("COMMIT")
        recorder.wait()
    assert delivered(bus, recorder) == [1]
    swept = next(entry for entry in bus.history() if entry.claim_count > 1)
    assert swept.processing_state is State.PROCESSED


def test_a_connection_that_breaks_before_its_commit_delivers_nothing(
    engine: Engine, bus: PersistentBus, recorder: Recorder
) -> None:
    with engine.connect() as connection:
        bus.post(Order(1), connection=connection)
        connection.invalidate()
    assert delivered(bus, recorder) == []


def test_an_own_post_whose_commit_gave_no_answer_raises_and_is_delivered_once(
    bus: PersistentBus, recorder: Recorder
) -> None:
    with (
        lost_answers(bus._engine.database, "INSERT INTO bus_events", committed=True) as lost,
        pytest.raises((DBAPIError, DatabaseUnreachableError)),
    ):
        bus.post(Order(1))
    assert lost == ["answer"]
    recorder.wait()
    assert delivered(bus, recorder) == [1]


@needs.postgresql
def test_a_commit_that_postgresql_turns_into_a_rollback_delivers_nothing(
    engine: Engine, bus: PersistentBus, recorder: Recorder, orders: Orders
) -> None:
    with engine.connect() as connection:
        bus.post(Order(1), connection=connection)
        with pytest.raises(DBAPIError):
            connection.exec_driver_sql("SELECT 1 / 0")
        connection.commit()  # no error: the server answers ROLLBACK
    assert delivered(bus, recorder) == []


@needs.server
def test_a_transaction_whose_session_is_killed_delivers_nothing(
    engine: Engine, bus: PersistentBus, recorder: Recorder, database_name: str
) -> None:
    number = {"postgresql": "SELECT pg_backend_pid()"}.get(database_name, "SELECT connection_id()")
    kill = {"postgresql": "SELECT pg_terminate_backend({})"}.get(database_name, "KILL {}")
    with engine.connect() as connection, engine.connect() as killer:
        session = connection.scalar(text(number))
        bus.post(Order(1), connection=connection)
        killer.exec_driver_sql(kill.format(session))
        with pytest.raises(DBAPIError):
            connection.commit()
        connection.invalidate()
    assert delivered(bus, recorder) == []


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


def test_a_closed_or_invalidated_connection_is_refused(engine: Engine, bus: PersistentBus) -> None:
    connection = engine.connect()
    connection.close()
    with pytest.raises(InvalidConnectionError, match="Nothing was written"):
        bus.post(Order(1), connection=connection)
    with engine.connect() as broken:
        broken.invalidate()
        with pytest.raises(InvalidConnectionError):
            bus.post(Order(1), connection=broken)
    assert bus.find() == []


def test_a_failed_session_is_refused_until_it_is_rolled_back(
    engine: Engine, bus: PersistentBus, orders: Orders
) -> None:
    with Session(engine) as session:
        session.add_all([OrderRow(number=1), OrderRow(number=2)])
        session.commit()
        session.expunge_all()
        session.add(OrderRow(number=1))
        with pytest.raises(IntegrityError):
            session.flush()
        session.rollback()
        bus.post(Order(1), connection=session)
        session.commit()
    ended(bus, 1)


def test_a_connection_to_another_database_is_refused(
    bus: PersistentBus, database_name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = create_engine(f"sqlite:///{tmp_path_factory.mktemp('other')}/other.db")
    with (
        other.connect() as connection,
        pytest.raises(InvalidConnectionError, match="Nothing was written"),
    ):
        bus.post(Order(1), connection=connection)
    other.dispose()


@pytest.mark.parametrize("given", [42, "connection", object()])
def test_what_is_no_connection_is_refused(bus: PersistentBus, given: object) -> None:
    with pytest.raises(InvalidConnectionError, match="Nothing was written"):
        bus.post(Order(1), connection=given)  # type: ignore[arg-type]


@needs.one_writer
def test_a_transaction_that_read_before_another_wrote_is_told_to_begin_immediate(
    engine: Engine, bus: PersistentBus, orders: Orders
) -> None:
    with engine.connect() as connection:
        connection.execute(text("SELECT * FROM orders")).all()
        bus.post(Order(1))
        with pytest.raises(WriteLockError, match="BEGIN IMMEDIATE"):
            bus.post(Order(2), connection=connection)
    assert [entry.record_id for entry in ended(bus, 1)]


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


def test_an_error_of_the_database_is_raised_as_it_is(engine: Engine, bus: PersistentBus) -> None:
    with engine.connect() as connection:
        transaction = connection.begin()
        transaction.rollback()
        with pytest.raises(InvalidRequestError), transaction:
            bus.post(Order(1), connection=connection)


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

    def slow(dbapi_connection: Any) -> None:
        begun.set()
        assert going_on.wait(20)
        commit(dbapi_connection)

    engine.dialect.do_commit = slow  # type: ignore[method-assign]
    committing = threading.Thread(target=connection.commit)
    committing.start()
    assert begun.wait(20)
    looked_for = bus._engine.lifecycle.claim_loop._announced._announced
    eventually(
        lambda: [one.looks > LOOKS for one in looked_for] in ([True], []),
        "the first looks are over",
    )
    going_on.set()
    committing.join()

    assert recorder.wait(1) == [Order(1)]
    connection.close()
