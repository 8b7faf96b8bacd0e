"""Every statement on the table of waits reads by index."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial

from sqlalchemy import Connection

from sql.statements.waits import Wait, Waits
from tests.contract.conftest import MakeBus
from tests.contract.harness import database_of
from tests.contract.plans.caught import faults_of

TABLE = "bus_events"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
ROWS = 3_000


def work(waits: Waits, connection: Connection) -> None:
    """All that is done with waits."""
    assert len(waits.of_awaited(connection, TABLE, ids=[7, 8])) == 6
    assert len(waits.of_waiters(connection, TABLE, ids=[30, 31, 33])) == 9
    assert not waits.are_due(connection, TABLE, now=NOW)
    later = NOW + timedelta(seconds=ROWS)
    assert len(waits.lock_due(connection, TABLE, now=later, limit=50)) == 50
    some = [Wait(30, 10), Wait(31, 10)]
    assert waits.lock_free(connection, TABLE, some) == some
    waits.change(connection, TABLE, some, {"awaited_state": "PROCESSED", "look_date": NOW})
    waits.remove(connection, TABLE, some)


def test_every_statement_reads_by_index(make_bus: MakeBus) -> None:
    database = database_of(make_bus())
    waits = Waits()
    rows = [
        {
            "table_name": TABLE,
            "waiter_id": number,
            "awaited_id": number // 3 + place,
            "on_failed": "cancel",
            "lane": "",
            "look_date": NOW + timedelta(seconds=number + 1),
        }
        for number in range(ROWS)
        for place in ((0, 1000, 2000) if number % 3 == 0 else (0, 3000, 5000))
    ]
    database.write(lambda connection: waits.add(connection, rows))
    sent, faults = faults_of(database, partial(work, waits), ["queue_waits"])
    assert sent == 8
    assert not faults, "\n\n".join(faults)
