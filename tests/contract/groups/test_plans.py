"""Every statement on the tables of groups reads by index."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial

from sqlalchemy import Connection, insert

from sql.statements.groups import Ended, Groups
from tests.contract.conftest import MakeBus
from tests.contract.harness import database_of
from tests.contract.plans.caught import faults_of

TABLE = "bus_events"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
ROWS = 3_000


def work(groups: Groups, connection: Connection) -> None:
    """All that is done with groups that are there."""
    assert groups.add(connection, 7, 3)
    groups.adjust(connection, 7, {"failed": -1}, look=NOW)
    assert groups.seal(connection, 7, NOW, look=None)
    groups.end(connection, [Ended(7, 1), Ended(8, failed=2)])
    groups.lock_ends(connection, [7, 8])
    groups.complete(connection, Ended(7, 3, 2, 1), NOW)
    assert len(groups.read(connection, [7, 8])) == 2
    assert groups.completable(connection, [7, 8]) == []
    assert len(groups.newest(connection, TABLE, limit=50)) == 50
    assert len(groups.newest(connection, TABLE, queue_name="bus", incomplete=True, limit=5)) == 5
    assert groups.incomplete(connection, TABLE, limit=50) == 50
    assert not groups.are_due(connection, TABLE, now=NOW)
    later = NOW + timedelta(seconds=ROWS)
    assert len(groups.lock_due(connection, TABLE, now=later, limit=50)) == 50
    groups.looked(connection, [7, 8])
    assert len(groups.completed_before(connection, TABLE, before=later, limit=50)) == 50
    groups.remove(connection, [7, 8])


def test_every_statement_reads_by_index(make_bus: MakeBus) -> None:
    database = database_of(make_bus())
    groups = Groups()
    nothing = {"table_name": TABLE, "succeeded": 0, "failed": 0, "cancelled": 0}
    rows = [
        {
            **nothing,
            "group_id": number,
            "queue_name": "bus",
            "created_by": "a",
            "created_date": NOW,
            "total": 3,
            "look_date": NOW + timedelta(seconds=number + 1) if number % 9 == 0 else None,
        }
        for number in range(1, ROWS + 1)
    ]
    ends = [
        {
            **nothing,
            "group_id": number,
            "completed_date": NOW + timedelta(seconds=number) if number % 9 == 0 else None,
        }
        for number in range(1, ROWS + 1)
    ]
    database.write(lambda connection: connection.execute(insert(groups.groups), rows))
    database.write(lambda connection: connection.execute(insert(groups.ends), ends))
    sent, faults = faults_of(database, partial(work, groups), ["queue_groups", "queue_group_ends"])
    assert sent == 17
    # The newest are read from an index's end, as many as are asked for.
    wrong = [fault for fault in faults if "DESC" not in fault]
    assert not wrong, "\n\n".join(wrong)
