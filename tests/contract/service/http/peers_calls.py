"""Calls of EntroQ's own client that several scenarios make."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from entroq import Doc, DocData, Modification, Task, TaskData
from entroq.json import EntroQJSON

from tests.contract.service.http.peers import done

M = Modification
HOUR_S = 3600.0


def soon(seconds: float) -> datetime:
    return datetime.now(UTC) + timedelta(seconds=seconds)


def lease(task: Task) -> float:
    assert task.modified is not None
    granted: timedelta = task.at - task.modified
    return granted.total_seconds()


async def inserted(client: EntroQJSON, queue: str = "a", **data: object) -> Task:
    result = await done(client, M.inserting(TaskData(queue, **data)))
    return result.tasks_inserted[0]


async def doc_of(client: EntroQJSON, key: str = "k", **data: object) -> Doc:
    result = await done(client, M.inserting(DocData("n", key, **data)))
    return result.docs_inserted[0]


async def claimed(client: EntroQJSON, queue: str = "a", *, duration_ms: int = 60_000) -> Task:
    task = await client.try_claim(queue, duration_ms=duration_ms)
    assert task is not None
    return task
