"""Runs of ready-made handlers, and what they inserted."""

from __future__ import annotations

from typing import Any

from stickybus import ImmediateRetries, Worker, WorkQueue


def run(work: WorkQueue, handler: Any, queue: str = "in", **options: Any) -> None:
    Worker(work, handler, queue, retry=ImmediateRetries(1), **options).run(until_empty=True)


def values(work: WorkQueue, queue: str = "out") -> list[Any]:
    return [task.value for task in work.tasks(queue)]
