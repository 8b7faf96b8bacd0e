"""Tasks of a limited queue, and claims that wait for its places."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from tests.contract.harness import BOUND_SECONDS, eventually
from tests.contract.work_queue.backends import waiting
from work_queue.modification import Action, Insert
from work_queue.task import Task
from work_queue.work_queue import WorkQueue

HOUR = 3600.0


def fill(work: WorkQueue, count: int, queue: str = "a") -> None:
    work.modify(*(Insert(queue=queue, value=number) for number in range(count)))


@contextmanager
def waiting_claim(work: WorkQueue) -> Iterator[Future[Task]]:
    """A claim that waits in another thread."""
    with ThreadPoolExecutor(1) as pool:
        claim = pool.submit(work.claim, "a", timeout_seconds=BOUND_SECONDS)
        eventually(lambda: waiting(work) == 1)
        yield claim


FREED: dict[str, Callable[[Task], Action]] = {
    "delete": lambda task: task.delete(),
    "release": lambda task: task.release(),
    "move": lambda task: task.change(queue="b"),
    "move it claimed": lambda task: task.change(queue="b", delay=HOUR),
    "fail": lambda task: task.change(delay=HOUR, attempt=1, err="no", reset_claims=True),
}
"""What gives the place of a claimed task back."""
frees = pytest.mark.parametrize("free", FREED.values(), ids=FREED)
