"""Tables that are missing or of another version: an error says what to run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import URL, Engine, inspect, text

from bus.persistent import PersistentBus
from notifications.service import NotificationService
from queue_core.errors import SchemaError, SchemaMissingError, SchemaTooNewError, SchemaTooOldError
from queue_core.model.config import BusConfig, NotificationConfig
from sql import schema
from sql.families import VERSION_TABLE
from tests import requirements as needs
from tests.contract.conftest import MakeBus
from tests.contract.harness import Order, Recorder

_SMALL: dict[str, Any] = {"node_name": "here", "handler_threads": 1}
_FACES: dict[str, Callable[[URL], Any]] = {
    "bus": lambda url: PersistentBus(url, BusConfig(**_SMALL)),
    "service": lambda url: NotificationService(url, NotificationConfig(**_SMALL)),
}
HEAD = max(
    path.name[:4]
    for path in (Path(schema.__file__).parent / "migrations" / "versions").glob("0*.py")
)
each_face = pytest.mark.parametrize("face", _FACES)


@needs.administered
@each_face
def test_a_database_without_our_tables_is_refused_with_the_command_that_makes_them(
    empty_database_url: URL, face: str
) -> None:
    with pytest.raises(SchemaMissingError, match="Run: stickybus schema create") as refused:
        _FACES[face](empty_database_url)
    assert (refused.value.found, refused.value.expected) == (None, HEAD)
    assert "has no tables of Stickybus" in str(refused.value)
    assert str(empty_database_url.password) not in str(refused.value)


@needs.administered
@pytest.mark.parametrize(
    "table", ["bus_events", "bus_events_history", "queue_nodes", "queue_schedules"]
)
def test_a_single_missing_table_is_named(engine: Engine, database_url: URL, table: str) -> None:
    with engine.begin() as connection:
        connection.execute(text(f"DROP TABLE {table}"))
    with pytest.raises(SchemaMissingError, match=table):
        PersistentBus(database_url, BusConfig(**_SMALL))
    assert not inspect(engine).has_table(table)


@needs.makes_tables
def test_a_missing_table_of_a_file_is_made_anew(engine: Engine, make_bus: MakeBus) -> None:
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE bus_events_history"))
    recorder = Recorder()
    bus = make_bus()
    bus.subscribe(Order, recorder)
    bus.start()
    bus.post(Order(1))
    assert recorder.wait() == [Order(1)]


@each_face
@pytest.mark.parametrize("revision", ["9999", "", "'; --"])
def test_tables_of_a_newer_or_unknown_version_are_refused_and_left_as_they_are(
    engine: Engine, database_url: URL, face: str, revision: str
) -> None:
    with engine.begin() as connection:
        connection.execute(
            text(f"UPDATE {VERSION_TABLE} SET version_num = :revision, works_since = '9999'"),
            {"revision": revision},
        )
    with pytest.raises(SchemaTooNewError, match="does not know") as refused:
        _FACES[face](database_url)
    assert (refused.value.found, refused.value.expected) == (revision, HEAD)
    with engine.connect() as connection:
        assert connection.scalar(text(f"SELECT version_num FROM {VERSION_TABLE}")) == revision


@each_face
def test_tables_of_an_older_version_are_refused_with_the_command_that_upgrades_them(
    engine: Engine, database_url: URL, face: str
) -> None:
    with engine.begin() as connection:
        connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '0001'"))
    with pytest.raises(SchemaTooOldError, match="Run: stickybus schema upgrade") as refused:
        _FACES[face](database_url)
    assert (refused.value.found, refused.value.expected) == ("0001", HEAD)
    assert isinstance(refused.value, SchemaError)


def test_tables_that_vanish_while_the_bus_runs_stop_no_loop(
    engine: Engine, make_bus: MakeBus
) -> None:
    bus = make_bus(poll_interval_seconds=0.02)
    recorder = Recorder()
    bus.subscribe(Order, recorder)
    bus.start()
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE bus_events RENAME TO elsewhere"))
    with pytest.raises(Exception, match="bus_events"):
        bus.post(Order(1))
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE elsewhere RENAME TO bus_events"))
    bus.post(Order(2))
    assert recorder.wait() == [Order(2)]
