"""Fixtures of the work queue's tests. A test named after a scenario has its number in its name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Protocol

import pytest
from sqlalchemy import URL

from queue_core.runtime.manual_clock import ManualClock
from work_queue.work_queue import WorkQueue


class MakeWork(Protocol):
    """Makes a work queue on the test's database, by the database's clock unless one is given."""

    def __call__(self, **options: Any) -> WorkQueue: ...


@pytest.fixture
def make_work(database_url: URL) -> Iterator[MakeWork]:
    with ExitStack() as made:

        def make(**options: Any) -> WorkQueue:
            work = WorkQueue(database_url, **options)
            made.callback(work.close)
            return work

        yield make


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def work(make_work: MakeWork, clock: ManualClock) -> WorkQueue:
    """The work queue of the claimant "me", whose time stands still."""
    return make_work(claimant="me", clock=clock)
