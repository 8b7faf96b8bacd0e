"""The locks of a caller's open transaction, in its database's default isolation.

In REPEATABLE READ, MariaDB and MySQL lock the gap in which a write finds nothing, and all rows that
a statement walks over. New ids go behind the last row: whoever locks that gap holds up every post.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import OperationalError

import stickybus
from bus.memory import InMemoryBus
from bus.persistent import PersistentBus
from notifications.queue import NotificationQueue
from notifications.service import NotificationService
from queue_core.errors import EntryNotChangeableError, EntryNotFoundError, GroupNotFoundError
from queue_core.model.posting import Posting
from queue_core.model.states import State
from tests import requirements as needs
from tests.contract.conftest import MakeBus, MakeService
from tests.contract.harness import BOUND_SECONDS, Order, Recorder, ended, states

KEY, OTHER_KEY = 7, 8
PAST = 2**40
"""An id past the last row's."""


class Place:
    """A bus, and a queue with a few notifications.

    Their statements wait for a lock as long as a test does. A server also ends transactions that
    rest as long, as a thread's may for some seconds on a busy machine.
    """

    def __init__(self, make_bus: MakeBus, make_service: MakeService) -> None:
        bound: dict[str, Any] = {"statement_timeout_seconds": BOUND_SECONDS}
        self.bus: PersistentBus = make_bus(**bound)
        self.service: NotificationService = make_service(**bound)
        self.queue: NotificationQueue = self.service.create_queue(
            "shop", "bills", Recorder(), event_types=[Order]
        )
        self._numbers = itertools.count(1)

    def schedule(self, key: int = OTHER_KEY) -> int:
        return self.queue.schedule(Order(next(self._numbers)), delay=3600, search_key2=key)

    def removed(self) -> int:
        """A notification that ended, in a session of its own."""
        record_id = self.schedule()
        self.queue.remove(record_id)
        return record_id

    def others_post(self) -> None:
        """In sessions of their own; an error tells that they had to wait."""
        self.bus.post(Order(1))
        self.bus.post_many([Order(2), Order(3)])
        self.schedule()
        self.queue.schedule_many([Posting(event=Order(4)), Posting(event=Order(5))])


Call = Callable[[Place, Connection, int], object]
"""A call on a connection; the last argument is the id of a notification that is there."""

