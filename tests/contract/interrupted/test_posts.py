"""Posts that an exception cuts off anywhere: the entry is not there, or it runs once."""

from __future__ import annotations

import random
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from types import CodeType
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, create_engine, event, func, select, text
from sqlalchemy.pool import NullPool

from queue_core.engine import QueueEngine
from queue_core.holding.ledger import Ledger
from queue_core.model.posting import Posting
from queue_core.posting.insertion import Insertion
from queue_core.posting.linked_insertion import LinkedInsertion
from queue_core.posting.posted_hand_over import PostedHandOver
from queue_core.posting.poster import Poster
from queue_core.running.handler_pool import HandlerPool
from queue_core.running.serial import SerialGate
from queue_core.runtime.lock import Lock
from queue_core.runtime.signal import Signal
from sql.database.kept_connections import KeptConnections
from sql.sqlite.writers import SQLiteWriterLock
from tests.contract.conftest import MakeBus, MakeService
from tests.contract.harness import Order, Recorder, engine_of, eventually
from tests.contract.interrupted.interrupts import Interrupt, Places, was_interrupted

pytestmark = pytest.mark.slow

SEED, SAMPLE = 22, 100
"""The number of instructions that are tried, anywhere in the library.

All lines of it are tried, and all instructions of its most critical functions: on SQLite by itself,
on the servers together (see `SHARES`).
"""
SHARES = {"sqlite": (0, 1), "postgresql": (0, 3), "mariadb": (1, 3), "mysql": (2, 3)}
"""The first place that is tried, and the steps to the next ones.

Each server tries other places than the others, whose round trips take long.
"""
CRITICAL = [
    function.__code__
    for function in (
        *(
            KeptConnections.run,
            KeptConnections._keep,
            KeptConnections._take,
            KeptConnections._take_kept,
        ),
        *(
            SQLiteWriterLock.begin,
            SQLiteWriterLock.end,
            Lock.__enter__,
            Ledger.add,
            Ledger.wait,
            PostedHandOver.submit,
        ),
        *(Poster.post, Poster._write, Poster._post_and_commit, Poster._post_inside),
        *(Poster._post_linked, LinkedInsertion.write, LinkedInsertion._insert),
        *(Insertion.commit, Insertion._hold),
        *(HandlerPool.submit, SerialGate.expect, Signal.set),
    )
]
CHECKED_EACH = {"sqlite": 1, "postgresql": 50, "mariadb": 50, "mysql": 50}
"""The number of calls before a look at what they have left.

Servers keep open transactions until the last call.
"""
STEP = 10
"""Between the numbers of the first orders of two calls."""
TRANSACTIONS = {
    "postgresql": (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND xact_start "
        "IS NOT NULL AND pid <> pg_backend_pid()"
    ),
    "mariadb": (
        "SELECT count(*) FROM information_schema.innodb_trx JOIN information_schema.processlist "
        "ON trx_mysql_thread_id = id WHERE db = database()"
    ),
    # Its list of processes fails while any of them runs a statement with characters past utf8mb3.
    "mysql": (
        "SELECT count(*) FROM information_schema.innodb_trx JOIN performance_schema.threads "
        "ON trx_mysql_thread_id = processlist_id WHERE processlist_db = database()"
    ),
}


