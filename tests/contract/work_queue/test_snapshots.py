"""Modifications in callers' transactions that have read before others wrote.

In REPEATABLE READ such a transaction goes on to see what was there at its first read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from sqlalchemy import URL, Connection, Engine, create_engine, event, text
from sqlalchemy.exc import DBAPIError

from queue_core.errors import InvalidConnectionError
from tests import requirements as needs
from tests.contract.harness import see_what_changes
from tests.contract.work_queue.claiming import claimed
from tests.contract.work_queue.conftest import MakeWork
from tests.contract.work_queue.docs import held, new
from tests.contract.work_queue.others import others_work
from work_queue.faults import DependencyError, FaultKind
from work_queue.modification import Insert
from work_queue.task import Task
from work_queue.work_queue import WorkQueue

pytestmark = pytest.mark.database_only


@pytest.fixture
def work(make_work: MakeWork) -> WorkQueue:
    return make_work(claimant="me")


@pytest.fixture
def engine_of_caller(database_url: URL) -> Iterator[Engine]:
    engine = create_engine(database_url, isolation_level="REPEATABLE READ")
    event.listen(engine, "engine_connect", see_what_changes)
    yield engine
    engine.dispose()


@pytest.fixture
def caller(engine_of_caller: Engine) -> Iterator[Connection]:
    """A transaction that has read when the test begins."""
    with engine_of_caller.connect() as connection:
        read(connection)
        yield connection


def read(connection: Connection) -> None:
    for table in ("work_tasks", "work_docs", "work_doc_sets"):
        connection.execute(text(f"SELECT COUNT(*) FROM {table}")).one()


@needs.gap_locks
def test_newer_tasks_and_docs_can_be_named(work: WorkQueue, caller: Connection) -> None:
    caller.rollback()
    work.keep_history("a")
    read(caller)
    work.insert("a")
    task, config, other_task = claimed(work, "a"), work.insert("config"), work.insert("c", "v")
    [doc, other] = work.modify(new(), new("other")).inserted_docs

    made = work.modify(
        task.delete(),
        config.depend(),
        other_task.renew(0),
        doc.change(2),
        other.depend(),
        new("k", "second"),
        Insert(queue="b"),
        connection=caller,
    )
    caller.commit()

    assert [one.content for one in made.changed_docs] == [2]
    assert [(one.value, one.version) for one in made.changed] == [("v", 1)]
    assert [one.id for one in work.finished_tasks("a")] == [task.id]
    assert work.queues() == {"config": 1, "c": 1, "b": 1}
    assert [one.content for one in work.docs("n", key="k")] == [2, None]


@needs.gap_locks
@pytest.mark.parametrize("skips", [True, False])
def test_an_id_is_free_whose_task_was_deleted_since(
    work: WorkQueue,
    engine_of_caller: Engine,
    *,
    skips: bool,
) -> None:
    task = work.insert("a", "old", id="one")
    [doc] = work.modify(new(id="doc")).inserted_docs
    with engine_of_caller.begin() as caller:
        read(caller)
        work.modify(task.delete(), doc.delete())

        kept = work.insert("a", "new", id="one", skip_existing=skips, connection=caller)
        again = work.insert("a", "more", id="one", skip_existing=True, connection=caller)
        work.modify(new(id="doc", content=2), connection=caller)

        assert kept.value == again.value == "new"
    assert [one.value for one in work.tasks("a")] == ["new"]
    assert [one.content for one in work.docs("n")] == [2]


@needs.many_writers
def test_an_insert_that_is_skipped_answers_with_the_present_task(
    work: WorkQueue, engine_of_caller: Engine
) -> None:
    work.insert("a", "old", id="one")
    with engine_of_caller.connect() as caller:
        read(caller)
        work.modify(claimed(work, "a").change(value="present"))

        found = work.insert("a", "new", id="one", skip_existing=True, connection=caller)

        assert (found.value, found.version) == ("present", 2)
        others_work(work, caller)


@needs.many_writers
def test_a_transaction_sees_its_own_writes_of_a_task(work: WorkQueue, caller: Connection) -> None:
    task = work.insert("a", "old", id="one")
    caller.rollback()
    read(caller)
    changed = work.modify(task.change(value="mine"), connection=caller).changed[0]
    found = work.insert("a", "new", id="one", skip_existing=True, connection=caller)
    assert found == changed
    work.modify(changed.delete(), connection=caller)
    with pytest.raises(DependencyError) as refused:
        work.modify(changed.delete(), connection=caller)
    assert [fault.kind for fault in refused.value.faults] == [FaultKind.DELETE]
    others_work(work, caller)


@needs.gap_locks
@pytest.mark.parametrize("call", ["delete", "depend", "doc", "set", "taken", "deleted"])
def test_a_transaction_that_is_behind_holds_up_nobody(
    work: WorkQueue, engine_of_caller: Engine, call: str
) -> None:
    gone = work.insert("a", id="zz")
    with engine_of_caller.connect() as caller:
        read(caller)
        work.modify(gone.delete())
        task = work.insert("a")
        [doc] = work.modify(new()).inserted_docs
        calls: dict[str, Callable[[], object]] = {
            "delete": lambda: work.modify(task.delete(), connection=caller),
            "depend": lambda: work.modify(task.depend(), connection=caller),
            "doc": lambda: work.modify(doc.change(2), connection=caller),
            "set": lambda: work.modify(held(work, "k").depend(), connection=caller),
            "taken": lambda: work.insert("a", id="zz", skip_existing=True, connection=caller),
            "deleted": lambda: _refused(work, gone, caller),
        }
        calls[call]()
        others_work(work, caller)


def _refused(work: WorkQueue, task: Task, caller: Connection) -> None:
    with pytest.raises(DependencyError):
        work.modify(task.delete(), connection=caller)


@needs.postgresql
@pytest.mark.parametrize("named", ["task", "doc"])
def test_what_a_snapshot_can_not_see_is_no_fault(
    work: WorkQueue, caller: Connection, named: str
) -> None:
    work.insert("a")
    task = claimed(work, "a")
    [doc] = work.modify(new()).inserted_docs
    action = task.delete() if named == "task" else doc.change(2)

    with pytest.raises(InvalidConnectionError, match=r"snapshot is older than .*READ COMMITTED"):
        work.modify(action, connection=caller)

    work.insert("b", connection=caller)
    caller.commit()
    assert work.queues() == {"a": 1, "b": 1}


@needs.mariadb
def test_mariadb_can_refuse_what_is_newer(work: WorkQueue, caller: Connection) -> None:
    caller.rollback()
    caller.execute(text("SET SESSION innodb_snapshot_isolation = ON"))
    read(caller)
    task = work.insert("a")
    with pytest.raises(DBAPIError, match="1020"):
        work.modify(task.delete(), connection=caller)
