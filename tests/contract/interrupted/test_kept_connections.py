"""Connections after two exceptions: one of the work, and one that cuts off what follows it."""

from __future__ import annotations

from functools import partial

import pytest
from sqlalchemy import Connection, Engine
from sqlalchemy.pool import QueuePool

from sql.database import Database
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