_BUS: dict[str, list[Call]] = {
    "post": [lambda place, connection, _: place.bus.post(Order(1), connection=connection)],
    "post_many": [
        lambda place, connection, _: place.bus.post_many([Order(1)], connection=connection),
        lambda place, connection, _: place.bus.post(Order(1), order_key="k", connection=connection),
        lambda place, connection, _: place.bus.post_many(
            map(Order, range(50)), connection=connection
        ),
        lambda place, connection, _: place.bus.post(
            Order(1), group=place.bus.open_group(), connection=connection
        ),
        lambda place, connection, _: place.bus.post(Order(1), group=PAST, connection=connection),
    ],
    "release": [
        lambda place, connection, _: place.bus.release(PAST, connection=connection),
        lambda place, connection, _: place.bus.release(
            place.bus.post(Order(1), delay=3600, connection=connection), connection=connection
        ),
    ],
    "find": [
        lambda place, connection, _: place.bus.find(connection=connection),
        lambda place, connection, _: place.bus.find(record_ids=[PAST], connection=connection),
        lambda place, connection, _: place.bus.find(search_key2=KEY, connection=connection),
    ],
    "history": [
        lambda place, connection, _: place.bus.history(connection=connection),
        lambda place, connection, _: place.bus.history(record_ids=[PAST], connection=connection),
    ],
    "ready_count": [lambda place, connection, _: place.bus.ready_count(connection=connection)],
    "retry": [lambda place, connection, _: place.bus.retry(PAST, connection=connection)],
    "discard": [lambda place, connection, _: place.bus.discard(PAST, connection=connection)],
    "key_status": [
        lambda place, connection, _: place.bus.key_status("k", connection=connection),
    ],
    "release_key": [
        lambda place, connection, _: place.bus.release_key("k", connection=connection),
    ],
    "open_group": [
        lambda place, connection, _: place.bus.open_group(
            on_finished=Order(1), connection=connection
        ),
    ],
    "seal": [
        lambda place, connection, _: place.bus.seal(PAST, connection=connection),
        lambda place, connection, _: place.bus.seal(
            place.bus.open_group(on_finished=Order(1)), connection=connection
        ),
    ],
    "group_status": [
        lambda place, connection, _: place.bus.group_status(PAST, connection=connection),
    ],
    "held_keys": [lambda place, connection, _: place.bus.held_keys(connection=connection)],
    "open_circuits": [lambda place, connection, _: place.bus.open_circuits(connection=connection)],
    "size": [lambda place, connection, _: place.bus.size(connection=connection)],
    "explain": [lambda place, connection, _: place.bus.explain(PAST, connection=connection)],
    "pause": [lambda place, connection, _: place.bus.pause(connection=connection)],
    "resume": [lambda place, connection, _: place.bus.resume(connection=connection)],
    "pauses": [lambda place, connection, _: place.bus.pauses(connection=connection)],
}
_SERVICE: dict[str, list[Call]] = {
    "retry": [
        lambda place, connection, _: place.service.retry(place.removed(), connection=connection),
        lambda place, connection, _: place.service.retry(PAST, connection=connection),
    ],
    "release": [
        lambda place, connection, there: place.service.release(there, connection=connection),
        lambda place, connection, there: place.service.release(
            place.queue.schedule(Order(1), delay=3600, after=[there], connection=connection),
            connection=connection,
        ),
    ],
    "discard": [lambda place, connection, _: place.service.discard(PAST, connection=connection)],
}
_QUEUE: dict[str, list[Call]] = {
    "schedule": [
        lambda place, connection, _: place.queue.schedule(Order(1), delay=0, connection=connection)
    ],
    "schedule_many": [
        lambda place, connection, _: place.queue.schedule_many(
            [Posting(event=Order(1))] * 3, connection=connection
        )
    ],
    "update": [
        lambda place, connection, there: place.queue.update(
            there, search_key1=1, connection=connection
        ),
        lambda place, connection, _: place.queue.update(PAST, search_key1=1, connection=connection),
        lambda place, connection, _: _own(place, connection, place.queue.update, search_key1=1),
    ],
    "remove": [
        lambda place, connection, there: place.queue.remove(there, connection=connection),
        lambda place, connection, _: place.queue.remove(PAST, connection=connection),
        lambda place, connection, _: place.queue.remove(search_key2=KEY, connection=connection),
        lambda place, connection, _: place.queue.remove(search_key2=99, connection=connection),
        lambda place, connection, _: _own(place, connection, place.queue.remove),
    ],
    "find": [lambda place, connection, _: place.queue.find(connection=connection)],
    "history": [lambda place, connection, _: place.queue.history(connection=connection)],
    "ready_count": [lambda place, connection, _: place.queue.ready_count(connection=connection)],
    "key_status": [
        lambda place, connection, _: place.queue.key_status("k", connection=connection),
    ],
    "release_key": [
        lambda place, connection, _: place.queue.release_key("k", connection=connection),
    ],
    "open_group": [
        lambda place, connection, _: place.queue.open_group(
            on_finished=Order(1), connection=connection
        ),
    ],
    "seal": [
        lambda place, connection, _: place.queue.seal(PAST, connection=connection),
        lambda place, connection, _: place.queue.seal(
            place.queue.open_group(on_finished=Order(1)), connection=connection
        ),
    ],
    "group_status": [
        lambda place, connection, _: place.queue.group_status(PAST, connection=connection),
    ],
    "held_keys": [lambda place, connection, _: place.queue.held_keys(connection=connection)],
    "open_circuits": [
        lambda place, connection, _: place.queue.open_circuits(connection=connection)
    ],
    "size": [lambda place, connection, _: place.queue.size(connection=connection)],
    "explain": [lambda place, connection, _: place.queue.explain(PAST, connection=connection)],
    "pause": [lambda place, connection, _: place.queue.pause(connection=connection)],
    "resume": [lambda place, connection, _: place.queue.resume(connection=connection)],
    "pauses": [lambda place, connection, _: place.queue.pauses(connection=connection)],
    "recur": [
        lambda place, connection, _: place.queue.recur(
            "daily", Order(1), cron="@daily", connection=connection
        )
    ],
    "recurring": [lambda place, connection, _: place.queue.recurring(connection=connection)],
    "stop_recurring": [
        lambda place, connection, _: place.queue.stop_recurring("daily", connection=connection)
    ],
}
CALLS = {"PersistentBus": _BUS, "NotificationService": _SERVICE, "NotificationQueue": _QUEUE}


