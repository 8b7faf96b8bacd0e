"""The server, users of it, and a node that sleeps."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from sqlalchemy import URL

from bus.persistent import PersistentBus
from tests.contract.conftest import MakeBus
from tests.contract.harness import Order, Recorder
from tests.contract.sleepers.idle import MINUTES, asleep
from tests.contract.sleepers.server import Server


@pytest.fixture
def server(database_url: URL, database_name: str) -> Server:
    return Server(database_url, database_name)


@pytest.fixture
def idle(make_bus: MakeBus, server: Server, recorder: Recorder) -> PersistentBus:
    """A node that has nothing to do, and whose next poll is far away."""
    bus = make_bus(poll_interval_seconds=MINUTES)
    bus.subscribe(Order, recorder)
    bus.start()
    asleep(bus, server)
    return bus


@pytest.fixture
def user(database_url: URL, server: Server) -> Iterator[Callable[..., URL]]:
    """Makes users who may read and write the test's tables, and no more."""
    made = list[str]()

    def make(*privileges: str) -> URL:
        name = f"{database_url.database}_{len(made)}"[-32:]
        made.append(name)
        server.run(f"CREATE USER '{name}'@'%' IDENTIFIED BY 'sticky'")
        server.run(
            f"GRANT SELECT, INSERT, UPDATE, DELETE ON {database_url.database}.* TO '{name}'@'%'"
        )
        for privilege in privileges:
            server.run(f"GRANT {privilege} ON *.* TO '{name}'@'%'")
        return database_url.set(username=name, password="sticky")

    yield make
    for name in made:
        server.run(f"DROP USER '{name}'@'%'")
