"""Sleepers whose sessions or server are lost, or who are refused."""

from __future__ import annotations

import queue
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import make_url
from sqlalchemy.exc import DBAPIError

from bus.persistent import PersistentBus
from devtools.server import DatabaseServer
from devtools.servers import SERVERS, database_servers
from queue_core.model.config import BusConfig
from queue_core.runtime.manual_clock import ManualClock
from sql import schema
from sql.mysql import sleepers
from sql.watching import Bell
from tests import requirements as needs
from tests.contract.conftest import MakeBus
from tests.contract.harness import BOUND_SECONDS, Order, Recorder, config_of, eventually
from tests.contract.sleepers.idle import MINUTES, asleep
from tests.contract.sleepers.server import Server
from tests.contract.sleepers.sleeper import ring, sleeping

pytestmark = needs.wakes_idle


def test_a_node_whose_sleeper_was_ended_sleeps_again(
    idle: PersistentBus,
    make_bus: MakeBus,
    server: Server,
    recorder: Recorder,
    caplog: pytest.LogCaptureFixture,
) -> None:
    for _ in range(2):
        ended = {server.sleeper()}
        server.kill(min(ended))
        eventually(partial(_others, server, ended), "another session sleeps")
    make_bus().post(Order(1))
    recorder.wait(1)
    warnings = [one for one in caplog.records if "hints_interrupted" in one.getMessage()]
    assert len(warnings) == 1


def _others(server: Server, known: set[int]) -> set[int]:
    return server.sleepers() - known


def test_who_is_refused_asks_again_ever_more_rarely_and_one_warning_tells(
    make_bus: MakeBus, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sleepers, "_sleep", lambda *_: "SELECT SLEEP() FROM nowhere")
    pauses = queue.Queue[float]()

    def wait(bell: Bell, seconds: float) -> None:
        pauses.put(seconds)
        bell._rung.wait(0.01)

    monkeypatch.setattr(Bell, "wait", wait)
    bus = make_bus(clock=ManualClock())
    bus.start()
    seen = [pauses.get(timeout=BOUND_SECONDS) for _ in range(6)]
    assert seen == [2.0, 4.0, 8.0, 10.0, 10.0, 10.0]
    warnings = [one for one in caplog.records if "hints_interrupted" in one.getMessage()]
    assert len(warnings) == 1


def test_a_server_that_refuses_to_sleep_leaves_entries_to_the_poll(
    make_bus: MakeBus,
    recorder: Recorder,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(sleepers, "_sleep", lambda *_: "SELECT SLEEP() FROM nowhere")
    bus = make_bus(poll_interval_seconds=0.05)
    bus.subscribe(Order, recorder)
    bus.start()
    eventually(lambda: "hints_interrupted" in caplog.text, "the refusal")
    make_bus().post(Order(1))
    recorder.wait(1)


@pytest.mark.slow
def test_a_node_sleeps_again_after_the_server_has_restarted(
    database_name: str, recorder: Recorder
) -> None:
    with database_servers(which=[database_name]) as servers:
        url = make_url(servers[database_name]).set(database="stickybus")
        admin = Server(url.set(database="mysql"), database_name)
        admin.run("CREATE DATABASE stickybus")
        schema.create(url)
        settings = config_of(BusConfig, {"poll_interval_seconds": MINUTES, "handler_threads": 2})
        with closing(PersistentBus(url, settings)) as node, closing(PersistentBus(url)) as poster:
            node.subscribe(Order, recorder)
            node.start()
            asleep(node, Server(url, database_name))
            poster.post(Order(1))
            recorder.wait(1)
            servers.server(database_name).restart()
            asleep(node, Server(url, database_name))
            eventually(lambda: _posts(poster, Order(2)), "the poster reaches the server")
            recorder.wait(2)


def _posts(bus: PersistentBus, order: Order) -> bool:
    with suppress(DBAPIError):
        bus.post(order)
        return True
    return False


def test_a_server_without_the_performance_schema_wakes_who_sleeps(
    database_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = SERVERS[database_name]

    def start(folder: Path, *, durable: bool) -> DatabaseServer:
        server = kind(folder, durable=durable)
        command = server._command
        monkeypatch.setattr(server, "_command", lambda: [*command(), "--performance-schema=OFF"])
        return server

    monkeypatch.setitem(SERVERS, database_name, start)
    with database_servers(which=[database_name]) as started:
        url = make_url(started[database_name])
        with sleeping(url) as sleeper:
            sleeper.hears()  # of the sleep that has begun
            ring(url)
            assert sleeper.hears()
