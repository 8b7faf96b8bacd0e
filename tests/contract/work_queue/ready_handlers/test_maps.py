"""Values are mapped to new tasks, all or nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from stickybus import ConfigurationError, WorkQueue
from stickybus.task_handlers import in_batches, map_to
from tests import requirements as needs
from tests.contract.work_queue.ready_handlers.running import run, values


def test_a_value_is_mapped_to_many(work: WorkQueue) -> None:
    work.insert("in", "to be or not")

    run(work, map_to("out", str.split))

    assert sorted(values(work)) == ["be", "not", "or", "to"]
    assert work.queues() == {"out": 4}


def test_a_map_that_fails_on_the_way_inserts_nothing(work: WorkQueue) -> None:
    def outputs(value: int) -> Iterator[int]:
        yield value
        yield value // 0

    work.insert("in", 1)
    run(work, map_to("out", outputs))

    assert work.queues() == {"in/err": 1}


async def _awaited(_given: Any) -> Any:
    raise AssertionError


@needs.any_database
@pytest.mark.parametrize(
    "make",
    [
        lambda: map_to("out", None),  # type: ignore[arg-type]
        lambda: in_batches(None),  # type: ignore[arg-type]
        lambda: map_to("out", _awaited),  # type: ignore[arg-type]
        lambda: in_batches(_awaited),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_function_that_has_a_thread_is_refused(
    database_name: str, make: Callable[[], object]
) -> None:
    with pytest.raises(ConfigurationError):
        make()
