"""Claims that set a stopper, on MariaDB and MySQL, still take each entry once."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine

from queue_core.model.lanes import ANY_NODE
from queue_core.storage.store import FIRST_DATE
from sql.mysql.statements import MySQLStatements
from sql.mysql.stoppers import Walks
from sql.statements.claims import Claim
from tests import requirements as needs
from tests.contract.conftest import MakeBus
from tests.contract.harness import Order, database_of, engine_of

pytestmark = needs.on("mariadb", "mysql")


def test_entries_that_a_claim_has_read_are_no_others_before_it_writes(
    make_bus: MakeBus, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    bus = make_bus()
    ids = bus.post_many(Order(number) for number in range(3))
    database, store = database_of(bus), engine_of(bus).store
    due_by = store.now() + timedelta(seconds=1)
    claims = [Claim(ANY_NODE, name, 10, FIRST_DATE, due_by, due_by) for name in ("one", "other")]
    taken = list[list[int]]()
    take_all = MySQLStatements._take_all

    def claim() -> None:
        rows = database.write(lambda inner: store.statements.claim(inner, claims.pop()))
        taken.append([row[0] for row in rows])

    def after_another(
        statements: MySQLStatements, connection: Any, given: Any, rows: Sequence[Any]
    ) -> None:
        if claims:
            claim()
        take_all(statements, connection, given, rows)

    monkeypatch.setattr(Walks, "are_far", True)
    monkeypatch.setattr(MySQLStatements, "_take_all", after_another)
    claim()

    assert taken == [[], ids]
    with engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM bus_events").scalar() == len(ids)
