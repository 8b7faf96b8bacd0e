"""Streams of tasks, as the database and the service see them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from threading import Event

import pytest

from tests.contract.harness import listening
from tests.contract.work_queue.backends import backend_of
from work_queue.modification import Insert
from work_queue.requests import TaskQuery
from work_queue.service.caller import Caller
from work_queue.service.calls import Calls
from work_queue.task import Task
from work_queue.work_queue import WorkQueue

TASKS = 2_050
PAGES = 14
"""Reads of all tasks: of 10, 20, 40, 80 and 160 of them, and then of 200 each."""
VALUE = "x" * 10_000
"""With it they are more than what lies between a service and a caller that does not read."""


def fill(work: WorkQueue, value: object = None) -> list[str]:
    """Insert the tasks; returns their ids in the order of arrival."""
    work.modify(*(Insert(queue="a", value=value) for _ in range(TASKS)))
    return [task.id for task in work.tasks("a", with_values=False)]


@contextmanager
def counted_reads(work: WorkQueue) -> Iterator[list[str]]:
    """The reads of tasks that are sent to the database."""
    reads = list[str]()

    def count(_c: object, _cursor: object, statement: str, *_: object) -> None:
        if statement.startswith("SELECT") and "work_tasks.task_id" in statement:
            reads.append(statement)

    with listening(backend_of(work).database, before_cursor_execute=count):
        yield reads


def ended_streams(monkeypatch: pytest.MonkeyPatch) -> Event:
    """Is set when a stream has ended, whatever has ended it."""
    pages, ended = Calls.pages, Event()

    async def watched(
        self: Calls, caller: Caller, query: TaskQuery
    ) -> AsyncGenerator[list[Task], None]:
        try:
            async for page in pages(self, caller, query):
                yield page
        finally:
            ended.set()

    monkeypatch.setattr(Calls, "pages", watched)
    return ended
