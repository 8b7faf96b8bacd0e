"""More entries at once than a statement can name."""

from __future__ import annotations

import pytest
from sqlalchemy import Engine, text

from notifications.queue import NotificationQueue
from tests.contract.conftest import MakeService
from tests.contract.harness import Order, Recorder

DOUBLINGS = 16
MANY = 2**DOUBLINGS
"""More than PostgreSQL's protocol has parameters."""


def filled(make_service: MakeService, engine: Engine) -> NotificationQueue:
    """A queue with `MANY` notifications of one search key, which are not due."""
    queue = make_service().create_queue("s", "q", Recorder(), event_types=[Order])
    queue.schedule(Order(1), delay=3600.0, search_key1=7)
    with engine.connect() as connection:
        columns = list(connection.execute(text("SELECT * FROM notifications")).keys())
        names = ", ".join(name for name in columns if name != "record_id")
        for _ in range(DOUBLINGS):
            connection.execute(
                text(f"INSERT INTO notifications ({names}) SELECT {names} FROM notifications")
            )
        connection.commit()
    return queue


@pytest.mark.slow
def test_many_entries_are_removed_by_their_key_all_or_none(
    make_service: MakeService, engine: Engine
) -> None:
    queue = filled(make_service, engine)
    live, past = (text(f"SELECT count(*) FROM notifications{end}") for end in ("", "_history"))
    with engine.connect() as connection:
        assert queue.remove(search_key1=7, connection=connection) == MANY
        assert (connection.scalar(live), connection.scalar(past)) == (0, MANY)
        connection.rollback()
        assert (connection.scalar(live), connection.scalar(past)) == (MANY, 0)


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
