"""What stands behind a work queue. Tests reach it here alone."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from sqlalchemy import URL

from work_queue.remote.line import Line
from work_queue.storage.waiting import Waiter
from work_queue.work_queue import WorkQueue

SERVED = WeakKeyDictionary[WorkQueue, WorkQueue]()
"""By a client of the tests' services, the work queue that its service serves."""


def own_backend_of(work: WorkQueue) -> Any:
    """Where it says that its tasks are: a database, or a service."""
    return work._opened


def line_of(work: WorkQueue) -> Line:
    """The line to its service."""
    line: Line = own_backend_of(work)._line
    return line


def asks(work: WorkQueue) -> bool:
    """Whether claims that coroutines await are under way to its service."""
    return bool(own_backend_of(work)._claims.running)


def backend_of(work: WorkQueue) -> Any:
    """Where its tasks are: a service's database, if it stands on one."""
    return own_backend_of(SERVED.get(work, work))


def address_of(work: WorkQueue, database_url: URL) -> str:
    """What another process opens it by."""
    if work in SERVED:
        return str(own_backend_of(work).address)
    return database_url.render_as_string(hide_password=False)


def waiters_of(work: WorkQueue) -> set[Waiter]:
    """The claims that wait."""
    return {waiter for queue in [*backend_of(work).room.waiters.values()] for waiter in [*queue]}


def waiting(work: WorkQueue) -> int:
    """How many claims wait, and have looked."""
    return sum(not waiter.look for waiter in waiters_of(work))
