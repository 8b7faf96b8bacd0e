"""An SQLite file by any name: a relative path, a URI, an application's connection in any mode."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine
from sqlalchemy.exc import IntegrityError

from queue_core.errors import ConfigurationError
from stickybus import BusConfig, PersistentBus
from tests import requirements as needs
from tests.contract.harness import Order, Recorder

pytestmark = needs.sqlite
NAMES = {
    "relative": "sqlite:///orders.db",
    "URI": "sqlite:///file:orders%20of%20today.db?uri=true",
    "absolute URI": "sqlite:///file://{folder}/orders.db?uri=true&cache=private",
}


@pytest.fixture(params=list(NAMES))
def bus(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[PersistentBus]:
    """A bus on a file of the working directory, which is another one by now."""
    monkeypatch.chdir(tmp_path)
    with PersistentBus(
        NAMES[request.param].format(folder=tmp_path), BusConfig(node_name="here")
    ) as found:
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        yield found
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.usefixtures("database_name")
def test_a_file_is_the_same_by_each_of_its_names_whatever_the_working_directory_is(
    bus: PersistentBus, tmp_path: Path
) -> None:
    recorder = Recorder()
    bus.subscribe(Order, recorder)
    [file] = tmp_path.glob("*.db")
    bus.post(Order(1))
    engine = create_engine(f"sqlite:///{file}")
    with engine.begin() as connection:
        bus.post(Order(2), connection=connection)
    engine.dispose()
    with closing(sqlite3.connect(file)) as raw, raw:
        bus.post(Order(3), connection=raw)

    assert sorted(order.number for order in recorder.wait(3)) == [1, 2, 3]


@pytest.mark.usefixtures("database_name")
@pytest.mark.parametrize(
    "url",
    [
        "sqlite://",
        "sqlite:///:memory:",
        "sqlite:///file::memory:?uri=true",
        "sqlite:///file:orders?mode=memory&cache=shared&uri=true",
    ],
)
def test_a_database_in_memory_is_refused_by_each_of_its_names(url: str) -> None:
    with pytest.raises(ConfigurationError, match="in memory"):
        PersistentBus(url)


MODES: list[dict[str, Any]] = [{"isolation_level": None}]
if sys.version_info >= (3, 12):
    MODES += [{"autocommit": True}, {"autocommit": False}]


@pytest.mark.usefixtures("database_name")
@pytest.mark.parametrize("mode", MODES, ids=str)
def test_many_on_a_connection_of_any_mode_are_posted_together_or_not_at_all(
    tmp_path: Path, mode: dict[str, Any]
) -> None:
    bus = PersistentBus(f"sqlite:///{tmp_path}/orders.db", BusConfig(node_name="here"))
    recorder = Recorder()
    bus.subscribe(Order, recorder)
    bus.start()
    orders = [Order(number) for number in range(5)]
    with closing(sqlite3.connect(tmp_path / "orders.db", **mode)) as raw:
        refusing = (
            "CREATE TRIGGER refusing BEFORE INSERT ON bus_events WHEN NEW.event_json LIKE '%3%' "
            "BEGIN SELECT RAISE(ABORT, 'no'); END"
        )
        raw.execute(refusing)
        raw.commit()
        with pytest.raises(IntegrityError, match=r"IntegrityError\) no\n"):
            bus.post_many(orders, connection=raw)
        raw.rollback()
        assert bus.find() == bus.history() == []
        raw.execute("DROP TRIGGER refusing")
        raw.commit()

        ids = bus.post_many(orders, connection=raw)
        raw.commit()
        assert sorted(recorder.wait(5), key=attrgetter("number")) == orders
        assert len(set(ids)) == 5
    bus.close()
