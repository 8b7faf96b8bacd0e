"""More entries at once than a statement can name."""

from __future__ import annotations

import threading

import pytest
from sqlalchemy import Engine, text

from tests.contract.conftest import MakeService
from tests.contract.harness import Order, Recorder, eventually

DOUBLINGS = 16
MANY = 2**DOUBLINGS
"""More than PostgreSQL's protocol has parameters."""


def multiply(engine: Engine) -> None:
    """Make `MANY` notifications of each that waits."""
    with engine.connect() as connection:
        columns = list(connection.execute(text("SELECT * FROM notifications")).keys())
        names = ", ".join(name for name in columns if name != "record_id")
        waiting = f"SELECT {names} FROM notifications WHERE processing_state = 'AVAILABLE'"
        for _ in range(DOUBLINGS):
            connection.execute(text(f"INSERT INTO notifications ({names}) {waiting}"))
        connection.commit()


@pytest.mark.slow
def test_many_entries_are_removed_by_their_key_all_or_none(
    make_service: MakeService, engine: Engine
) -> None:
    queue = make_service().create_queue("s", "q", Recorder(), event_types=[Order])
    queue.schedule(Order(1), delay=3600.0, search_key1=7)
    multiply(engine)
    live, past = (text(f"SELECT count(*) FROM notifications{end}") for end in ("", "_history"))
    with engine.connect() as connection:
        assert queue.remove(search_key1=7, connection=connection) == MANY
        assert (connection.scalar(live), connection.scalar(past)) == (0, MANY)
        connection.rollback()
        assert (connection.scalar(live), connection.scalar(past)) == (MANY, 0)


@pytest.mark.slow
def test_many_entries_of_a_limit_key_are_removed_while_one_runs(
    make_service: MakeService, engine: Engine
) -> None:
    seen, going_on = list[int](), threading.Event()

    def handle(order: Order) -> None:
        seen.append(order.number)
        if order.number == 1:
            going_on.wait(100)

    service = make_service()
    queue = service.create_queue("s", "q", handle, event_types=[Order]).start()
    queue.limit(per_key=1)
    service.start()
    queue.schedule(Order(1), delay=0.0, limit_key="k")
    eventually(lambda: seen == [1], "it runs, and has the only place")
    queue.schedule(Order(2), delay=3600.0, search_key1=7, limit_key="k")
    multiply(engine)

    assert queue.remove(search_key1=7) == MANY

    queue.schedule(Order(3), delay=0.0, limit_key="k")
    going_on.set()
    eventually(lambda: seen == [1, 3], "the next one has the place")


def test_entries_are_found_by_many_ids(make_service: MakeService) -> None:
    queue = make_service().create_queue("s", "q", Recorder(), event_types=[Order])
    ids = [queue.schedule(Order(number), delay=3600.0) for number in range(4)]
    none = range(10_000_000, 10_300_000)
    queue.remove(ids[3])

    assert [entry.record_id for entry in queue.find(record_ids=[*none, *ids, *ids])] == ids[:3]
    assert [
        entry.record_id for entry in queue.find(record_ids=[*ids, *none[:9000]], limit=2)
    ] == ids[:2]
    assert [entry.record_id for entry in queue.history(record_ids=[*none[:9000], *ids])] == ids[3:]
    assert queue.find(record_ids=[]) == []
