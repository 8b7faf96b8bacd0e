"""Connections after an exception from outside, alone or after another one of the work."""

from __future__ import annotations

import gc
import threading
from functools import partial
from types import FunctionType

import pytest
from sqlalchemy import Connection, Engine
from sqlalchemy.pool import QueuePool
from sqlalchemy.util.queue import Queue

from sql.database import Database
from sql.database.idle_connections import IdleConnections
from sql.database.kept_connections import KeptConnections
from sql.writer_lock import NO_LOCK
from tests.contract.conftest import MakeBus
from tests.contract.harness import database_of
from tests.contract.interrupted.interrupts import Interrupt, InterruptedHereError, Places

pytestmark = pytest.mark.slow

AMONG = [
    function.__code__
    for function in (KeptConnections.run, KeptConnections._drop, KeptConnections._settles)
]


def lost(database: Database, own: Engine) -> int:
    """The number of connections that don't come back to their pool when those kept do."""
    assert isinstance(own.pool, QueuePool)
    database.kept.close()
    return own.pool.checkedout()


def fails(_connection: Connection) -> None:
    """Fail as a statement that the server refuses."""
    raise ValueError("refused")


@pytest.mark.parametrize("places", list(Places))
def test_an_exception_after_a_failure_loses_no_connection(
    make_bus: MakeBus, places: Places
) -> None:
    database = database_of(make_bus())
    for own in database.engines:
        work = partial(database.kept.run, own, fails, NO_LOCK)
        whole = Interrupt(places, among=AMONG)
        with pytest.raises(ValueError, match="refused"):
            whole.during(work)
        assert lost(database, own) == 0
        for place in range(whole.passed):
            interrupt = Interrupt(places, place, AMONG)
            # The traceback, which refers to the connection, lives on while it is counted.
            with pytest.raises((InterruptedHereError, ValueError)) as caught:
                interrupt.during(work)
            assert lost(database, own) == 0, (interrupt.where, caught.value)


IDLE = [
    function.__code__
    for kind in (Queue, IdleConnections, threading.Condition)
    for function in vars(kind).values()
    if isinstance(function, FunctionType)
]


# A connection that an exception cuts off on its way is dropped, and closed by its end.
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("places", list(Places))
def test_an_exception_at_a_pool_keeps_no_other_thread_from_it(
    make_bus: MakeBus, places: Places
) -> None:
    database = database_of(make_bus())
    for own in database.engines:

        def use(own: Engine = own) -> None:
            own.connect().close()

        use()
        whole = Interrupt(places, among=IDLE)
        whole.during(use)
        assert whole.passed
        for place in range(whole.passed):
            interrupt = Interrupt(places, place, IDLE)
            with pytest.raises(InterruptedHereError):
                interrupt.during(use)
            # A daemon, so that one that waits for ever does not hold up the end of the tests.
            other = threading.Thread(target=use, daemon=True)
            other.start()
            other.join(20)
            assert not other.is_alive(), interrupt.where
    gc.collect()  # in this test, which is not warned of them
