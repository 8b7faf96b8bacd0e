"""Every statement on the table of open circuits reads by index, however many are open."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, event, insert

from sql.doctor.base import Step
from sql.registry import doctor_of
from sql.statements.circuits import Circuits
from sql.tables import queue_circuits
from tests.contract.conftest import MakeBus
from tests.contract.harness import database_of

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
    caught = list[tuple[str, Any]]()

    def catch(
        _c: object, _cursor: object, statement: str, parameters: Any, _x: object, _many: object
    ) -> None:
        caught.append((statement, parameters))

    doctor, faults = doctor_of(database.dialect.name), list[str]()
    with database.engine.connect() as connection:
        event.listen(connection, "before_cursor_execute", catch)
        work(Circuits(), connection)
        event.remove(connection, "before_cursor_execute", catch)
        for statement, parameters in caught:
            plan = connection.exec_driver_sql(doctor.explain + statement, parameters)
            found = doctor.faults([dict(row) for row in plan.mappings()], "queue_circuits")
            faults += [f"{one.step}: {statement}" for one in found if one.step is not Step.SORT]
        connection.rollback()
    assert len(caught) == 4
    assert not faults, "\n\n".join(faults)
