"""What others do beside a caller that keeps its transaction open."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from sqlalchemy import Connection

from tests.contract.work_queue.claiming import claimed
from tests.contract.work_queue.docs import new
from work_queue.modification import Insert
from work_queue.work_queue import WorkQueue

HELD_SECONDS = 20.0


def others_work(work: WorkQueue, connection: Connection) -> None:
    """All that others do to other tasks and docs waits for no lock of the caller's."""

    def go_on() -> None:
        work.modify(Insert(queue="b", id="z2"), Insert(queue="b"), new("other"), new("zzz"))
        work.modify(claimed(work, "b").delete())
        [doc] = work.docs("n", key="other")
        work.modify(doc.change(3), *(task.delete() for task in work.tasks("b")))
        work.queue_stats()

    with ThreadPoolExecutor(1) as pool:
        going_on = pool.submit(go_on)
        try:
            going_on.result(HELD_SECONDS)
        finally:
            connection.rollback()
