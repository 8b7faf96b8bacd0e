"""Values that somebody has spoilt by SQL of their own: the tasks beside them are not held up."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from sqlalchemy import Engine, text

from tests.contract.work_queue.claiming import claimed
from work_queue.document import DocClaim
from work_queue.modification import Insert, InsertDoc
from work_queue.task import Task
from work_queue.values import UNREAD
from work_queue.work_queue import WorkQueue
from work_queue.workers.job import Job
from work_queue.workers.ready.batches import in_batches
from work_queue.workers.worker import Worker


@pytest.fixture
def spoilt(work: WorkQueue, engine: Engine) -> str:
    """The id of a task in "a" whose value is no JSON; two others are there."""
    work.modify(*(Insert(queue="a", id=name, value=name) for name in ("bad", "b", "c")))
    with engine.begin() as connection:
        connection.execute(text("UPDATE work_tasks SET value_json = '{' WHERE task_id = 'bad'"))
    return "bad"


@pytest.mark.served_everywhere
def test_a_worker_moves_such_a_task_away_and_does_the_others(work: WorkQueue, spoilt: str) -> None:
    done = list[str]()

    def handle(job: Job) -> None:
        done.append(job.task.value)

    Worker(work, handle, "a").run(until_empty=True)
    assert sorted(done) == ["b", "c"]
    assert work.queues() == {"a/err": 1}
    [moved] = work.failed_tasks("a/err")
    assert (moved.id, moved.value, moved.attempt) == (spoilt, UNREAD, 1)
    assert "its stored value is no JSON" in moved.err


@pytest.mark.served_everywhere
def test_a_batch_is_done_without_such_a_task(work: WorkQueue, spoilt: str) -> None:
    work.modify(work.claim("a").release())  # so that another one is the first of a batch
    done = list[str]()

    def store(tasks: Sequence[Task]) -> None:
        done.extend(task.value for task in tasks)

    Worker(work, in_batches(store), "a").run(until_empty=True)
    assert sorted(done) == ["b", "c"]
    assert [task.id for task in work.failed_tasks("a/err")] == [spoilt]


@pytest.mark.served_everywhere
def test_claims_and_reads_have_such_a_task_without_its_value(work: WorkQueue, spoilt: str) -> None:
    assert {task.id: task.value for task in work.tasks("a")} == {
        spoilt: UNREAD,
        "b": "b",
        "c": "c",
    }
    assert work.tasks(ids=[spoilt])[0].value is UNREAD
    taken = {task.id: task for task in work.claim_many("a", limit=9)}
    assert taken[spoilt].value is UNREAD
    assert {task.value for task in taken.values()} == {UNREAD, "b", "c"}
    # It may be moved as it is, mended, or deleted.
    [moved] = work.modify(taken[spoilt].change(queue="x")).changed
    [mended] = work.modify(moved.change(value="mended")).changed
    assert mended.value == claimed(work, "x").value == "mended"


@pytest.mark.served_everywhere
def test_a_finished_task_and_a_doc_may_be_such(
    work: WorkQueue, engine: Engine, spoilt: str
) -> None:
    work.keep_history("a")
    work.modify(*(task.delete() for task in work.tasks("a")))
    work.modify(InsertDoc(namespace="n", key="k", content=1))
    with engine.begin() as connection:
        connection.execute(text("UPDATE work_docs SET content_json = '{'"))
    found = {task.id: task.value for task in work.finished_tasks("a")}
    assert found == {spoilt: UNREAD, "b": "b", "c": "c"}
    assert [doc.content for doc in work.docs("n")] == [UNREAD]
    [held] = work.claim_docs(DocClaim("n", "k"))
    [doc] = held.docs
    assert work.modify(doc.change(2)).changed_docs[0].content == 2
