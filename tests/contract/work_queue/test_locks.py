"""The locks of a caller's open transaction, in its database's default isolation.

See `tests/contract/transactions/test_locks_of_callers.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from sqlalchemy import Engine

from tests import requirements as needs
from tests.contract.work_queue.conftest import MakeWork
from tests.contract.work_queue.docs import new
from tests.contract.work_queue.others import others_work
from work_queue.faults import DependencyError
from work_queue.modification import (
    ChangeDoc,
    Delete,
    DeleteDoc,
    Depend,
    DependDoc,
    DependSet,
    Insert,
    Renew,
    RenewSet,
    Replay,
)
from work_queue.refs import DocRef, SetRef, TaskRef
from work_queue.work_queue import WorkQueue

ABSENT = "ffffffff-ffff-7fff-bfff-ffffffffffff"
"""An id past the last row's."""

ACTIONS: dict[str, Callable[[TaskRef, DocRef], Any]] = {
    "insert": lambda _task, _doc: Insert(queue="a"),
    "insert-own-id": lambda _task, _doc: Insert(queue="a", id="zz"),
    "insert-taken-id": lambda task, _doc: Insert(queue="a", id=task.id),
    "delete": lambda task, _doc: Delete(task),
    "delete-absent": lambda _task, _doc: Delete(TaskRef(ABSENT, 0)),
    "depend": lambda task, _doc: Depend(task),
    "depend-absent": lambda _task, _doc: Depend(TaskRef(ABSENT, 0)),
    "replay": lambda task, _doc: Replay(task, "c"),
    "replay-absent": lambda _task, _doc: Replay(TaskRef(ABSENT, 0), "c"),
    "skip-existing": lambda task, _doc: Insert(queue="a", id=task.id, skip_existing=True),
    "renew": lambda task, _doc: Renew(task, 5),
    "renew-absent": lambda _task, _doc: Renew(TaskRef(ABSENT, 0), 5),
    "insert-doc": lambda _task, _doc: new("mine"),
    "insert-doc-into-set": lambda _task, _doc: new("k", "mine"),
    "change-doc": lambda _task, doc: ChangeDoc(doc, 2),
    "delete-doc": lambda _task, doc: DeleteDoc(doc),
    "delete-doc-absent": lambda _task, _doc: DeleteDoc(DocRef("n", ABSENT, 0)),
    "depend-doc-absent": lambda _task, _doc: DependDoc(DocRef("n", ABSENT, 0)),
    "depend-set-absent": lambda _task, _doc: DependSet(SetRef("n", "zz", 0)),
    "renew-set-absent": lambda _task, _doc: RenewSet(SetRef("n", "zz", 0), 5),
}


@pytest.fixture
def work(make_work: MakeWork) -> WorkQueue:
    return make_work(claimant="me")


@needs.many_writers
@pytest.mark.parametrize("filled", [True, False])
@pytest.mark.parametrize("action", ACTIONS.values(), ids=ACTIONS)
def test_a_caller_that_keeps_its_transaction_open_holds_up_nobody(
    work: WorkQueue,
    caller: Engine,
    action: Callable[[TaskRef, DocRef], Any],
    *,
    filled: bool,
) -> None:
    task, doc = TaskRef(ABSENT, 0), DocRef("n", ABSENT, 0)
    if filled:
        task = work.insert("a").ref
        doc = work.modify(new(secondary="1"), new(secondary="2")).inserted_docs[0].ref
    with caller.connect() as connection:
        with suppress(DependencyError):
            work.modify(action(task, doc), connection=connection)
        others_work(work, connection)


@needs.many_writers
@pytest.mark.parametrize("limit", [1, 3])
def test_a_claim_passes_over_a_task_that_a_transaction_has_locked(
    work: WorkQueue, caller: Engine, limit: int
) -> None:
    for number in range(4):
        work.insert("a", id=f"{number}")
    with caller.connect() as connection:
        work.modify(Depend(TaskRef("0", 0)), Renew(TaskRef("1", 0), 0), connection=connection)

        taken = work.claim_many("a", limit=limit, timeout_seconds=0)

        assert [task.id for task in taken] == ["2", "3"][:limit]


@needs.many_writers
@pytest.mark.parametrize("call", ["keep", "end", "delete", "read", "failed"])
def test_a_caller_that_has_a_part_in_history_holds_up_nobody(
    work: WorkQueue, caller: Engine, call: str
) -> None:
    for queue in ("b", "kept"):
        work.keep_history(queue)
    work.modify(work.insert("kept").delete())
    task = work.insert("kept")
    with caller.connect() as connection:
        calls: dict[str, Callable[[], object]] = {
            "keep": lambda: work.keep_history("zz", connection=connection),
            "end": lambda: work.keep_history("kept", keep=False, connection=connection),
            "delete": lambda: work.modify(task.delete(), connection=connection),
            "read": lambda: work.finished_tasks("kept", connection=connection),
            "failed": lambda: work.failed_tasks("kept", connection=connection),
        }
        calls[call]()
        others_work(work, connection)
    assert work.finished_tasks("b")
