"""Who wakes a node that sleeps."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest
from sqlalchemy import URL, Engine
from sqlalchemy.orm import Session

from bus.persistent import PersistentBus
from queue_core.claiming.hint_sender import channel
from queue_core.model.config import BusConfig
from queue_core.model.mode import Mode
from stickybus import WorkQueue
from tests import requirements as needs
from tests.contract.conftest import MakeBus
from tests.contract.harness import BOUND_SECONDS, Order, Recorder, eventually, lifecycle_of
from tests.contract.sleepers.idle import MINUTES, asleep
from tests.contract.sleepers.server import CHANNEL, SLEEP, Server

pytestmark = needs.wakes_idle


def test_a_post_of_another_process_wakes_a_node(
    idle: PersistentBus, make_bus: MakeBus, server: Server, recorder: Recorder
) -> None:
    poster = make_bus()
    for number in range(1, 4):
        poster.post(Order(number))
        recorder.wait(number)
        asleep(idle, server)


def test_a_post_that_any_node_may_run_wakes_a_node(
    idle: PersistentBus, make_bus: MakeBus, recorder: Recorder
) -> None:
    poster = make_bus(mode=Mode.POLLING, poll_interval_seconds=MINUTES)
    poster.start()
    poster.post(Order(1))
    recorder.wait(1)


@pytest.mark.parametrize("how", ["core", "session", "autocommit", "raw autocommit"])
def test_a_post_in_a_transaction_wakes_a_node_when_it_has_ended(
    idle: PersistentBus, make_bus: MakeBus, engine: Engine, recorder: Recorder, how: str
) -> None:
    poster = make_bus()
    if how == "core":
        with engine.begin() as connection:
            poster.post(Order(1), connection=connection)
    elif how == "session":
        with Session(engine) as session, session.begin():
            poster.post(Order(1), connection=session)
    elif how == "autocommit":
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            poster.post(Order(1), connection=connection)
    else:
        with closing(engine.raw_connection()) as raw:
            driver: Any = raw.driver_connection
            driver.autocommit(True)
            poster.post(Order(1), connection=driver)
    recorder.wait(1)


def test_a_transaction_that_stays_open_wakes_nobody_and_holds_nothing_up(
    idle: PersistentBus, make_bus: MakeBus, engine: Engine, recorder: Recorder
) -> None:
    poster = make_bus()
    with engine.begin() as connection:
        poster.post(Order(1), connection=connection)
        assert lifecycle_of(poster).hints.told == 0
        poster.post(Order(2))
        assert recorder.wait(1) == [Order(2)]
    recorder.wait(2)


def test_a_transaction_that_ends_after_a_close_leaves_no_thread_and_no_session(
    make_bus: MakeBus, engine: Engine
) -> None:
    """Its entry is left to the poll of a node."""
    poster = make_bus()
    with engine.begin() as connection:
        poster.post(Order(1), connection=connection)
        poster.close()
    hints = lifecycle_of(poster).hints
    assert not hints.running
    assert hints.notifier is None
    assert f"{BusConfig().table}-notify" not in {one.name for one in threading.enumerate()}


def test_nodes_of_one_process_sleep_each_by_itself(
    idle: PersistentBus, make_bus: MakeBus, server: Server, recorder: Recorder
) -> None:
    other = make_bus(poll_interval_seconds=MINUTES)
    held = Recorder()
    other.subscribe(Order, held)
    other.start()
    eventually(lambda: len(server.sleepers()) == 2, "both sleep")
    make_bus().post(Order(1))
    eventually(lambda: recorder.calls + held.calls, "one of them runs it")


def test_an_insert_of_another_process_wakes_a_claim(database_url: URL, server: Server) -> None:
    with (
        closing(WorkQueue(database_url, poll_seconds=MINUTES)) as worker,
        closing(WorkQueue(database_url)) as other,
        ThreadPoolExecutor(1) as pool,
    ):
        claim = pool.submit(worker.claim, "a")
        server.sleeper(SLEEP.replace(CHANNEL, channel("work_tasks")))
        task = other.insert("a")
        assert claim.result(BOUND_SECONDS).id == task.id
