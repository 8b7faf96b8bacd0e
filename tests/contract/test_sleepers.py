"""Sleepers: sessions of idle processes on MariaDB and MySQL, which the next commit wakes."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from pymysql.connections import Connection
from sqlalchemy import URL, Engine, create_engine, make_url, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from bus.persistent import PersistentBus
from devtools.servers import database_servers
from queue_core.claiming.hint_sender import (
    IDLE_SECONDS,
    REOPEN_SECONDS,
    WAKE_SECONDS,
    HintSender,
    channel,
)
from queue_core.model.config import BusConfig
from queue_core.model.mode import Mode
from queue_core.runtime.clock import Clock
from queue_core.runtime.manual_clock import ManualClock
from sql import schema
from sql.database import Database
from sql.mysql import sleepers
from sql.mysql.dialect import MySQL
from sql.mysql.sleepers import REST_SECONDS, SleepersNotifier
from sql.watching import Bell, Heard, Watch
from stickybus import WorkQueue
from tests import requirements as needs
from tests.conftest import NewDatabase
from tests.contract.conftest import MakeBus
from tests.contract.harness import (
    BOUND_SECONDS,
    Order,
    Recorder,
    config_of,
    elsewhere,
    eventually,
    lifecycle_of,
)

CHANNEL = channel("bus_events")
SLEEP = f"SELECT SLEEP({sleepers.SLEEP_SECONDS}) AS {CHANNEL}"
MINUTES = 600.0
"""A poll interval that no test waits for."""

pytestmark = needs.wakes_idle


class Server:
    """The server's sessions, as its administrator sees them."""

    def __init__(self, url: URL, name: str) -> None:
        self._engine = create_engine(url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
        schema_name = "information_schema" if name == "mariadb" else "performance_schema"
        self._sessions = f"{schema_name}.processlist"

    def run(self, statement: str, **values: object) -> Any:
        """Run a statement; return its rows."""
        with self._engine.connect() as connection:
            result = connection.execute(text(statement), values)
            return result.all() if result.returns_rows else None

    def sleepers(self, statement: str = SLEEP) -> set[int]:
        """Return the sessions of the database that run the statement."""
        found = f"SELECT id FROM {self._sessions} WHERE db = DATABASE() AND info = :wanted"
        return {row.id for row in self.run(found, wanted=statement)}

    def sleeper(self, statement: str = SLEEP) -> int:
        """Wait for a session that sleeps, and return it."""
        return min(eventually(lambda: self.sleepers(statement), "a session sleeps"))

    def kill(self, session: int) -> None:
        """End a session."""
        with suppress(DBAPIError):  # it may have left by itself
            self.run(f"KILL {session}")


@pytest.fixture
def server(database_url: URL, database_name: str) -> Server:
    return Server(database_url, database_name)


@pytest.fixture
def idle(make_bus: MakeBus, server: Server, recorder: Recorder) -> PersistentBus:
    """A node that has nothing to do, and whose next poll is far away."""
    bus = make_bus(poll_interval_seconds=MINUTES)
    bus.subscribe(Order, recorder)
    bus.start()
    asleep(bus, server)
    return bus


def asleep(bus: PersistentBus, server: Server) -> int:
    """Wait until a node sleeps, and has looked since it does; returns its session."""
    session = server.sleeper()
    loop = lifecycle_of(bus).claim_loop
    eventually(lambda: loop._next_turn_at - loop._clock.monotonic() > 1.0, "the node has looked")
    return session


@dataclass
class Sleeper:
    """One that sleeps on a channel."""

    watch: Watch
    heard: queue.Queue[Heard]

    def hears(self) -> Heard:
        """Wait for a hint."""
        return self.heard.get(timeout=BOUND_SECONDS)


@contextmanager
def sleeping(
    url: URL,
    *,
    looks_often: Callable[[], bool] = lambda: False,
    clock: Clock | None = None,
    bell: Bell | None = None,
) -> Iterator[Sleeper]:
    """Sleep in another thread, as an idle process does."""
    database, heard = Database(url), queue.Queue[Heard]()
    watch = Watch(CHANNEL, (clock or ManualClock()).monotonic, looks_often, bell or Bell())

    def listen() -> None:
        with closing(database.dialect.commits_of_others(database.engine, watch)) as hints:
            for hint in hints:
                heard.put(hint)

    thread = threading.Thread(target=listen)
    thread.start()
    try:
        yield Sleeper(watch, heard)
    finally:
        watch.bell.ring()
        thread.join(BOUND_SECONDS)
        watch.bell.close()
        database.close()
    assert not thread.is_alive()


def ring(url: URL) -> None:
    """Wake those who sleep on the channel; returns when all were woken."""
    with closing(Database(url)) as database:
        notifier = database.dialect.notifier(database.engine, CHANNEL)
        assert notifier is not None
        with closing(notifier):
            assert notifier.notify(["any"])


@contextmanager
def running(server: Server, url: URL, statement: str) -> Iterator[int]:
    """A session of an application that runs a statement; yields its number."""
    engine = create_engine(url, poolclass=NullPool)

    def run() -> None:
        with suppress(DBAPIError), engine.connect() as connection:
            connection.exec_driver_sql(statement)

    thread = threading.Thread(target=run)
    thread.start()
    session = server.sleeper(statement)
    try:
        yield session
    finally:
        server.kill(session)
        thread.join(BOUND_SECONDS)


# -- who wakes -------------------------------------------------------------------------------------


def test_a_post_of_another_process_wakes_a_node(
    idle: PersistentBus, make_bus: MakeBus, server: Server, recorder: Recorder
) -> None:
    poster = make_bus()
    for number in range(1, 4):
        poster.post(Order(number))
        recorder.wait(number)
        asleep(idle, server)


def test_a_post_that_any_node_may_run_wakes_a_node(
    idle: PersistentBus, make_bus: MakeBus, recorder: Recorder
) -> None:
    poster = make_bus(mode=Mode.POLLING, poll_interval_seconds=MINUTES)
    poster.start()
    poster.post(Order(1))
    recorder.wait(1)


@pytest.mark.parametrize("how", ["core", "session", "autocommit", "raw autocommit"])
def test_a_post_in_a_transaction_wakes_a_node_when_it_has_ended(
    idle: PersistentBus, make_bus: MakeBus, engine: Engine, recorder: Recorder, how: str
) -> None:
    poster = make_bus()
    if how == "core":
        with engine.begin() as connection:
            poster.post(Order(1), connection=connection)
    elif how == "session":
        with Session(engine) as session, session.begin():
            poster.post(Order(1), connection=session)
    elif how == "autocommit":
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            poster.post(Order(1), connection=connection)
    else:
        with closing(engine.raw_connection()) as raw:
            driver: Any = raw.driver_connection
            driver.autocommit(True)
            poster.post(Order(1), connection=driver)
    recorder.wait(1)


def test_a_transaction_that_stays_open_wakes_nobody_and_holds_nothing_up(
    idle: PersistentBus, make_bus: MakeBus, engine: Engine, recorder: Recorder
) -> None:
    poster = make_bus()
    with engine.begin() as connection:
        poster.post(Order(1), connection=connection)
        assert lifecycle_of(poster).hints.told == 0
        poster.post(Order(2))
        assert recorder.wait(1) == [Order(2)]
    recorder.wait(2)


def test_a_transaction_that_ends_after_a_close_leaves_no_thread_and_no_session(
    make_bus: MakeBus, engine: Engine
) -> None:
    """Its entry is left to the poll of a node."""
    poster = make_bus()
    with engine.begin() as connection:
        poster.post(Order(1), connection=connection)
        poster.close()
    hints = lifecycle_of(poster).hints
    assert not hints.running
    assert hints.notifier is None
    assert f"{BusConfig().table}-notify" not in {one.name for one in threading.enumerate()}


def test_nodes_of_one_process_sleep_each_by_itself(
    idle: PersistentBus, make_bus: MakeBus, server: Server, recorder: Recorder
) -> None:
    other = make_bus(poll_interval_seconds=MINUTES)
    held = Recorder()
    other.subscribe(Order, held)
    other.start()
    eventually(lambda: len(server.sleepers()) == 2, "both sleep")
    make_bus().post(Order(1))
    eventually(lambda: recorder.calls + held.calls, "one of them runs it")


def test_an_insert_of_another_process_wakes_a_claim(database_url: URL, server: Server) -> None:
    with (
        closing(WorkQueue(database_url, poll_seconds=MINUTES)) as worker,
        closing(WorkQueue(database_url)) as other,
        ThreadPoolExecutor(1) as pool,
    ):
        claim = pool.submit(worker.claim, "a")
        server.sleeper(SLEEP.replace(CHANNEL, channel("work_tasks")))
        task = other.insert("a")
        assert claim.result(BOUND_SECONDS).id == task.id


# -- who is left alone -----------------------------------------------------------------------------


def test_nobody_elses_session_is_ended(
    database_url: URL, database_name: str, new_database: NewDatabase, server: Server
) -> None:
    """Neither another statement of the same user, nor a sleeper of another database or channel."""
    other = new_database("other", migrated=False)
    longer, alike, mixed = SLEEP.replace("(", "(1"), f"{SLEEP}_too", "SELECT SLEEP(31), 'mine'"
    with ExitStack() as stack:
        before = stack.enter_context(running(server, database_url, longer))
        far = stack.enter_context(asleep_on(other, database_name))
        named = stack.enter_context(running(server, database_url, alike))
        mine = stack.enter_context(asleep_on(database_url, database_name))
        after = stack.enter_context(running(server, database_url, mixed))

        ring(database_url)

        assert mine.hears()
        assert far.heard.empty()
        assert Server(other, database_name).sleepers()
        assert server.sleepers(longer) == {before}
        assert server.sleepers(alike) == {named}
        assert server.sleepers(mixed) == {after}


def test_a_database_whose_name_differs_in_case_alone_is_another(
    database_url: URL, database_name: str, server: Server
) -> None:
    upper = database_url.set(database=str(database_url.database).upper())
    server.run(f"CREATE DATABASE {upper.database}")
    try:
        with asleep_on(upper, database_name) as far, asleep_on(database_url, database_name) as mine:
            ring(database_url)
            assert mine.hears()
            assert far.heard.empty()
    finally:
        server.run(f"DROP DATABASE {upper.database}")


@contextmanager
def asleep_on(url: URL, database_name: str) -> Iterator[Sleeper]:
    """One that sleeps, and has heard its first hint."""
    with sleeping(url) as sleeper:
        sleeper.hears()
        Server(url, database_name).sleeper()
        yield sleeper


@pytest.fixture
def user(database_url: URL, server: Server) -> Iterator[Callable[..., URL]]:
    """Makes users who may read and write the test's tables, and no more."""
    made = list[str]()

    def make(*privileges: str) -> URL:
        name = f"{database_url.database}_{len(made)}"[-32:]
        made.append(name)
        server.run(f"CREATE USER '{name}'@'%' IDENTIFIED BY 'sticky'")
        server.run(
            f"GRANT SELECT, INSERT, UPDATE, DELETE ON {database_url.database}.* TO '{name}'@'%'"
        )
        for privilege in privileges:
            server.run(f"GRANT {privilege} ON *.* TO '{name}'@'%'")
        return database_url.set(username=name, password="sticky")

    yield make
    for name in made:
        server.run(f"DROP USER '{name}'@'%'")


def test_a_user_needs_no_privilege_to_wake_its_own_sessions(user: Callable[..., URL]) -> None:
    url = user()
    with sleeping(url) as sleeper:
        sleeper.hears()
        ring(url)
        sleeper.hears()


def test_with_the_privileges_of_an_administrator_a_user_wakes_sessions_of_others(
    user: Callable[..., URL], database_url: URL, database_name: str
) -> None:
    ends = "CONNECTION ADMIN" if database_name == "mariadb" else "CONNECTION_ADMIN"
    with sleeping(user()) as sleeper:
        sleeper.hears()
        ring(user("PROCESS", ends))
        sleeper.hears()


@pytest.mark.parametrize("privileges", [(), ("PROCESS",)])
def test_a_user_who_may_not_end_the_sleep_of_another_leaves_its_entry_to_the_poll(  # noqa: PLR0917
    idle: PersistentBus,
    make_bus: MakeBus,
    user: Callable[..., URL],
    recorder: Recorder,
    server: Server,
    caplog: pytest.LogCaptureFixture,
    privileges: tuple[str, ...],
) -> None:
    [sleeper] = server.sleepers()
    poster = make_bus(database=user(*privileges))
    poster.post(Order(1))
    hints = lifecycle_of(poster).hints
    eventually(lambda: hints.notifier is not None and not hints.told, "the hint is sent")
    poster.close()
    assert server.sleepers() == {sleeper}
    lifecycle_of(idle).claimer.look()  # as a poll does
    recorder.wait(1)
    assert not caplog.records


# -- how long --------------------------------------------------------------------------------------


def test_the_sleep_of_a_stopped_node_is_not_waited_for(
    make_bus: MakeBus, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sleepers, "SLEEP_SECONDS", 3600)
    bus = make_bus(poll_interval_seconds=MINUTES)
    bus.start()
    server.sleeper(SLEEP.replace("30", "3600"))
    assert elsewhere(bus.stop)
    eventually(lambda: not server.sleepers(SLEEP.replace("30", "3600")), "the server ends it, too")


def test_one_who_has_slept_its_time_sleeps_on_and_is_woken(
    database_url: URL, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends, woken = list[bool | None](), sleepers._woken

    def counted(*arguments: Any) -> bool | None:
        ends.append(woken(*arguments))
        return ends[-1]

    monkeypatch.setattr(sleepers, "SLEEP_SECONDS", 1)
    monkeypatch.setattr(sleepers, "_woken", counted)
    with sleeping(database_url) as sleeper:
        for _ in range(3):
            sleeper.hears()  # others may have committed between two sleeps
        assert ends == [False, False]
        server.sleeper(SLEEP.replace("30", "1"))
        ring(database_url)
        eventually(lambda: any(ends), "it is woken")


def test_a_sleep_may_last_longer_than_a_statement(database_url: URL) -> None:
    database = Database(database_url, statement_timeout_seconds=1.0)
    assert isinstance(database.dialect, MySQL)
    driver = sleepers._session(database.engine, f"{database.dialect._statement_limit} = 0")
    with closing(database), closing(driver), driver.cursor() as cursor:
        cursor.execute("SELECT SLEEP(1.5)")
        assert cursor.fetchall() == ((0,),)


def test_a_process_that_looks_often_does_not_sleep(database_url: URL, server: Server) -> None:
    often = threading.Event()
    asked = threading.Event()

    def looks_often() -> bool:
        asked.set()
        return often.is_set()

    with sleeping(database_url, looks_often=looks_often) as sleeper:
        sleeper.hears()
        server.sleeper()
        often.set()
        ring(database_url)
        sleeper.hears()
        asked.clear()
        assert asked.wait(BOUND_SECONDS)
        assert not server.sleepers()
        assert sleeper.heard.empty()
        often.clear()
        sleeper.hears()
        server.sleeper()


class _Rests(Bell):
    """A bell that tells how long its waiter would have waited."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = queue.Queue[float]()

    def wait(self, seconds: float) -> None:
        self.seconds.put(seconds)


def test_rests_grow_while_others_take_what_is_posted_until_nobody_posts_for_long(
    database_url: URL, server: Server
) -> None:
    clock, rests = ManualClock(), _Rests()
    with sleeping(database_url, clock=clock, bell=rests) as sleeper:
        sleeper.hears()
        for rest in (0.1, 0.2, 0.4, 0.8, 1.0, 1.0):
            server.sleeper()
            ring(database_url)
            assert rests.seconds.get(timeout=BOUND_SECONDS) == rest
        server.sleeper()
        clock.advance(seconds=2.0)
        ring(database_url)
        assert rests.seconds.get(timeout=BOUND_SECONDS) == REST_SECONDS


def test_the_first_hint_asks_for_a_look_that_begins_after_the_sleep_was_sent(
    database_url: URL, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One from before may have missed what was committed while nobody slept."""
    clock, sent = ManualClock(), list[float]()
    name = "_execute_command"
    execute = getattr(Connection, name)

    def executed(connection: Any, command: int, statement: Any) -> None:
        execute(connection, command, statement)
        if statement == SLEEP:
            clock.advance(seconds=1.0)
            sent.append(clock.monotonic())

    monkeypatch.setattr(Connection, name, executed)
    with sleeping(database_url, clock=clock) as sleeper:
        assert [sleeper.hears().at] == sent


# -- the sender ------------------------------------------------------------------------------------


@pytest.fixture
def told(make_bus: MakeBus) -> tuple[HintSender, ManualClock]:
    """A sender whose thread is the test."""
    clock = ManualClock()
    hints = lifecycle_of(make_bus(clock=clock)).hints
    hints.running = True
    return hints, clock


def test_the_thread_sends_what_was_told_since_the_last_hint(
    told: tuple[HintSender, ManualClock],
) -> None:
    hints, clock = told
    hints.tell()
    assert hints.told == 1
    assert hints.turn() == IDLE_SECONDS
    for _ in range(1000):
        hints.tell()
    assert hints.turn() == pytest.approx(WAKE_SECONDS)
    assert hints.told == 1000
    clock.advance(seconds=WAKE_SECONDS)
    assert hints.turn() == IDLE_SECONDS
    assert hints.told == 0


def test_a_hint_without_sleepers_is_one_statement(
    told: tuple[HintSender, ManualClock], server: Server
) -> None:
    hints, clock = told
    hints.tell()
    hints.turn()
    driver = notifier_of(hints)._driver
    before = _questions(driver)
    clock.advance(seconds=1.0)
    hints.tell()
    assert hints.turn() == IDLE_SECONDS
    assert _questions(driver) == before + 2  # the hint and this question


def notifier_of(hints: HintSender) -> SleepersNotifier:
    assert isinstance(hints.notifier, SleepersNotifier)
    return hints.notifier


def _questions(driver: Any) -> int:
    with driver.cursor() as cursor:
        cursor.execute("SHOW SESSION STATUS LIKE 'Questions'")
        return int(cursor.fetchone()[1])


def test_a_lost_session_is_replaced_before_the_next_hint(
    told: tuple[HintSender, ManualClock], database_url: URL, server: Server
) -> None:
    hints, clock = told
    hints.tell()
    hints.turn()
    lost = notifier_of(hints)
    server.kill(lost._driver.thread_id())
    eventually(lambda: not lost.is_open, "the session has ended")
    with sleeping(database_url) as sleeper:
        sleeper.hears()
        server.sleeper()
        clock.advance(seconds=WAKE_SECONDS)
        hints.tell()
        assert hints.turn() == IDLE_SECONDS
        assert hints.notifier is not lost
        sleeper.hears()


def test_a_session_that_is_lost_by_a_hint_is_replaced_a_second_later(
    told: tuple[HintSender, ManualClock], monkeypatch: pytest.MonkeyPatch
) -> None:
    hints, clock = told
    hints.tell()
    hints.turn()
    clock.advance(seconds=WAKE_SECONDS)
    notifier = notifier_of(hints)
    notifier._first = f"KILL {notifier._driver.thread_id()} #%s"
    notify = notifier.notify

    def lose(payloads: Collection[str]) -> bool:
        sent = notify(payloads)
        eventually(lambda: not notifier.is_open, "the session has ended")
        return sent

    monkeypatch.setattr(notifier, "notify", lose)
    hints.tell()
    assert hints.turn() == IDLE_SECONDS
    hints.tell()
    assert hints.turn() == pytest.approx(REOPEN_SECONDS)


# -- what breaks -----------------------------------------------------------------------------------


def test_a_node_whose_sleeper_was_ended_sleeps_again(
    idle: PersistentBus,
    make_bus: MakeBus,
    server: Server,
    recorder: Recorder,
    caplog: pytest.LogCaptureFixture,
) -> None:
    for _ in range(2):
        ended = {server.sleeper()}
        server.kill(min(ended))
        eventually(partial(_others, server, ended), "another session sleeps")
    make_bus().post(Order(1))
    recorder.wait(1)
    warnings = [one for one in caplog.records if "hints_interrupted" in one.getMessage()]
    assert len(warnings) == 1


def _others(server: Server, known: set[int]) -> set[int]:
    return server.sleepers() - known


def test_who_is_refused_asks_again_ever_more_rarely_and_one_warning_tells(
    make_bus: MakeBus, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sleepers, "_sleep", lambda *_: "SELECT SLEEP() FROM nowhere")
    pauses = queue.Queue[float]()

    def wait(bell: Bell, seconds: float) -> None:
        pauses.put(seconds)
        bell._rung.wait(0.01)

    monkeypatch.setattr(Bell, "wait", wait)
    bus = make_bus(clock=ManualClock())
    bus.start()
    seen = [pauses.get(timeout=BOUND_SECONDS) for _ in range(6)]
    assert seen == [2.0, 4.0, 8.0, 10.0, 10.0, 10.0]
    warnings = [one for one in caplog.records if "hints_interrupted" in one.getMessage()]
    assert len(warnings) == 1


def test_a_server_that_refuses_to_sleep_leaves_entries_to_the_poll(
    make_bus: MakeBus,
    recorder: Recorder,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(sleepers, "_sleep", lambda *_: "SELECT SLEEP() FROM nowhere")
    bus = make_bus(poll_interval_seconds=0.05)
    bus.subscribe(Order, recorder)
    bus.start()
    eventually(lambda: "hints_interrupted" in caplog.text, "the refusal")
    make_bus().post(Order(1))
    recorder.wait(1)


@pytest.mark.slow
def test_a_node_sleeps_again_after_the_server_has_restarted(
    database_name: str, recorder: Recorder
) -> None:
    with database_servers(which=[database_name]) as servers:
        url = make_url(servers[database_name]).set(database="stickybus")
        admin = Server(url.set(database="mysql"), database_name)
        admin.run("CREATE DATABASE stickybus")
        schema.create(url)
        settings = config_of(BusConfig, {"poll_interval_seconds": MINUTES, "handler_threads": 2})
        with closing(PersistentBus(url, settings)) as node, closing(PersistentBus(url)) as poster:
            node.subscribe(Order, recorder)
            node.start()
            asleep(node, Server(url, database_name))
            poster.post(Order(1))
            recorder.wait(1)
            servers.server(database_name).restart()
            asleep(node, Server(url, database_name))
            eventually(lambda: _posts(poster, Order(2)), "the poster reaches the server")
            recorder.wait(2)


def _posts(bus: PersistentBus, order: Order) -> bool:
    with suppress(DBAPIError):
        bus.post(order)
        return True
    return False
