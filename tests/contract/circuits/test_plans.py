"""Every statement on the table of open circuits reads by index, however many are open."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial

from sqlalchemy import Connection, insert

from sql.statements.circuits import Circuits
from sql.tables import queue_circuits
from tests.contract.conftest import MakeBus
from tests.contract.harness import database_of
from tests.contract.plans.caught import faults_of

TABLE, LANE = "bus_events", "!paused:7"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
ROWS = 3_000


def work(circuits: Circuits, connection: Connection) -> None:
    """All that is done with one circuit."""
    assert circuits.find(connection, TABLE, LANE) is not None
    assert not circuits.open(
        connection, TABLE, LANE, queue_name="bus", handler="7", since=NOW, probe_id=1
    )
    assert circuits.change_probe(connection, TABLE, LANE, old_id=7, new_id=8, failures=2)
    assert circuits.close(connection, TABLE, LANE, probe_id=8)


def test_every_statement_reads_by_index(make_bus: MakeBus) -> None:
    database = database_of(make_bus())
    rows = [
        {
            "table_name": TABLE,
            "lane": f"!paused:{number}",
            "queue_name": "bus",
            "handler": str(number),
            "since": NOW,
            "probe_id": number,
            "failures": 1,
        }
        for number in range(ROWS)
    ]
    database.write(lambda connection: connection.execute(insert(queue_circuits), rows))
    sent, faults = faults_of(database, partial(work, Circuits()), ["queue_circuits"])
    assert sent == 4
    assert not faults, "\n\n".join(faults)
