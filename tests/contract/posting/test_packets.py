"""Payloads past the server's packet limit: one clear error, before anything is sent."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sqlalchemy import URL, Engine, create_engine, text

from bus.persistent import PersistentBus
from devtools.server import DatabaseServer
from notifications.service import NotificationService
from queue_core.errors import PayloadTooLargeError
from queue_core.model.config import BusConfig, NotificationConfig
from tests.contract.harness import Recorder, database_of, statements_of
from tests.contract.server_sessions import sessions

PACKET = 2**20
LARGEST = 100 * PACKET

pytestmark = pytest.mark.parametrize(
    "own_server",
    [pytest.param(name, marks=getattr(pytest.mark, name)) for name in ("mariadb", "mysql")],
    indirect=True,
)


@pytest.fixture
def engine(own_server: DatabaseServer, own_server_url: URL) -> Engine:
    """An engine on a server that takes little; new sessions know of it."""
    assert own_server.port == own_server_url.port
    engine = create_engine(own_server_url)
    with engine.begin() as connection:
        connection.execute(text(f"SET GLOBAL max_allowed_packet = {PACKET}"))
    engine.dispose()
    return engine


def test_a_payload_past_the_servers_packet_is_refused_at_once_and_leaves_connections_alone(
    engine: Engine, own_server: DatabaseServer
) -> None:
    bus = PersistentBus(engine.url, BusConfig(max_payload_bytes=LARGEST))
    service = NotificationService(engine.url, NotificationConfig(max_payload_bytes=LARGEST))
    queue = service.create_queue("shop", "bills", Recorder())
    record_id = queue.schedule({"note": "a" * (PACKET - PACKET // 32)}, delay=3600)
    bus.post({"note": "a"}, event_name="note")
    before = sessions(engine, own_server.name)
    calls: list[Callable[[dict[str, str]], object]] = [
        lambda event: bus.post(event, event_name="note"),
        lambda event: queue.schedule(event, delay=0),
        lambda event: queue.update(record_id, event=event),
        lambda event: queue.recur("often", event, every=60),
    ]
    with statements_of(database_of(bus)) as sent:
        # The second is escaped twice.
        for event in ({"note": "a" * PACKET}, {"note": '"' * (PACKET // 3)}):
            for call in calls:
                with pytest.raises(PayloadTooLargeError, match="max_allowed_packet") as refused:
                    call(event)
                assert (refused.value.size_bytes or 0) > PACKET
    assert sent.starting_with("INSERT", "UPDATE") == []
    assert sessions(engine, own_server.name) >= before  # none was lost
    assert len(bus.find()) == 1
    assert [entry.record_id for entry in queue.find()] == [record_id]
    service.close()
    bus.close()
    engine.dispose()
