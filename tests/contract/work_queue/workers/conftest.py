"""Fixtures of the tests of workers."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from tests.contract.work_queue.conftest import MakeWork
from tests.contract.work_queue.workers.handlers import Start
from work_queue.work_queue import WorkQueue
from work_queue.workers.worker import Worker


@pytest.fixture
def work(make_work: MakeWork) -> WorkQueue:
    return make_work(claimant="me")


@pytest.fixture
def start() -> Iterator[Start]:
    """Runs a worker in a thread, and stops it in the end."""
    started = list[Worker]()
    with ThreadPoolExecutor(4) as pool:

        def begin(worker: Worker, **options: Any) -> Future[None]:
            started.append(worker)
            return pool.submit(worker.run, **options)

        yield begin
        for worker in started:
            worker.stop(0)