@dataclass
class Posts:
    """A way to post some orders, and what runs them."""

    post: Callable[[list[Order], Any], Any]
    orders: int
    engine: QueueEngine
    recorder: Recorder

    def of(self, call: int) -> list[Order]:
        """The orders of one call."""
        return [Order(call * STEP + place) for place in range(self.orders)]

    def handled(self) -> Counter[int]:
        """By call, how many of its orders were handled."""
        return Counter(order.number // STEP for order in list(self.recorder.events))


@pytest.fixture(
    params=[
        *("post", "post_many", "post_many-ordered", "post_many-linked"),
        *("schedule", "schedule_many"),
    ]
)
def posts(
    request: pytest.FixtureRequest,
    make_bus: MakeBus,
    make_service: MakeService,
    database_name: str,
) -> Posts:
    """Each way, to a serial handler of a node that looks and sweeps by time rarely."""
    recorder, many = Recorder(), "many" in request.param
    how = request.param.partition("-")[2]
    # A server may commit what was sent to it some time after the exception.
    seconds = 60.0 if database_name == "sqlite" else 1.0
    rarely: dict[str, Any] = {"poll_interval_seconds": seconds, "lease_seconds": 60.0}
    if request.param.startswith("schedule"):
        service = make_service(**rarely)
        queue = service.create_queue(
            "shop", "orders", recorder, event_types=[Order], serial=True
        ).start()
        now = engine_of(service).store.clock.now
        service.start()

        def schedule(orders: list[Order], connection: Any) -> Any:
            if not many:
                return queue.schedule(orders[0], at=now(), connection=connection)
            postings = [Posting(event=order) for order in orders]
            return queue.schedule_many(postings, connection=connection)

        return Posts(schedule, 3 if many else 1, engine_of(service), recorder)
    bus = make_bus(**rarely)
    bus.subscribe(Order, recorder, serial=True)
    bus.start()
    group = bus.open_group() if how == "linked" else None

    def post(orders: list[Order], connection: Any) -> Any:
        if not many:
            return bus.post(orders[0], connection=connection)
        postings: list[Any] = [*orders]
        if how == "ordered":
            postings = [Posting(event=order, order_key="k") for order in orders]
        elif how == "linked":
            postings = [
                Posting(event=order, key=str(order.number), group=group, limit_key="l")
                for order in orders
            ]
        return bus.post_many(postings, connection=connection)

    return Posts(post, 3 if many else 1, engine_of(bus), recorder)


def check_that_nobody_keeps_a_transaction(engine: QueueEngine) -> None:
    url = engine.database.url
    if url.get_backend_name() == "sqlite":
        with closing(sqlite3.connect(str(url.database), timeout=0, isolation_level=None)) as other:

            def free() -> bool:
                with suppress(sqlite3.OperationalError):
                    other.execute("BEGIN IMMEDIATE")
                    other.execute("ROLLBACK")
                    return True
                return False

            eventually(free, "the write lock is free")
        return
    with create_engine(
        url, poolclass=NullPool, isolation_level="AUTOCOMMIT"
    ).connect() as other_session:
        count, pace = text(TRANSACTIONS[engine.database.dialect.name]), threading.Event()

        def none() -> bool:
            pace.wait(0.15)  # InnoDB's answer is the last one until nobody has asked for 0.1 s
            return other_session.execute(count).scalar() == 0

        eventually(none, "no transaction is open")


def rows_of(engine: QueueEngine, *, past: bool) -> int:
    """How many entries are in the main table, or in history.

    Counted there: after each place, reading all of them would take the most of the time.
    """
    table = engine.store.statements.past if past else engine.store.statements.main
    with engine.database.read() as connection:
        return connection.scalars(select(func.count()).select_from(table)).one()


def check_that_all_ran(posts: Posts, returned: set[int], called: int) -> None:
    """What has returned ran once; and of what has raised, all orders or none."""
    engine = posts.engine

    def at_rest() -> bool:
        # In memory first: the last outcome is written before the ledger lets go of its entry.
        return not len(engine.lifecycle.ledger) and rows_of(engine, past=False) == 0

    eventually(at_rest, "all has ended, and nothing is held")
    handled = posts.handled()
    assert returned <= handled.keys() <= set(range(called))
    assert set(handled.values()) <= {posts.orders}
    assert rows_of(engine, past=True) == handled.total()


class Interrupted:
    """Calls of `posts`, each interrupted at another place."""

    def __init__(self, posts: Posts, places: Places, among: Collection[CodeType] = ()) -> None:
        self.posts = posts
        self.returned = set[int]()
        self.calls = self.interrupted = 0
        self._last: BaseException | None = None
        self._new = partial(Interrupt, places, among=among)
        self._all = places is Places.LINES or bool(among)

    def run(
        self, check: Callable[[int], None], around: Callable[[], AbstractContextManager[Any]]
    ) -> None:
        """Post orders for each place, on the connection that `around` gives.

        `check` is called after a post that has failed.
        """
        for _ in range(4):  # until connections are open, and statements known
            self._whole(around)
        # Of three calls the shortest: one that waits for a lock passes more places.
        passed = min(self._whole(around) for _ in range(3))
        first, step = SHARES[self.posts.engine.database.dialect.name]
        places: Sequence[int] = range(first, passed, step)
        if not self._all and passed > SAMPLE:
            places = sorted(random.Random(SEED).sample(range(passed), SAMPLE))  # noqa: S311
        for place in places:
            self._one(place, check, around)
        assert self.interrupted > len(places) / 2

    def _whole(self, around: Callable[[], AbstractContextManager[Any]]) -> int:
        """The number of places that a call passes which nothing interrupts."""
        whole = self._new()
        with around() as connection:
            whole.during(partial(self.posts.post, self._orders(returns=True), connection))
        return whole.passed

    def _orders(self, *, returns: bool) -> list[Order]:
        if returns:
            self.returned.add(self.calls)
        self.calls += 1
        return self.posts.of(self.calls - 1)

    def _one(
        self,
        place: int,
        check: Callable[[int], None],
        around: Callable[[], AbstractContextManager[Any]],
    ) -> None:
        interrupt = self._new(place)
        try:
            with around() as connection:
                interrupt.during(partial(self.posts.post, self._orders(returns=False), connection))
            self.returned.add(self.calls - 1)
        except BaseException as error:
            if not was_interrupted(error):
                raise
            self.interrupted += 1
            if around is nullcontext:
                self._last = error  # with all that its frames refer to
            try:
                check(self.calls)
            except BaseException as failure:
                failure.add_note(f"place {place}: {interrupt.where}")
                raise


EACH = {
    "lines": (Places.LINES, ()),
    "instructions": (Places.INSTRUCTIONS, ()),
    "critical": (Places.INSTRUCTIONS, CRITICAL),
}
each_place = pytest.mark.parametrize(("places", "among"), list(EACH.values()), ids=list(EACH))
lets_generators_go = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@lets_generators_go
@each_place
def test_a_post_that_is_interrupted_anywhere_is_not_there_or_runs_once(
    posts: Posts, places: Places, among: Collection[CodeType]
) -> None:
    interrupted = Interrupted(posts, places, among)

    def check(calls: int) -> None:
        if calls % CHECKED_EACH[posts.engine.database.dialect.name] == 0:
            check_that_nobody_keeps_a_transaction(posts.engine)
            check_that_all_ran(posts, interrupted.returned, calls)

    interrupted.run(check, nullcontext)
    check_that_nobody_keeps_a_transaction(posts.engine)
    check_that_all_ran(posts, interrupted.returned, interrupted.calls)


@lets_generators_go
@each_place
def test_a_post_that_is_interrupted_in_a_callers_transaction_is_rolled_back_with_it(
    posts: Posts, engine: Engine, places: Places, among: Collection[CodeType]
) -> None:
    interrupted = Interrupted(posts, places, among)

    if engine.dialect.name == "sqlite":
        # Closed, it would stay open while a traceback refers to a cursor. The application's
        # connections are its own matter.
        event.listen(engine, "invalidate", lambda driver, *_: driver.rollback())

    @contextmanager
    def transaction() -> Iterator[Connection]:
        with engine.connect() as connection:
            try:
                yield connection
            except BaseException:
                connection.invalidate()
                raise
            connection.commit()

    interrupted.run(lambda _calls: None, transaction)
    check_that_nobody_keeps_a_transaction(posts.engine)
    check_that_all_ran(posts, interrupted.returned, interrupted.calls)
    assert posts.handled().keys() == interrupted.returned
