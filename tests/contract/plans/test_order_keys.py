"""The statements of order keys cost the same however many entries wait."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from sqlalchemy import Connection

from bus.persistent import PersistentBus
from queue_core.links.ordering import Ordering
from queue_core.model.lanes import ANY_NODE, WAITING_LANE
from sql.statements.ordered import OrderKey
from stickybus import Posting
from tests.contract.harness import Order, database_of, engine_of
from tests.contract.plans.cost import cost_of

SMALL, LARGE = 1_000, 40_000
NOW = datetime(2026, 1, 1, tzinfo=UTC)
INNODB = ("mysql", "mariadb")
KEY = OrderKey("bus_events", "bus", "mine")
AGAIN = 11
"""Runs on empty tables, until a driver has prepared a statement, and a server kept its plan."""


def work(ordering: Ordering, connection: Connection) -> None:
    """All that posts, ends and turns of a node do, for one key, and a scrape's look at the first.

    It leaves what it has found.
    """
    ordered, first = ordering.statements, -1
    ordering.enter(connection, [(KEY, first, ANY_NODE)], unstarted=True)
    ordered.first(connection, KEY)
    ordered.begin(connection, KEY, first)
    ordered.lock_head(connection, KEY)
    ordered.head(connection, KEY)
    ordered.lane(connection, KEY.table_name, first)
    ordered.give_lane(connection, KEY.table_name, first, WAITING_LANE, unstarted=True)
    ordered.unstarted(connection, KEY.table_name, 100)
    ordered.unstarted_in(connection, KEY, WAITING_LANE)
    ordered.started(connection, KEY)
    ordered.hold(connection, KEY, first, NOW)
    ordered.held_counts(connection, KEY.table_name, limit=100)
    ordered.resume(connection, KEY, first, first - 1)
    ordered.renew(connection, KEY, first, first - 1)
    ordered.end_head(connection, KEY, first - 1)
    ordered.remove(connection, KEY.table_name, first - 1)


def fill(ordering: Ordering, connection: Connection, first: int, last: int) -> None:
    """Entries of one key that many wait for, and of many keys with a head each."""
    for start in range(first, last, 1_000):
        ids = range(start, min(last, start + 1_000))
        many = [OrderKey("bus_events", "bus", f"k{number}") for number in ids]
        crowd = OrderKey("bus_events", "bus", "crowd")
        ordering.enter(connection, [(crowd, number, ANY_NODE) for number in ids])
        ordering.enter(
            connection, [(key, number, ANY_NODE) for key, number in zip(many, ids, strict=True)]
        )
        connection.execute(
            ordering.statements.heads.insert(),
            [{**key._asdict(), "record_id": number} for key, number in zip(many, ids, strict=True)],
        )
    connection.commit()


@pytest.mark.timeout(120)
def test_they_read_no_more_among_forty_thousand_than_among_a_thousand(bus: PersistentBus) -> None:
    ordering, costs = engine_of(bus).store.ordering, list[int]()
    with database_of(bus).engine.connect() as connection:
        for _ in range(AGAIN):
            work(ordering, connection)
            connection.commit()
        filled = 0
        for size in (SMALL, LARGE):
            fill(ordering, connection, filled, size)
            filled = size
            work(ordering, connection)  # the first one after that may clean up
            connection.commit()
            with cost_of(connection) as cost:
                work(ordering, connection)
            connection.commit()
            costs += cost
    small, large = costs
    assert 0 < large <= 2 * small + 100


@pytest.mark.timeout(120)
def test_the_doctor_reads_a_key_once_however_many_of_it_it_looks_at(bus: PersistentBus) -> None:
    store, costs = engine_of(bus).store, list[int]()
    looked_at = 200
    before = bus.post(Order(0), delay=3600)
    bus.post_many(
        [Posting(event=Order(1), order_key="mine", after=[before]) for _ in range(looked_at)]
    )
    with database_of(bus).engine.connect() as connection:
        for size in (SMALL, LARGE // 4):
            others = [(KEY, -number, WAITING_LANE) for number in range(size)]
            store.ordering.enter(connection, others)
            connection.commit()
            for table in ("bus_events", "queue_ordered", "queue_order_heads"):
                word = "ANALYZE TABLE" if connection.dialect.name in INNODB else "ANALYZE"
                connection.exec_driver_sql(f"{word} {table}").close()
            connection.commit()
            with cost_of(connection) as cost:
                store.statements.headless(connection, lane=WAITING_LANE, limit=looked_at)
            connection.commit()
            costs += cost
    small, large = costs
    assert 0 < large <= 2 * small + size
