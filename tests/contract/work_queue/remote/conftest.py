"""Fixtures of the tests of work queues at a service's address."""

from __future__ import annotations

import pytest

from tests.contract.work_queue.conftest import MakeWork
from work_queue.work_queue import WorkQueue


@pytest.fixture
def work(make_work: MakeWork) -> WorkQueue:
    return make_work(claimant="me")
