"""The steps that CONTRIBUTING names add a database, shown by one that is made up."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import URL
from sqlalchemy.dialects import registry as sqlalchemy_dialects

from queue_core.doctor.examination import examine
from queue_core.model.states import State
from sql.capabilities import Capabilities
from sql.database import Database
from sql.registry import BACKENDS
from sql.sqlite.capabilities import SQLITE
from sql.sqlite.dialect import SQLite
from sql.sqlite.doctor import SQLiteDoctor
from sql.sqlite.statements import SQLiteStatements
from stickybus import BusConfig, Mode, PersistentBus
from tests.contract.harness import Order, Recorder, database_of, eventually

LEAST = Capabilities(makes_tables=True)
"""The capabilities of a new database: it is polled, and takes no short cut."""
MOST = replace(SQLITE, gapless_ids=False)


class ToyStatements(SQLiteStatements):
    """Statements as the toy writes them."""


class Toy(SQLite):
    """Speaks SQLite's SQL under a name of its own, as CockroachDB speaks PostgreSQL's."""

    name = "toy"
    own_statements = (ToyStatements,)

    @property
    def reached_as(self) -> frozenset[str]:
        return frozenset({"sqlite"})


class ToyDoctor(SQLiteDoctor):
    """What the toy is asked."""


@pytest.fixture(params=[LEAST, MOST], ids=["least", "most"])
def toy(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[URL]:
    """A new database of a kind that was registered a moment ago."""
    sqlalchemy_dialects.register(
        "toy.pysqlite", "sqlalchemy.dialects.sqlite.pysqlite", "SQLiteDialect_pysqlite"
    )
    monkeypatch.setattr(Toy, "capabilities", request.param)
    monkeypatch.setattr(ToyStatements, "capabilities", request.param)
    monkeypatch.setitem(
        BACKENDS,
        "toy",
        replace(BACKENDS["sqlite"], driver="toy+pysqlite", dialect=Toy, doctor=ToyDoctor),
    )
    yield URL.create("toy", database=str(tmp_path / "toy.db"))
    sqlalchemy_dialects.deregister("toy.pysqlite")


@pytest.mark.parametrize("mode", list(Mode))
def test_an_entry_goes_from_post_to_history_on_a_database_that_was_just_added(
    toy: URL, mode: Mode
) -> None:
    recorder = Recorder()
    bus = PersistentBus(toy, BusConfig(mode=mode, poll_interval_seconds=0.05))
    bus.subscribe(Order, recorder)
    assert database_of(bus).dialect.name == "toy"
    bus.start()
    try:
        posted = [bus.post(Order(1)), *bus.post_many([Order(2), Order(3)])]
        with database_of(bus).begin() as connection:
            posted.append(bus.post(Order(4), connection=connection))
        eventually(lambda: len(bus.history()) == len(posted), "all ended")
    finally:
        bus.stop()
    ended = bus.history()
    bus.close()
    assert [entry.record_id for entry in ended] == sorted(posted)
    assert {entry.processing_state for entry in ended} == {State.PROCESSED}
    assert sorted(order.number for order in recorder.events) == [1, 2, 3, 4]


def test_a_database_that_was_just_added_is_examined_by_its_own_doctor(toy: URL) -> None:
    PersistentBus(toy).close()
    database = Database(toy)
    try:
        assert isinstance(BACKENDS[database.dialect.name].doctor(), ToyDoctor)
        examine(database)
    finally:
        database.close()