def _own(
    place: Place, connection: Connection, call: Callable[..., object], **values: Any
) -> object:
    """A call about an entry that the very transaction has posted."""
    record_id = place.queue.schedule(Order(1), delay=3600, connection=connection)
    return call(record_id, **values, connection=connection)


_CALLS = [
    pytest.param(several, id=f"{kind}.{name}")
    for kind, calls in CALLS.items()
    for name, several in calls.items()
]


def test_each_call_that_takes_a_connection_is_among_these() -> None:
    taking = {
        (kind, name.removesuffix("_async"))  # an awaitable twin is the same code
        for kind, public in ((name, getattr(stickybus, name)) for name in stickybus.__all__)
        if isinstance(public, type) and public is not InMemoryBus  # it has no tables
        for name, method in inspect.getmembers(public, inspect.isfunction)
        if "connection" in inspect.signature(method).parameters and not name.startswith("_")
    }
    here = {(kind, name) for kind, calls in CALLS.items() for name in calls}
    # `tests/contract/work_queue/test_locks.py` tries these.
    names = ("docs", "failed_tasks", "finished_tasks", "insert", "keep_history", "modify", "tasks")
    elsewhere = {("WorkQueue", name) for name in names}
    assert taking == here | elsewhere


@pytest.fixture
def place(make_bus: MakeBus, make_service: MakeService) -> Place:
    return Place(make_bus, make_service)


@needs.many_writers
@pytest.mark.parametrize("calls", _CALLS)
def test_a_caller_that_keeps_its_transaction_open_holds_up_no_post(
    place: Place, caller: Engine, calls: Sequence[Call]
) -> None:
    """Whether the call finds a row or not, in tables that are empty or hold a few rows."""
    for call, keys in itertools.product(calls, ((), (KEY,), (KEY, KEY, OTHER_KEY) * 3)):
        with caller.begin() as connection:
            connection.execute(text("DELETE FROM notifications"))
        ids = [place.schedule(key) for key in keys]
        with caller.connect() as connection:
            with suppress(EntryNotFoundError, GroupNotFoundError):
                call(place, connection, ids[0] if ids else PAST)
            place.others_post()
            connection.rollback()


@needs.gap_locks
@pytest.mark.parametrize(
    "change",
    [
        lambda queue, record_id, connection: queue.update(
            record_id, search_key1=1, connection=connection
        ),
        lambda queue, record_id, connection: queue.remove(record_id, connection=connection),
        lambda queue, _, connection: queue.remove(search_key2=KEY, connection=connection),
    ],
    ids=["update", "remove", "remove-by-key"],
)
def test_a_call_about_an_entry_that_is_only_in_its_snapshot_holds_up_no_post(
    place: Place, caller: Engine, change: Callable[[NotificationQueue, int, Connection], object]
) -> None:
    there = place.schedule(KEY)
    with caller.connect() as connection:
        assert connection.execute(text("SELECT record_id FROM notifications")).scalars().all() == [
            there
        ]
        place.queue.remove(there)
        # MariaDB 11.6 and later refuse the whole transaction, by default.
        with suppress(EntryNotChangeableError, OperationalError):
            change(place.queue, there, connection)
        place.others_post()
        connection.rollback()
    assert [entry.processing_state for entry in place.queue.history()] == [State.REMOVED]


@needs.many_writers
def test_outcomes_wait_for_no_caller_that_keeps_its_posts_open(
    make_bus: MakeBus, engine: Engine
) -> None:
    """Two of three rows are finished at once.

    A database might rather read the whole table, and wait for the third.
    """
    bus, recorder = (
        make_bus(handler_threads=8, statement_timeout_seconds=4 * BOUND_SECONDS),
        Recorder(hold=True),
    )
    bus.subscribe(Order, recorder)
    bus.start()
    with engine.connect() as connection:
        bus.post_many(map(Order, range(4)), connection=connection)
        bus.post_many(map(Order, range(8)))
        recorder.wait(8)
        recorder.release()
        assert states(ended(bus, 8)) == [State.PROCESSED] * 8
        connection.rollback()
