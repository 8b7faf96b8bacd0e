"""Tasks as a stream of messages."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.service.grpc.harness import PATIENCE_SECONDS, Stubs
from tests.contract.service.streams import PAGES, VALUE, counted_reads, ended_streams, fill
from work_queue.work_queue import WorkQueue


def test_a_stream_is_read_in_pages(entroq: Any, stubs: Stubs, work: WorkQueue) -> None:
    ids = fill(work)
    with counted_reads(work) as reads:
        answers = list(entroq.StreamTasks(stubs.api.TasksRequest(queue="a")))
        assert [task.id for answer in answers for task in answer.tasks] == ids
        assert len(reads) == PAGES
        limited = entroq.StreamTasks(stubs.api.TasksRequest(queue="a", limit=201))
        assert [task.id for answer in limited for task in answer.tasks] == ids[:201]
        assert len(reads) == PAGES + 5


def test_a_stream_whose_caller_vanishes_ends(
    entroq: Any, stubs: Stubs, work: WorkQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(work, VALUE)
    ended = ended_streams(monkeypatch)
    with counted_reads(work) as reads:
        answers = entroq.StreamTasks(stubs.api.TasksRequest(queue="a"))
        next(answers)
        assert not ended.is_set()
        answers.cancel()
        assert ended.wait(PATIENCE_SECONDS)
        assert len(reads) < PAGES
