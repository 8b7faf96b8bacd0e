"""Fixtures of the tests of ready-made handlers."""

from __future__ import annotations

import pytest

from stickybus import WorkQueue
from tests.contract.work_queue.conftest import MakeWork


@pytest.fixture
def work(make_work: MakeWork) -> WorkQueue:
    return make_work(claimant="me")
