"""Modifications that run side by side take locks in one order, so they never wait in a circle.

Each test lets two transactions begin with locks that go together, whatever the order of their
actions. Locks in the order of the actions would be those that the other one asks for next.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from sqlalchemy import URL, Connection, Engine, create_engine, event

from tests import requirements as needs
from tests.contract.work_queue.conftest import MakeWork
from tests.contract.work_queue.docs import new
from tests.contract.work_queue.others import HELD_SECONDS
from work_queue.modification import Action, Delete, Depend, DependSet, Insert, RenewSet
from work_queue.refs import SetRef, TaskRef
from work_queue.work_queue import WorkQueue

pytestmark = pytest.mark.database_only
LOCK = r"(?s)SELECT.*(FOR UPDATE|FOR SHARE|IN SHARE MODE)"
NEW_TASK, NEW_DOC = r"INSERT.*work_tasks", r"INSERT.*work_docs"
"""How statements look that take a lock."""


@pytest.fixture
def work(make_work: MakeWork) -> WorkQueue:
    return make_work(claimant="me")


@pytest.fixture
def caller(database_url: URL) -> Iterator[Engine]:
    engine = create_engine(database_url, isolation_level="READ COMMITTED")
    yield engine
    engine.dispose()


def tasks(exclusive: str, *shared: str) -> list[Action]:
    """Of tasks that are there."""
    return [Delete(TaskRef(exclusive, 0)), *(Depend(TaskRef(one, 0)) for one in shared)]


def sets(exclusive: str, *shared: str) -> list[Action]:
    """Of doc sets that are there."""
    others = (DependSet(SetRef("n", one, 0)) for one in shared)
    return [RenewSet(SetRef("n", exclusive, 0), 5), *others]


def new_tasks(*ids: str) -> list[Action]:
    return [Insert(queue="a", id=one) for one in ids]


def new_docs(key: str, *ids: str) -> list[Action]:
    """Into a doc set that is there."""
    return [new(key, one, id=one) for one in ids]


@needs.many_writers
@pytest.mark.parametrize(
    ("locking", "modifications"),
    [
        pytest.param(LOCK, [tasks("2", "1", "3"), tasks("3", "1", "2")], id="tasks"),
        pytest.param(LOCK, [sets("2", "1", "3"), sets("3", "1", "2")], id="doc-sets"),
        pytest.param(
            NEW_TASK, [new_tasks("x", "a", "y"), new_tasks("y", "b", "x")], id="new-tasks"
        ),
        pytest.param(
            NEW_DOC, [new_docs("1", "x", "a", "y"), new_docs("2", "y", "b", "x")], id="new-docs"
        ),
    ],
)
def test_what_two_modifications_name_in_any_order_is_locked_in_one(
    work: WorkQueue,
    caller: Engine,
    locking: str,
    modifications: Sequence[Sequence[Action]],
) -> None:
    for number in "123":
        work.modify(Insert(queue="a", id=number), new(number, id=number))
    both_hold = Barrier(2, timeout=HELD_SECONDS)

    def run(actions: Sequence[Action]) -> None:
        with caller.connect() as connection:
            holding = list[str]()

            def hold(_c: Connection, _cursor: object, statement: str, *_others: object) -> None:
                if not holding and re.match(locking, statement):
                    holding.append(statement)
                    both_hold.wait()

            event.listen(connection, "after_cursor_execute", hold)
            work.modify(*actions, connection=connection)
            connection.rollback()

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(run, actions) for actions in modifications]:
            done.result(HELD_SECONDS)
