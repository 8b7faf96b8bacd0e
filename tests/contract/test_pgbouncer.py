"""PgBouncer is refused where clients share sessions, and works where each has its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import URL, Engine, create_engine, text
from sqlalchemy.pool import NullPool

from bus.persistent import PersistentBus
from devtools.pgbouncer import pgbouncer
from queue_core.errors import ConfigurationError
from queue_core.model.config import BusConfig
from queue_core.model.node_config import NodeConfig
from sql import schema
from sql.errors import UnsupportedDatabaseError
from tests import requirements as needs
from tests.contract.harness import Order, Recorder, ended, eventually

pytestmark = needs.postgresql

SETTINGS = (
    "enable_seqscan",
    "enable_sort",
    "jit",
    "plan_cache_mode",
    "statement_timeout",
    "lock_timeout",
)
LEFT = (
    "SELECT (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()) "
    "+ (SELECT count(*) FROM pg_prepared_statements) + (SELECT count(*) FROM "
    "pg_listening_channels())"
)


@pytest.fixture
def shared(database_url: URL) -> Iterator[URL]:
    with pgbouncer(database_url, "transaction") as url:
        yield url


def sessions(url: URL, count: int) -> list[dict[str, Any]]:
    """Return settings of the pooler's sessions, the process of each, and what is left in it."""
    engine = create_engine(url, poolclass=NullPool)
    selected = ", ".join(f"current_setting('{name}') AS {name}" for name in SETTINGS)
    connections = [engine.connect() for _ in range(count)]
    found = [
        dict(
            connection.execute(
                text(f"SELECT pg_backend_pid() AS pid, ({LEFT}) AS remains, {selected}")
            )
            .mappings()
            .one()
        )
        for connection in connections
    ]
    for connection in connections:
        connection.close()
    return found


def test_shared_sessions_are_refused_and_nothing_is_left_on_them(shared: URL) -> None:
    before = sessions(shared, 3)
    with pytest.raises(ConfigurationError, match="pool_mode = session") as refused:
        PersistentBus(shared)
    assert "Nothing was set or written" in str(refused.value)
    engine = create_engine(shared)
    with pytest.raises(ConfigurationError, match="pool_mode = session"):
        PersistentBus(engine)
    with pytest.raises(UnsupportedDatabaseError, match="pool_mode = session"):
        schema.create(shared)
    assert all(session["remains"] == 0 for session in before)

    after = sessions(shared, 3)

    assert {session["pid"] for session in after} & {session["pid"] for session in before}
    for session in after:
        session.pop("pid")
    assert after == [{name: value for name, value in before[0].items() if name != "pid"}] * 3
    engine.dispose()


def test_shared_sessions_are_refused_while_others_use_the_pool(shared: URL) -> None:
    engine = create_engine(shared, poolclass=NullPool)
    with engine.connect() as one, engine.connect() as other:
        for busy in (one, other):
            busy.execute(text("SELECT 1"))
        one.rollback()
        with pytest.raises(ConfigurationError, match="pool_mode = session"):
            PersistentBus(shared)


def test_a_pool_of_sessions_works_and_gets_them_back_as_they_were(
    database_url: URL, engine: Engine
) -> None:
    with pgbouncer(database_url, "session") as url:
        before = sessions(url, 1)[0]
        recorder = Recorder()
        bus = PersistentBus(
            url, BusConfig(handler_threads=2, node=NodeConfig(statement_timeout_seconds=55.0))
        )
        bus.subscribe(Order, recorder)
        bus.limit(concurrency=100)
        with bus:
            bus.post_many([Order(number) for number in range(30)])
            with engine.begin() as connection:
                bus.post(Order(30), connection=connection)
            recorder.wait(31)
            ended(bus, 31)
            assert bus.truncate_history() == 31
        bus.close()

        def clean() -> bool:
            return all(
                {name: value for name, value in session.items() if name != "pid"}
                == {name: value for name, value in before.items() if name != "pid"}
                for session in sessions(url, 4)
            )

        eventually(clean, "the pooler has reset its sessions")
