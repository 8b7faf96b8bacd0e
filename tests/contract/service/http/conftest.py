"""Fixtures of the tests of services over HTTP. A test of a scenario has its number in its name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Protocol

import pytest

from tests.contract.service.http.running import Running
from tests.contract.work_queue.conftest import MakeWork, make_work

__all__ = ["make_work"]


class Serve(Protocol):
    """Starts a service of a new work queue on the test's database."""

    def __call__(self, **options: Any) -> Running: ...


@pytest.fixture
def place() -> str:
    """A service stands on a database."""
    return "database"


@pytest.fixture
def serve(make_work: MakeWork) -> Iterator[Serve]:
    with ExitStack() as made:

        def start(*, poll_seconds: float | None = None, **options: Any) -> Running:
            running = Running(make_work(poll_seconds=poll_seconds), **options)
            made.callback(running.close)
            return running

        yield start


@pytest.fixture
def service(serve: Serve) -> Running:
    """A service without an authoriser."""
    return serve()
