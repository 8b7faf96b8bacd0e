"""A claim reads no more while rows that were deleted stay, because a session holds a snapshot.

Where it finds less than it may, InnoDB would go on over all of them, whatever lane they were in.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import Connection, Engine, insert

from bus.persistent import PersistentBus
from queue_core.model.entry import claimed
from queue_core.model.lanes import ANY_NODE
from sql.statements.claims import Claim
from tests import requirements as needs
from tests.contract.conftest import MakeBus
from tests.contract.harness import database_of, engine_of
from tests.contract.plans.tables import NODE, SNAPSHOT, TABLES, fill

DEAD = 100_000
FEW, LIMIT = 10, 100
"""Entries that are due, and that a claim may take."""
ROUNDS = 100
"""More than the claims that tell a node that its reads walk far."""
STOPPER = DEAD // 50
"""More pages than a row costs that is inserted and rolled back: on MariaDB up to 900 were seen.

Without one, a claim reads more than a page for each dead row.
"""


class Node:
    """A node that claims all there is, again and again."""

    def __init__(self, bus: PersistentBus, meter: Connection) -> None:
        self._database = database_of(bus)
        self._statements = engine_of(bus).store.statements
        self._meter = meter
        self._now = datetime(2026, 1, 1, tzinfo=UTC)

    def pages(self) -> int:
        """Pages that a claim has read, and what others have read meanwhile."""
        since, self._now = self._now, self._now + timedelta(seconds=1)
        due = [self._now - timedelta(microseconds=FEW - number) for number in range(1, FEW + 1)]
        claim = Claim(ANY_NODE, NODE, LIMIT, since, self._now, self._now)
        rows = [{"class_name": "Ping", "effective_date": date} for date in due]
        self._database.write(lambda c: c.execute(insert(self._statements.main), rows))
        before = self._read()
        found = self._database.write(lambda c: self._statements.claim(c, claim))
        pages = self._read() - before
        entries = [claimed(row, claim.owner, claim.until) for row in found]
        assert [entry.effective_date for entry in entries] == due
        ids = [entry.record_id for entry in entries]
        ended = {"processing_state": "PROCESSED", "finished_date": self._now}
        self._database.write(lambda c: self._statements.to_history(c, ids=ids, values=ended))
        return pages

    def _read(self) -> int:
        _name, pages = self._meter.exec_driver_sql(
            "SHOW GLOBAL STATUS LIKE 'Innodb_buffer_pool_read_requests'"
        ).one()
        return int(pages)


@contextmanager
def dead_rows(engine: Engine) -> Iterator[None]:
    """Rows of all lanes that another session still sees."""
    with engine.connect() as holder:
        fill(engine, DEAD)
        holder.exec_driver_sql(SNAPSHOT[engine.dialect.name])
        for table in TABLES:
            holder.exec_driver_sql(f"SELECT count(*) FROM {table}")
        with engine.begin() as drain:
            drain.exec_driver_sql("DELETE FROM bus_events WHERE class_name = 'Order'")
        yield


@pytest.mark.timeout(300)
@pytest.mark.slow
@needs.on("mariadb", "mysql")
def test_claims_soon_read_as_much_beside_dead_rows_as_without_but_for_a_stopper(
    make_bus: MakeBus, engine: Engine
) -> None:
    with engine.connect() as connection:
        meter = connection.execution_options(isolation_level="AUTOCOMMIT")
        node = Node(make_bus(statement_timeout_seconds=300.0), meter)
        usual = min(node.pages() for _ in range(FEW))
        with dead_rows(engine):
            assert any(node.pages() <= usual + STOPPER for _ in range(ROUNDS))
        assert not meter.exec_driver_sql("SELECT count(*) FROM bus_events").scalar()
