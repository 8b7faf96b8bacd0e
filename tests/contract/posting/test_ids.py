"""The ids of posts, whatever becomes of the post."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import nullcontext

import pytest
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from bus.persistent import PersistentBus
from queue_core.errors import (
    CommitUnknownError,
)
from queue_core.model.posting import Posting
from queue_core.model.states import State
from queue_core.storage import reserved_ids
from sql.writer_lock import WriterLock
from tests import requirements as needs
from tests.contract.conftest import MakeBus
from tests.contract.harness import (
    Order,
    Recorder,
    database_of,
    ended,
    engine_of,
    lifecycle_of,
    listening,
    lost_answers,
    statements_of,
)


@needs.server
def test_a_post_whose_commit_gave_no_answer_says_so_and_is_delivered(bus: PersistentBus) -> None:
    recorder = Recorder()
    bus.subscribe(Order, recorder)
    bus.start()
    with (
        lost_answers(database_of(bus), "INSERT INTO bus_events", committed=True),
        pytest.raises(CommitUnknownError, match="COMMIT gave no answer") as caught,
    ):
        bus.post(Order(1))
    assert "Nothing was written" not in str(caught.value)
    (entry,) = ended(bus)
    assert entry.processing_state is State.PROCESSED
    assert caught.value.record_ids == (entry.record_id,)
    assert recorder.events == [Order(1)]


@needs.gapless_ids
@pytest.mark.parametrize("entries", [1, 2])
@pytest.mark.parametrize("passing", [False, True], ids=["broken", "busy"])
def test_ids_of_a_post_that_was_rolled_back_are_held_for_the_post_that_has_them_next(
    make_bus: MakeBus, monkeypatch: pytest.MonkeyPatch, entries: int, *, passing: bool
) -> None:
    """SQLite gives them out again as soon as the write lock is free."""
    recorder = Recorder(hold=True)
    bus = make_bus(handler_threads=1)
    bus.subscribe(Order, recorder)
    bus.start()
    database, ledger = database_of(bus), lifecycle_of(bus).ledger
    first, failed, between = bus.post(Order(0)), list[str](), list[int]()
    recorder.wait()
    poster = threading.get_ident()  # the node's loops write as well
    lock = database.dialect.writer_lock

    class ThenAnother(WriterLock):
        def __init__(self) -> None:
            self.lock = lock()

        def begin(self) -> None:
            self.lock.begin()

        def end(self) -> None:
            self.lock.end()
            if failed and not between and threading.get_ident() == poster:
                between.append(0)
                between[:] = bus.post_many([Order(1)] * entries)

    def fail(_connection: object) -> None:
        if not failed and threading.get_ident() == poster:
            failed.append("commit")
            busy = sqlite3.OperationalError("database is locked" if passing else "disk I/O error")
            raise DBAPIError.instance("COMMIT", {}, busy, sqlite3.Error)

    monkeypatch.setattr(database.dialect, "writer_lock", ThenAnother)
    with (
        listening(database, commit=fail),
        nullcontext() if passing else pytest.raises(DBAPIError, match="I/O"),
    ):
        bus.post_many([Order(2)] * entries)

    held = {record_id for record_id, _ in ledger.held()}
    recorder.release()
    assert between[0] == first + 1
    assert held == set(range(first, first + 1 + entries * (1 + passing)))
    assert len(ended(bus, len(held))) == len(held)


def postings(*numbers: int, keyed: bool) -> list[Posting]:
    """Orders. If `keyed`, each has its number as its idempotency key."""
    return [Posting(event=Order(number), key=str(number) if keyed else None) for number in numbers]


@needs.ids_ahead
@pytest.mark.parametrize("keyed", [False, True], ids=["plain", "with keys"])
@pytest.mark.parametrize("entries", [1, 2])
def test_ids_taken_ahead_are_forgotten_when_the_server_was_another_one_meanwhile(
    make_bus: MakeBus, engine: Engine, entries: int, *, keyed: bool
) -> None:
    """A promoted standby that lags, or a restored backup, gives the same numbers out again."""
    here, recorder = make_bus(), Recorder()
    here.subscribe(Order, recorder)
    here.start()
    last = here.post_many(postings(*range(4), keyed=keyed))[-1]
    others = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    autocommit = create_engine(engine.url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
    with autocommit.connect() as connection:
        sequence = "pg_get_serial_sequence('bus_events', 'record_id')"
        connection.execute(text(f"SELECT setval({sequence}, {last})"))
        connection.execute(text(f"SELECT pg_terminate_backend(pid, 5000) {others}")).all()
        elsewhere = make_bus()
        taken = [elsewhere.post(Order(number)) for number in range(4, 8)]
    assert taken[0] == last + 1

    ids = here.post_many(postings(*range(8, 8 + entries), keyed=keyed))

    assert not {*ids} & {*taken}
    ended(here, 8 + entries)
    assert recorder.numbers() == list(range(8 + entries))
    assert len({entry.record_id for entry in here.history()}) == 8 + entries


@needs.ids_ahead
def test_ids_that_are_left_are_forgotten_if_the_next_ones_open_a_connection(
    bus: PersistentBus, engine: Engine
) -> None:
    """Nothing else of the process may have noticed the fail-over before."""
    ids = engine_of(bus).store.reserved_ids
    last = ids.take(3)[0][-1]
    others = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    autocommit = create_engine(engine.url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
    with autocommit.connect() as connection:
        connection.execute(text(f"SELECT pg_terminate_backend(pid, 5000) {others}")).all()
        newer = connection.execute(
            text("SELECT nextval(pg_get_serial_sequence('bus_events', 'record_id'))")
        ).scalar_one()
    taken, opened = ids.take(9)
    assert last < newer < min(taken)
    assert opened == database_of(bus).opened


@needs.ids_ahead
def test_posts_with_keys_take_ids_ahead(bus: PersistentBus) -> None:
    bus.post_many(postings(*range(4), keyed=True))
    with statements_of(database_of(bus)) as statements:
        ids = bus.post_many(postings(*range(2, 8), keyed=True))
    assert ids == sorted({*ids})
    assert [statement for statement in statements.texts if "nextval" in statement] == []


@needs.ids_ahead
def test_ids_taken_ahead_are_forgotten_after_a_while(
    bus: PersistentBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind a proxy, sessions may outlive what is behind it."""
    bus.subscribe(Order, Recorder())
    bus.start()
    database, posts, taken = database_of(bus), 1, [""]
    while taken:  # until one that was taken ahead is used: new connections make them of no use
        with statements_of(database) as statements:
            bus.post(Order(1))
        posts += 1
        taken = [statement for statement in statements.texts if "nextval" in statement]
    monkeypatch.setattr(reserved_ids, "LONGEST_KEPT_SECONDS", -1.0)
    with statements_of(database) as statements:
        bus.post(Order(2))
    assert len([statement for statement in statements.texts if "nextval" in statement]) == 1
    ended(bus, posts)
