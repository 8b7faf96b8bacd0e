"""Fixtures of the work queue's tests. A test named after a scenario has its number in its name.

They run on each database, and on services, which stand on SQLite. A test that is marked
`served_everywhere` runs on services that stand on the other databases, too: there, what a database
does passes through a wire. One that is marked `database_only` needs the database itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Protocol

import pytest
from sqlalchemy import URL

from queue_core.runtime.manual_clock import ManualClock
from tests.contract.work_queue.backends import SERVED
from tests.contract.work_queue.services import Services
from work_queue.work_queue import WorkQueue

SERVICES_OWN = frozenset({"clock", "poll_seconds"})
"""Options that a service has, not its client."""


class MakeWork(Protocol):
    """Makes a work queue on the test's database, by the database's clock unless one is given."""

    def __call__(self, **options: Any) -> WorkQueue: ...


@pytest.hookimpl(tryfirst=True)  # before marks choose
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what no service can do, and most of services on other databases than SQLite.

    The rest on services is marked so, also where a test chooses its places itself.
    """
    on_service = [item for item in items if _is_on_service(item)]
    for item in on_service:
        item.add_marker(pytest.mark.remote)
    without = {item for item in on_service if not _can_be_served(item)}
    items[:] = [item for item in items if item not in without]
    config.hook.pytest_deselected(items=list(without))


def _is_on_service(item: pytest.Item) -> bool:
    return isinstance(item, pytest.Function) and _parameters(item).get("place", "") in {
        "http",
        "grpc",
    }


def _can_be_served(item: pytest.Item) -> bool:
    if item.get_closest_marker("database_only") is not None:
        return False
    everywhere = item.get_closest_marker("served_everywhere") is not None
    return everywhere or _parameters(item).get("database_name", "sqlite") == "sqlite"


def _parameters(item: pytest.Item) -> dict[str, Any]:
    callspec = getattr(item, "callspec", None)
    return {} if callspec is None else callspec.params


@pytest.fixture(params=["database", "http", "grpc"])
def place(request: pytest.FixtureRequest) -> str:
    """Where the test's work queues are."""
    return str(request.param)


@pytest.fixture(scope="session")
def services() -> Iterator[Services]:
    services = Services()
    yield services
    services.close()


@pytest.fixture
def make_work(database_url: URL, place: str, request: pytest.FixtureRequest) -> Iterator[MakeWork]:
    with ExitStack() as made:

        def keep(work: WorkQueue) -> WorkQueue:
            made.callback(work.close)
            return work

        def make(**options: Any) -> WorkQueue:
            if place == "database":
                return keep(WorkQueue(database_url, **options))
            services = request.getfixturevalue("services")
            its = {key: value for key, value in options.items() if key in SERVICES_OWN}
            served = keep(WorkQueue(database_url, **its))
            own = {key: value for key, value in options.items() if key not in SERVICES_OWN}
            client = keep(WorkQueue(getattr(services, place)(served), **own))
            SERVED[client] = served
            return client

        yield make


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def work(make_work: MakeWork, clock: ManualClock) -> WorkQueue:
    """The work queue of the claimant "me", whose time stands still."""
    return make_work(claimant="me", clock=clock)
